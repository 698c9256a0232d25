"""Advances a batch: which steps are ready, where the barrier is, which phases and batches have ended.

Everything here is a function of the tables, so neither repetition nor the order of facts matters. A member runs its
steps one after another, in the order of phases and then of steps; its *head* is the first that has not ended. In a
phase with a barrier a head may run only at the barrier, which is the lowest step that any member of the phase still has
open. A member that is catching up runs alone until it reaches the barrier.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.notifications import Cause
from lucius.ports.database import Script
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.records import Batch, Head, Phase
from lucius.runbooks.core.start_rules import sending_wait
from lucius.runbooks.core.states import (
    ACTIVE,
    BECAUSE_REFUSED,
    COMPLETED,
    DISPATCHED,
    FAILED,
    PENDING,
    PHASE_ENDED,
)
from lucius.runbooks.engine.turn import Turn
from lucius.runbooks.store import batches, followups, moves, phases, steps

SEND_MAX = 500
"""Jobs of a batch sent in one turn; the rest wait for the next."""
BEYOND = 1_000_000
"""The barrier of a phase that has ended: no member reaches it."""


def progress(turn: Turn, batch: Batch) -> Script[None]:
    """Advance the batch as far as possible. Call when every fact of the turn is applied and written."""
    touched = turn.touch(batch.id)
    heads = yield from steps.heads(touched.members)
    phase_ids = touched.phases | {head.phase_id for head in heads}
    if not phase_ids:
        return
    running = {one.id: one for one in (yield from phases.by_ids(sorted(phase_ids))) if one.status == DISPATCHED}
    runbooks: dict[int, Runbook] = {}
    for phase in running.values():
        runbooks[phase.version] = yield from turn.runbook(batch, phase.version)
    if batch.cancelled_at is None:
        yield from _catch_up(heads, running, runbooks)
        yield from _raise_barriers(running, runbooks)
        yield from _ready_heads(turn, batch, heads, running, runbooks)
    yield from close_phases(turn, batch, [running[phase_id] for phase_id in sorted(running)])


def _catch_up(heads: Sequence[Head], running: dict[int, Phase], runbooks: dict[int, Runbook]) -> Script[None]:
    """Members that have caught up with the barrier now count toward it."""
    arrived = []
    for head in heads:
        phase = running.get(head.phase_id)
        if not head.catching_up or phase is None or runbooks[phase.version].progression != "barrier":
            continue
        if head.step_index >= (BEYOND if phase.barrier_index is None else phase.barrier_index):
            head.catching_up = False
            arrived.append((head.phase_id, head.member_id))
    if arrived:
        yield from steps.set_caught_up(arrived)


def _raise_barriers(running: dict[int, Phase], runbooks: dict[int, Runbook]) -> Script[None]:
    """Where every member has ended a step, the members at the next step become ready."""
    if not running:
        return
    for found in (yield from steps.phase_progress(sorted(running))):
        phase = running[found.phase_id]
        at_start = phase.barrier_index is None
        is_barrier = runbooks[phase.version].progression == "barrier"
        index = BEYOND if found.lowest is None else found.lowest
        if index == phase.barrier_index or not (is_barrier or at_start):
            continue
        phase.barrier_index = index
        yield from phases.set_barrier(phase.id, index)
        if index != BEYOND:
            yield from steps.make_ready_at(phase.id, index)


def _ready_heads(
    turn: Turn, batch: Batch, heads: Sequence[Head], running: dict[int, Phase], runbooks: dict[int, Runbook]
) -> Script[None]:
    ready = []
    for head in heads:
        phase = running.get(head.phase_id)
        if phase is None or head.status != PENDING:
            continue
        runs_alone = head.catching_up or runbooks[phase.version].progression == "independent"
        if runs_alone or head.step_index == phase.barrier_index:
            ready.append(head.id)
    if not ready:
        return
    # Steps of another scheduler say which batch they are of, and so can be sent, once their phase is adopted.
    are_adopted = all(running[head.phase_id].member_count is not None for head in heads if head.phase_id in running)
    if are_adopted and len(ready) <= SEND_MAX and (yield from _sends_freely(turn, batch)):
        turn.next_steps[batch.id] = ready
    else:
        yield from steps.make_ready(ready)


def _sends_freely(turn: Turn, batch: Batch) -> Script[bool]:
    """Whether nothing keeps the batch from sending what is ready."""
    runbook = yield from turn.runbook(batch)
    return runbook.max_parallel is None and not batch.is_paused and sending_wait(runbook, turn.now) is None


# --- Endings ---------------------------------------------------------------------------------------------------------


def close_phases(turn: Turn, batch: Batch, running: Sequence[Phase]) -> Script[None]:
    """End the phases that have nothing left to do, and the batch if they were its last."""
    if not running:
        return
    ended = False
    for found in (yield from steps.phase_progress([phase.id for phase in running])):
        if found.lowest is not None or found.catching_up is not None:
            continue
        if (yield from followups.has_open_rollback(batch.id, found.phase_id)):
            continue
        phase = next(phase for phase in running if phase.id == found.phase_id)
        against = yield from steps.count_against(phase.id)
        unsuccessful = "1 step" if against == 1 else f"{against} steps"
        status, reason = (FAILED, f"{unsuccessful} did not succeed") if against else (COMPLETED, None)
        yield from phases.end(phase.id, status, turn.now, reason)
        yield from phases.set_barrier(phase.id, BEYOND)
        turn.note("phase-ended", batch, phase=phase.name, version=phase.version, status=status, reason=reason)
        about = f"{phase.id} {status}"
        yield from turn.notify(Cause.PHASE_ENDED, batch, about, phase=phase.name, status=status, reason=reason)
        ended = True
    if ended:
        yield from close_batch(turn, batch)


def close_batch(turn: Turn, batch: Batch) -> Script[None]:
    """End a batch whose phases have all ended, unless a member is held: it could still leave for another date."""
    if batch.status != ACTIVE:
        return
    every = yield from phases.of_batch(batch.id)
    if any(phase.status not in PHASE_ENDED for phase in every):
        return
    if (yield from moves.held(batch.id, 1)):
        return
    failed = [phase.name for phase in every if phase.status == FAILED]
    reasons = [f"phases failed: {', '.join(failed)}"] if failed else []
    refused = [one for one in every if one.skip_cause == BECAUSE_REFUSED and one.version == batch.version]
    reasons += [one.error_message or "" for one in refused[:1]]
    yield from end_batch(turn, batch, FAILED if reasons else COMPLETED, "; ".join(reasons) or None)


def end_batch(turn: Turn, batch: Batch, status: str, reason: str | None) -> Script[None]:
    yield from batches.set_status(batch, status, reason, turn.now)
    if batch.is_paused:  # Whoever reopens it wants it to go on.
        yield from batches.pause(batch, None, None)
    turn.note("batch-ended", batch, status=status, reason=reason)
    yield from turn.notify(Cause.BATCH_ENDED, batch, status, status=status, reason=reason)
