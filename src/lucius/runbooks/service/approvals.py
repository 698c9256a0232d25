"""What people decide about phases that need approval."""

from __future__ import annotations

from collections.abc import Callable

from lucius.domain.errors import CallerError
from lucius.ports.database import Script
from lucius.runbooks.core.answers import BatchActed
from lucius.runbooks.core.approvals import APPROVED, REFUSED, ApprovalState, Decision
from lucius.runbooks.core.records import Batch, Phase
from lucius.runbooks.core.states import PENDING
from lucius.runbooks.engine.approvals import refuse, state_of
from lucius.runbooks.engine.turn import Turn, said
from lucius.runbooks.store import approvals, phases, runbooks


def decide(
    turn: Turn, batch: Batch, name: str, decision: str, may: Callable[[str], bool], reason: str
) -> Script[BatchActed]:
    """`decision`: approved or refused. Repeating it changes nothing."""
    phase, state = yield from _find(turn, batch, name)
    if not may(state.wanted.role):
        raise CallerError.of("FORBIDDEN", f"phase {name} is approved and refused with the role {state.wanted.role}")
    if decision == APPROVED:
        yield from _ensure_other(turn, batch, phase)
    if turn.actor not in state.approvers or decision == REFUSED:
        made = Decision(phase.id, turn.actor, decision, reason or None, turn.now)
        yield from approvals.write(made)
        state = ApprovalState(state.wanted, state.deadline_at, [*state.decisions, made])
        turn.log.anything(batch.id)
        if decision == REFUSED:
            yield from refuse(turn, batch, phase, reason)
        else:
            detail = {"approvals": len(state.approvers), "of": state.wanted.count} | said(reason)
            turn.note("phase-approved", batch, phase=name, **detail)
            if not state.missing:
                yield from phases.clear_waits(batch.id)
    missing = 0 if decision == REFUSED else state.missing
    return {"batch_id": batch.id, "phase": name, "status": batch.status, "approvals_missing": missing}


def _find(turn: Turn, batch: Batch, name: str) -> Script[tuple[Phase, ApprovalState]]:
    """The phase that a decision is about, if it can still be made."""
    found = [one for one in (yield from phases.of_batch(batch.id)) if one.name == name]
    if not found:
        raise CallerError.of("NOT_FOUND", f"batch {batch.id} has no phase {name[:100]!r}")
    phase = next((one for one in found if one.status == PENDING), found[-1])
    if phase.status != PENDING:
        detail = f"phase {name} of batch {batch.id} is {phase.status}: only a phase that has not begun can be decided"
        raise CallerError.of("CONFLICT", detail)
    state = yield from state_of(turn, batch, phase)
    if state is None:
        raise CallerError.of("CONFLICT", f"phase {name} of batch {batch.id} needs no approval")
    if turn.now >= state.deadline_at and state.missing:
        raise CallerError.of("CONFLICT", f"phase {name} of batch {batch.id} is {state.expired}")
    return phase, state


def _ensure_other(turn: Turn, batch: Batch, phase: Phase) -> Script[None]:
    """Neither who published the version nor who created the batch may approve."""
    published_by = yield from runbooks.publisher(batch.runbook_name, phase.version)
    roles: dict[str | None, str] = {published_by: f"published version {phase.version} of {batch.runbook_name}"}
    roles[batch.created_by] = f"created batch {batch.id}"
    if turn.actor in roles:
        raise CallerError.of("FORBIDDEN", f"{turn.actor} {roles[turn.actor]}: somebody else has to approve")
