"""Views of batches: a summary for lists, and a full view with what the batch waits for."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.time import Instant, iso
from lucius.ports.bus import DeadLetter
from lucius.ports.database import Script
from lucius.runbooks.core import answers
from lucius.runbooks.core.approvals import Decision, approval_state
from lucius.runbooks.core.batch_waits import NAMED_MAX, BatchState, StepCount, batch_waits
from lucius.runbooks.core.dead_messages import DeadMessages
from lucius.runbooks.core.dead_messages import shown as shown_dead
from lucius.runbooks.core.definition.durations import show_offset
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.execution_waits import Absent, nobody_absent
from lucius.runbooks.core.records import FROM_SOURCE, Batch, Phase
from lucius.runbooks.core.states import CANCELLED, DISPATCHED, FAILED, PENDING, PHASE, STEP
from lucius.runbooks.core.verdicts import verdict
from lucius.runbooks.engine import dead_messages
from lucius.runbooks.service.publishing import shown_source
from lucius.runbooks.service.scope import missing_batch
from lucius.runbooks.service.views.pages import Paged, moment
from lucius.runbooks.store import (
    absences,
    approvals,
    batches,
    behind,
    controls,
    followups,
    inits,
    members,
    moves,
    phases,
    step_counts,
    steps,
    verdicts,
)
from lucius.runbooks.store.behind import Behind
from lucius.runbooks.store.definitions import Definitions

BEHIND_MAX = 10


def batch_page(
    runbook: str | None, status: str | None, limit: int, before: int | None, tenants: Sequence[str] | None = None
) -> Script[Paged[answers.Batch]]:
    found, next_id = yield from batches.listed(runbook, status, limit, before, tenants)
    return (yield from _lines(found)), next_id


def batch_exists(batch_id: int) -> Script[Batch]:
    found = yield from batches.by_ids([batch_id])
    if not found:
        raise missing_batch(batch_id)
    return found[batch_id]


def whole_batch(
    batch_id: int,
    definitions: Definitions,
    now: Instant,
    letters: Sequence[DeadLetter],
    absent: Absent = nobody_absent,
) -> Script[answers.BatchWhole]:
    batch = yield from batch_exists(batch_id)
    shown = (yield from _lines([batch]))[0]
    runbook = yield from definitions.get(batch.runbook_name, batch.version)
    control = yield from controls.read(batch.runbook_name)
    init = yield from inits.of_batch(batch_id)
    every = yield from phases.of_batch(batch_id)
    counts = yield from step_counts.read(batch)
    chains = yield from followups.open_counts(batch_id)
    missing = None
    if batch.origin == FROM_SOURCE:
        missing = yield from absences.of_batch(batch_id, batch.runbook_name)
    dead = yield from dead_of_batch(batch_id, letters)
    decisions = yield from approvals.of_batch(batch_id)
    states = {}
    for phase in every:
        states[phase.id] = yield from _approval(definitions, batch, phase, decisions)
    state = BatchState(
        batch=batch, runbook=runbook, automation=control.automation, init=init, phases=every, counts=counts,
        followups=chains, missing=missing, dead=dead, now=now, absent=absent, held_count=shown["members"]["held"],
        source_state=control.source_state, source_detail=control.source_detail,
        decisions=decisions,
        held=[(one.key, one.move_to or batch.start) for one in (yield from moves.held(batch_id, NAMED_MAX))],
    )  # fmt: skip
    return {
        **shown,
        "source": shown_source(control) if batch.origin == FROM_SOURCE else None,
        "unsuccessful": (yield from _unsuccessful(batch_id)),
        "behind": (yield from _behind(batch, every, definitions)),
        "init": [
            {
                "version": one.version, "step": one.step_name, "status": one.status, "attempts": one.dispatch_count,
                "error": one.error_message, "dispatched_at": moment(one.dispatched_at),
                "completed_at": moment(one.completed_at),
            }
            for one in init
        ],
        "phase_list": [_phase(phase, counts, states[phase.id]) for phase in every],
        "waiting_for": batch_waits(state),
        "dead_messages": [shown_dead(one) for one in dead.awaited],
    }  # fmt: skip


def _behind(batch: Batch, every: Sequence[Phase], definitions: Definitions) -> Script[list[answers.PhaseBehind]]:
    found: list[answers.PhaseBehind] = []
    for phase in every:
        if phase.status != DISPATCHED:
            continue
        held_up = yield from behind.behind(phase.id, BEHIND_MAX)
        if held_up is not None:
            index, count, first = held_up
            runbook = yield from definitions.get(batch.runbook_name, phase.version)
            found.append({
                "phase": phase.name, "version": phase.version, "step": runbook.phase(phase.name).steps[index].name,
                "count": count, "of": phase.member_count or 0, "members": [_behind_member(one) for one in first],
            })  # fmt: skip
    return found


def _behind_member(one: Behind) -> answers.BehindMember:
    return {"member_id": one.member_id, "member": one.key, "status": one.status, "since": moment(one.since)}


def _unsuccessful(batch_id: int) -> Script[answers.Unsuccessful]:
    count = (yield from verdicts.unsuccessful_counts([batch_id])).get(batch_id, 0)
    found: list[answers.UnsuccessfulMember] = []
    if count:
        keys = yield from verdicts.unsuccessful(batch_id, NAMED_MAX)
        stopped: dict[int, Execution] = {}
        for one in (yield from steps.of_members(list(keys))):
            # The failure itself says more than the steps that were cancelled because of it.
            if one.has_failed or (one.status == CANCELLED and one.member_id not in stopped):
                stopped[one.member_id or 0] = one
        found = [_stopped(key, stopped[member_id]) for member_id, key in keys.items()]
    return {"count": count, "members": found}


def _stopped(key: str, one: Execution) -> answers.UnsuccessfulMember:
    return {
        "member": key, "phase": one.list_name, "step": one.step_name, "status": one.status, "error": one.error_message,
    }  # fmt: skip


def dead_of_batch(batch_id: int, letters: Sequence[DeadLetter]) -> Script[DeadMessages]:
    found = yield from dead_messages.look_up(letters)
    return DeadMessages(one for one in found.values() if one.batch_id == batch_id)


def _lines(found: Sequence[Batch]) -> Script[list[answers.Batch]]:
    ids = [batch.id for batch in found]
    if not ids:
        return []
    counts = yield from members.counts(ids)
    held = yield from moves.held_counts(ids)
    # The verdict on a cancelled batch depends on nothing else.
    ended = [batch.id for batch in found if batch.status == FAILED and batch.cancelled_at is None]
    unsuccessful = yield from verdicts.unsuccessful_counts(ended)
    stopped = yield from verdicts.stopped_early(ended)
    by_status: dict[int, dict[str, int]] = {batch_id: dict.fromkeys(PHASE, 0) for batch_id in ids}
    for batch_id, status, count in (yield from phases.counts(ids)):
        by_status[batch_id][status] = count
    lines = []
    for batch in found:
        phase_counts, member_counts = by_status[batch.id], counts.get(batch.id, (0, 0, 0))
        has_begun = batch.id not in stopped and phase_counts[FAILED] > 0
        ending = verdict(batch, has_begun, member_counts[1], unsuccessful.get(batch.id, 0))
        lines.append(_line(batch, ending, member_counts, held.get(batch.id, 0), phase_counts))
    return lines


def _line(
    batch: Batch, ending: str | None, counts: tuple[int, int, int], held: int, by_status: dict[str, int]
) -> answers.Batch:
    total, active, failed = counts
    return {
        "batch_id": batch.id, "runbook": batch.runbook_name, "version": batch.version, "start": iso(batch.start),
        "status": batch.status, "verdict": ending, "origin": batch.origin, "advance": batch.advance,
        "starts_at": iso(batch.starts_at), "paused_at": moment(batch.paused_at), "pause_reason": batch.pause_reason,
        "held_at": moment(batch.held_at),
        "hold_reason": batch.hold_reason, "error": batch.error_message, "detected_at": iso(batch.detected_at),
        "completed_at": moment(batch.completed_at),
        "members": {"active": active, "removed": total - active, "failed": failed, "held": held},
        "phases": by_status,
    }  # fmt: skip


def _approval(
    definitions: Definitions, batch: Batch, phase: Phase, decisions: Sequence[Decision]
) -> Script[answers.PhaseApproval | None]:
    runbook = yield from definitions.get(batch.runbook_name, phase.version)
    state = approval_state(runbook.phase(phase.name).approval, batch, phase, decisions)
    if state is None:
        return None
    return {
        "role": state.wanted.role, "count": state.wanted.count, "missing": state.missing,
        "until": iso(state.deadline_at), "otherwise": state.wanted.otherwise,
        "decisions": [
            {"by": one.actor, "decision": one.decision, "reason": one.reason, "at": iso(one.decided_at)}
            for one in state.decisions
        ],
    }  # fmt: skip


def _phase(phase: Phase, counts: Sequence[StepCount], approval: answers.PhaseApproval | None) -> answers.BatchPhase:
    steps: dict[int, answers.PhaseStep] = {}
    for one in counts:
        if one.phase_id == phase.id:
            known: answers.PhaseStep = {
                "step": one.step_name,
                "step_index": one.step_index,
                "counts": dict.fromkeys(STEP, 0),
            }
            step = steps.setdefault(one.step_index, known)
            step["counts"][one.status] += one.count
    return {
        "phase": phase.name, "version": phase.version, "offset": show_offset(phase.offset_minutes),
        "due_at": iso(phase.due_at), "status": phase.status, "dispatched_at": moment(phase.dispatched_at),
        "completed_at": moment(phase.completed_at), "error": phase.error_message, "steps": list(steps.values()),
        "waits_until": moment(phase.wait_until) if phase.status == PENDING else None, "approval": approval,
    }  # fmt: skip
