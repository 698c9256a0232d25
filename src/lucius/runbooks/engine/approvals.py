"""Phases that need approval: when they begin to wait, when that ends, and what a refusal stops."""

from __future__ import annotations

from lucius.domain.notifications import Cause
from lucius.ports.database import Script
from lucius.runbooks.core.approvals import ApprovalState, approval_state
from lucius.runbooks.core.definition.calendar import Wait
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.records import Batch, Phase
from lucius.runbooks.core.start_rules import phase_wait
from lucius.runbooks.core.states import BECAUSE_REFUSED, BECAUSE_UNAPPROVED
from lucius.runbooks.engine.progress import close_batch
from lucius.runbooks.engine.turn import Turn, said
from lucius.runbooks.store import approvals, phases, steps


def wait_of(turn: Turn, batch: Batch, phase: Phase) -> Script[Wait | None]:
    """Why this pending phase must not begin now."""
    runbook = yield from turn.runbook(batch)
    every = yield from phases.of_batch(batch.id)
    return phase_wait(runbook, batch, phase, every, (yield from approvals.of_batch(batch.id)), turn.now)


def state_of(turn: Turn, batch: Batch, phase: Phase) -> Script[ApprovalState | None]:
    """None if the phase needs no approval."""
    wanted = (yield from turn.runbook(batch, phase.version)).phase(phase.name).approval
    if wanted is None:
        return None
    return approval_state(wanted, batch, phase, (yield from approvals.of_batch(batch.id)))


def phase_begins_to_wait(turn: Turn, batch: Batch, phase: Phase, state: ApprovalState) -> Script[None]:
    """The phase is due and lacks approvals: noted once, and recipients of the runbook are told."""
    turn.note(
        "approval-needed", batch, phase=phase.name, role=state.wanted.role, missing=state.missing,
        until=utc(state.deadline_at), otherwise=state.wanted.otherwise,
    )  # fmt: skip
    missing = f"{state.progress}; by whoever has the role {state.wanted.role}"
    yield from turn.notify(
        Cause.APPROVAL_NEEDED, batch, phase.name, phase=phase.name, reason=missing, due_at=state.deadline_at
    )


def expire(turn: Turn, batch: Batch, phase: Phase, state: ApprovalState) -> Script[bool]:
    """Nobody approved it in time: do what the runbook says; returns whether the phase begins all the same."""
    otherwise, reason = state.wanted.otherwise, f"phase {phase.name} was {state.expired}"
    if otherwise == "run":
        return True
    turn.note("approval-expired", batch, phase=phase.name, otherwise=otherwise, reason=reason)
    if otherwise == "fail":
        yield from _stop_from(turn, batch, phase, reason)
    else:
        yield from phases.skip_one(phase, turn.now, BECAUSE_UNAPPROVED, reason)
        yield from _follow_skip(turn, batch)
    return False


def refuse(turn: Turn, batch: Batch, phase: Phase, reason: str) -> Script[None]:
    """Neither this phase nor a later one begins, and the batch ends failed once those that run have ended."""
    turn.note("phase-refused", batch, phase=phase.name, **said(reason))
    why = f": {reason}" if reason else ""
    refused = f"refused by {turn.actor}{why}"
    yield from turn.notify(Cause.APPROVAL_REFUSED, batch, phase.name, phase=phase.name, reason=refused)
    yield from _stop_from(turn, batch, phase, f"phase {phase.name} was refused by {turn.actor}{why}")


def _stop_from(turn: Turn, batch: Batch, phase: Phase, reason: str) -> Script[None]:
    yield from phases.skip_from(phase, turn.now, BECAUSE_REFUSED, reason)
    yield from _follow_skip(turn, batch)


def _follow_skip(turn: Turn, batch: Batch) -> Script[None]:
    yield from steps.drop_unbegun(batch.id)
    yield from phases.clear_waits(batch.id)
    turn.log.anything(batch.id)
    yield from close_batch(turn, batch)
