"""How far a batch may go: which steps are ready, where the barrier stands, which phases and batches have ended.

Everything here is a function of the tables, so it does not matter how often it is asked or what was handled first. A
member goes through its steps one after another, in the order of phases and then of steps; its *head* is the first that
has not ended. In a phase with a barrier a head may go only if it stands at the barrier, which is the lowest step that
any member in the phase still has open. Who catches up runs alone until it has come up to the barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from lucius.runbooks.definition.model import Runbook
from lucius.runbooks.orchestrator.turn import Turn
from lucius.runbooks.states import (
    ACTIVE,
    COMPLETED,
    DISPATCHED,
    FAILED,
    PENDING,
    PHASE_ENDED,
)
from lucius.runbooks.tables import batches
from lucius.runbooks.tables.batches import Batch, Phase
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.runbook_tables import OPEN

BEYOND = 1_000_000
"""The barrier of a phase that has ended: nobody comes up to it."""

HEADS = (
    "SELECT s.id, s.batch_member_id, s.phase_execution_id, s.step_index, s.status, s.catching_up"
    " FROM batch_members m JOIN step_executions s ON s.id = ("
    f"SELECT n.id FROM step_executions n WHERE n.batch_member_id = m.id AND n.{OPEN}"
    " ORDER BY n.phase_execution_id, n.step_index LIMIT 1)"
    " WHERE m.id = ANY($1::bigint[])"
)
STANDINGS = (
    "SELECT p.id, (SELECT s.step_index FROM step_executions s WHERE s.phase_execution_id = p.id"
    f" AND s.{OPEN} AND s.catching_up = FALSE ORDER BY s.step_index LIMIT 1),"
    " (SELECT s.step_index FROM step_executions s WHERE s.phase_execution_id = p.id"
    f" AND s.{OPEN} AND s.catching_up = TRUE ORDER BY s.phase_execution_id LIMIT 1)"
    " FROM phase_executions p WHERE p.id = ANY($1::bigint[])"
)
READY_AT = (
    "UPDATE step_executions SET ready = TRUE WHERE phase_execution_id = $1 AND step_index = $2 AND status = 'pending'"
    f" AND {OPEN} AND catching_up = FALSE AND ready = FALSE AND NOT EXISTS (SELECT 1 FROM step_executions e"
    " WHERE e.batch_member_id = step_executions.batch_member_id AND e.phase_execution_id < $1"
    f" AND e.{OPEN})"
)
READY = "UPDATE step_executions SET ready = TRUE WHERE id = $1 AND status = 'pending'"
CAUGHT_UP = (
    f"UPDATE step_executions SET catching_up = FALSE WHERE phase_execution_id = $1 AND batch_member_id = $2 AND {OPEN}"
)
OPEN_ROLLBACK = (
    "SELECT 1 FROM followup_executions WHERE batch_id = $1 AND phase_execution_id = $2 AND kind = 'rollback'"
    f" AND {OPEN} ORDER BY id LIMIT 1"
)
COUNTED_AGAINST = (
    "SELECT COUNT(*) FROM step_executions WHERE phase_execution_id = $1 AND"
    " status IN ('failed', 'poll_timeout', 'rolled_back', 'cancelled')"
    " AND (status <> 'cancelled' OR cancel_cause <> 'removed' AND batch_member_id NOT IN (SELECT m.id"
    " FROM batch_members m JOIN phase_executions p ON p.batch_id = m.batch_id"
    " WHERE p.id = $1 AND m.status = 'removed'))"
)


class Head(Struct):
    id: int
    member_id: int
    phase_id: int
    step_index: int
    status: str
    catching_up: bool


def progress(turn: Turn, batch: Batch) -> Script[None]:
    """Bring the batch as far as it goes. To be called when every fact of the turn is applied and written."""
    touched = turn.touch(batch.id)
    heads = yield from _heads(touched.members)
    phase_ids = touched.phases | {head.phase_id for head in heads}
    if not phase_ids:
        return
    phases = {phase.id: phase for phase in (yield from batches.phases_by_ids(sorted(phase_ids)))}
    running = {phase.id: phase for phase in phases.values() if phase.status == DISPATCHED}
    runbooks: dict[int, Runbook] = {}
    for phase in running.values():
        runbooks[phase.version] = yield from turn.runbook(batch, phase.version)
    yield from _come_up(heads, running, runbooks)
    yield from _raise_barriers(running, runbooks)
    yield from _ready_heads(heads, running, runbooks)
    yield from close_phases(turn, batch, [running[phase_id] for phase_id in sorted(running)])


def _heads(member_ids: Iterable[int]) -> Script[list[Head]]:
    ids = sorted(member_ids)
    if not ids:
        return []
    rows = yield Fetch(HEADS, [ids])
    return [Head(*row) for row in rows]


def _come_up(heads: Sequence[Head], running: dict[int, Phase], runbooks: dict[int, Runbook]) -> Script[None]:
    """Whoever has caught up with the barrier counts for it from now on."""
    arrived = []
    for head in heads:
        phase = running.get(head.phase_id)
        if not head.catching_up or phase is None or runbooks[phase.version].progression != "barrier":
            continue
        if head.step_index >= (BEYOND if phase.barrier_index is None else phase.barrier_index):
            head.catching_up = False
            arrived.append((head.phase_id, head.member_id))
    if arrived:
        yield Run(CAUGHT_UP, arrived)


def _raise_barriers(running: dict[int, Phase], runbooks: dict[int, Runbook]) -> Script[None]:
    """Where everybody has ended a step, those who stand at the next one are ready."""
    if not running:
        return
    for phase_id, lowest, _ in (yield Fetch(STANDINGS, [sorted(running)])):
        phase = running[phase_id]
        at_start = phase.barrier_index is None
        is_barrier = runbooks[phase.version].progression == "barrier"
        index = BEYOND if lowest is None else lowest
        if index == phase.barrier_index or not (is_barrier or at_start):
            continue
        phase.barrier_index = index
        yield Run(batches.SET_BARRIER, [(phase_id, index)])
        if index != BEYOND:
            yield Run(READY_AT, [(phase_id, index)])


def _ready_heads(heads: Sequence[Head], running: dict[int, Phase], runbooks: dict[int, Runbook]) -> Script[None]:
    ready = []
    for head in heads:
        phase = running.get(head.phase_id)
        if phase is None or head.status != PENDING:
            continue
        goes_alone = head.catching_up or runbooks[phase.version].progression == "independent"
        if goes_alone or head.step_index == phase.barrier_index:
            ready.append((head.id,))
    if ready:
        yield Run(READY, ready)


# --- Endings ---------------------------------------------------------------------------------------------------------


def close_phases(turn: Turn, batch: Batch, phases: Sequence[Phase]) -> Script[None]:
    """End those phases in which nothing is left to be done, and the batch if they were the last."""
    if not phases:
        return
    ended = False
    for phase_id, on_barrier, catching_up in (yield Fetch(STANDINGS, [[phase.id for phase in phases]])):
        if on_barrier is not None or catching_up is not None or (yield Fetch(OPEN_ROLLBACK, (batch.id, phase_id))):
            continue
        phase = next(phase for phase in phases if phase.id == phase_id)
        against = (yield Fetch(COUNTED_AGAINST, [phase_id]))[0][0]
        unhappy = "1 step" if against == 1 else f"{against} steps"
        status, reason = (FAILED, f"{unhappy} did not succeed") if against else (COMPLETED, None)
        yield Run(batches.SET_PHASE_STATUS, [(phase_id, DISPATCHED, status, turn.now, reason)])
        yield Run(batches.SET_BARRIER, [(phase_id, BEYOND)])
        turn.note("phase-ended", batch, phase=phase.name, version=phase.version, status=status, reason=reason)
        ended = True
    if ended:
        yield from close_batch(turn, batch)


def close_batch(turn: Turn, batch: Batch) -> Script[None]:
    """A batch whose phases have all ended has ended with them."""
    if batch.status != ACTIVE:
        return
    phases = yield from batches.phases_of(batch.id)
    if any(phase.status not in PHASE_ENDED for phase in phases):
        return
    failed = [phase.name for phase in phases if phase.status == FAILED]
    status = FAILED if failed else COMPLETED
    yield from end_batch(turn, batch, status, f"phases failed: {', '.join(failed)}" if failed else None)


def end_batch(turn: Turn, batch: Batch, status: str, reason: str | None) -> Script[None]:
    yield Run(batches.SET_BATCH_STATUS, [(batch.id, batch.status, status, reason, turn.now)])
    batch.status, batch.error_message, batch.completed_at = status, reason, turn.now
    turn.note("batch-ended", batch, status=status, reason=reason)
