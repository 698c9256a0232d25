"""The table `phase_executions`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.records import Phase
from lucius.runbooks.core.states import BECAUSE_INIT_FAILED, BECAUSE_SUPERSEDED, DISPATCHED
from lucius.runbooks.store.columns import columns_of, insert_of, values_of

_NAMED = {"name": "phase_name", "version": "runbook_version"}


class NewPhase(Struct, frozen=True, kw_only=True):
    batch_id: int
    name: str
    offset_minutes: int
    due_at: Instant
    version: int
    status: str
    completed_at: Instant | None = None
    error_message: str | None = None
    skip_cause: str | None = None


_PHASE = f"SELECT {columns_of(Phase, _NAMED)} FROM phase_executions"
_OF_BATCH = f"{_PHASE} WHERE batch_id = $1 ORDER BY id"
_BY_IDS = f"{_PHASE} WHERE id = ANY($1::bigint[]) ORDER BY id"
_NEW = insert_of("phase_executions", NewPhase, _NAMED, {"failures_forgiven": "0"})
_ADD = f"{_NEW} ON CONFLICT (batch_id, runbook_version, phase_name) DO NOTHING"
DUE = (
    # CROSS JOIN has SQLite begin with the phases that are due, in their order, and not with all active batches.
    "SELECT p.id, p.batch_id FROM phase_executions p CROSS JOIN batches b"
    " LEFT JOIN runbook_controls c ON c.name = b.runbook_name"
    " WHERE b.id = p.batch_id AND p.status = 'pending' AND p.due_at <= $1 AND b.status = 'active' AND b.held_at IS NULL"
    " AND b.paused_at IS NULL AND b.advance = 'time' AND (c.automation IS NULL OR c.automation = TRUE)"
    " AND (p.wait_until IS NULL OR p.wait_until <= $1) ORDER BY p.due_at, p.id LIMIT $2"
)
_NEXT_DUE = (
    "SELECT MIN(CASE WHEN p.wait_until > p.due_at THEN p.wait_until ELSE p.due_at END)"
    " FROM phase_executions p JOIN batches b ON b.id = p.batch_id"
    " WHERE p.status = 'pending' AND b.status = 'active' AND b.held_at IS NULL AND b.paused_at IS NULL"
)
NOT_HANDLED = (
    "SELECT batch_id, id FROM phase_executions WHERE status = 'dispatched' AND barrier_index IS NULL"
    " AND dispatched_at <= $1 ORDER BY dispatched_at LIMIT $2"
)
_COUNTS = (
    "SELECT batch_id, status, COUNT(*) FROM phase_executions WHERE batch_id = ANY($1::bigint[])"
    " GROUP BY batch_id, status"
)
_DISPATCH = (
    "UPDATE phase_executions SET status = 'dispatched', dispatched_at = $2, member_count = $3"
    " WHERE id = $1 AND status = 'pending'"
)
_SET_WAIT = "UPDATE phase_executions SET wait_until = $2 WHERE id = $1 AND status = 'pending'"
_CLEAR_WAITS = "UPDATE phase_executions SET wait_until = NULL WHERE batch_id = $1 AND status = 'pending'"
_SKIP_FROM = (
    "UPDATE phase_executions SET status = 'skipped', completed_at = $3, skip_cause = $4, error_message = $5"
    " WHERE batch_id = $1 AND id >= $2 AND status = 'pending'"
)
_SKIP_ONE = (
    "UPDATE phase_executions SET status = 'skipped', completed_at = $2, skip_cause = $3, error_message = $4"
    " WHERE id = $1 AND status = 'pending'"
)
_SET_MEMBER_COUNT = (
    "UPDATE phase_executions SET member_count = (SELECT COUNT(*) FROM batch_members m"
    " WHERE m.batch_id = phase_executions.batch_id AND m.status = 'active') WHERE id = $1 AND member_count IS NULL"
)
_END = "UPDATE phase_executions SET status = $3, completed_at = $4, error_message = $5 WHERE id = $1 AND status = $2"
_REOPEN = (
    "UPDATE phase_executions SET status = 'dispatched', completed_at = NULL, error_message = NULL"
    " WHERE id = $1 AND status IN ('completed', 'failed')"
)
_MOVE = "UPDATE phase_executions SET due_at = due_at + $2 WHERE batch_id = $1 AND status = 'pending'"
_SET_BARRIER = "UPDATE phase_executions SET barrier_index = $2 WHERE id = $1"
_SKIP_PENDING = (
    "UPDATE phase_executions SET status = 'skipped', completed_at = $2, skip_cause = $3, error_message = $4"
    " WHERE batch_id = $1 AND status = 'pending'"
)
_SKIP_OLDER = (
    "UPDATE phase_executions SET status = 'skipped', completed_at = $3, skip_cause = $4, error_message = $5"
    " WHERE batch_id = $1 AND runbook_version < $2 AND status = 'pending'"
)
_UNSKIP = (
    "UPDATE phase_executions SET status = 'pending', completed_at = NULL, error_message = NULL, skip_cause = NULL"
    " WHERE batch_id = $1 AND status = 'skipped' AND runbook_version = $2 AND skip_cause = $3"
)
FORGIVE = (
    "UPDATE phase_executions SET failures_forgiven = (SELECT COUNT(DISTINCT s.batch_member_id) FROM step_executions s"
    " WHERE s.phase_execution_id = phase_executions.id AND s.status IN ('failed', 'poll_timeout', 'rolled_back'))"
    " WHERE batch_id = $1"
)


def of_batch(batch_id: int) -> Script[list[Phase]]:
    return [Phase(*row) for row in (yield Fetch(_OF_BATCH, [batch_id]))]


def by_ids(ids: Sequence[int]) -> Script[list[Phase]]:
    return [Phase(*row) for row in (yield Fetch(_BY_IDS, [sorted(ids)]))]


def due(now: Instant, limit: int) -> Script[list[tuple[int, int]]]:
    """Phase and batch, the most overdue first."""
    return [(row[0], row[1]) for row in (yield Fetch(DUE, (now, limit)))]


def next_due() -> Script[Instant | None]:
    moment: Instant | None = (yield Fetch(_NEXT_DUE))[0][0]
    return moment


def not_handled(before: Instant, limit: int) -> Script[list[tuple[int, int]]]:
    """Batch and phase of those begun before this time that the orchestrator has not handled."""
    return [(row[0], row[1]) for row in (yield Fetch(NOT_HANDLED, (before, limit)))]


def counts(batch_ids: Sequence[int]) -> Script[list[tuple[int, str, int]]]:
    """Batch, status, and how many phases are in it."""
    return [(row[0], row[1], row[2]) for row in (yield Fetch(_COUNTS, [list(batch_ids)]))]


# --- Writing ---------------------------------------------------------------------------------------------------------


def add(phases: Sequence[NewPhase]) -> Script[None]:
    yield Run(_ADD, [values_of(phase) for phase in phases])


def dispatch(phase_id: int, now: Instant, member_count: int) -> Script[None]:
    yield Run(_DISPATCH, [(phase_id, now, member_count)])


def set_wait(phase_id: int, until_at: Instant) -> Script[None]:
    """The scheduler does not look at the phase before this time."""
    yield Run(_SET_WAIT, [(phase_id, until_at)])


def clear_waits(batch_id: int) -> Script[None]:
    """The scheduler looks at the pending phases of this batch again."""
    yield Run(_CLEAR_WAITS, [(batch_id,)])


def skip_from(phase: Phase, now: Instant, cause: str, reason: str) -> Script[None]:
    """This phase and the later ones of its batch, as far as they have not begun."""
    yield Run(_SKIP_FROM, [(phase.batch_id, phase.id, now, cause, reason)])


def skip_one(phase: Phase, now: Instant, cause: str, reason: str) -> Script[None]:
    yield Run(_SKIP_ONE, [(phase.id, now, cause, reason)])


def set_member_count(phase_id: int) -> Script[None]:
    """The active members of its batch, where another scheduler has begun the phase without counting them."""
    yield Run(_SET_MEMBER_COUNT, [(phase_id,)])


def end(phase_id: int, status: str, now: Instant, reason: str | None) -> Script[None]:
    yield Run(_END, [(phase_id, DISPATCHED, status, now, reason)])


def reopen(phase_ids: Sequence[int]) -> Script[None]:
    yield Run(_REOPEN, [(phase_id,) for phase_id in phase_ids])


def move(batch_id: int, millis: int) -> Script[None]:
    """Make the phases that have not begun due that much later."""
    yield Run(_MOVE, [(batch_id, millis)])


def set_barrier(phase_id: int, index: int) -> Script[None]:
    yield Run(_SET_BARRIER, [(phase_id, index)])


def skip_pending(batch_id: int, now: Instant, cause: str, reason: str) -> Script[None]:
    yield Run(_SKIP_PENDING, [(batch_id, now, cause, reason)])


def skip_older(batch_id: int, version: int, now: Instant, reason: str) -> Script[None]:
    """Pending phases of versions before this one."""
    yield Run(_SKIP_OLDER, [(batch_id, version, now, BECAUSE_SUPERSEDED, reason)])


def unskip(batch_id: int, version: int) -> Script[None]:
    """Make phases that were skipped because init had failed pending again."""
    yield Run(_UNSKIP, [(batch_id, version, BECAUSE_INIT_FAILED)])


def forgive(batch_id: int) -> Script[None]:
    """Previous failures no longer count for `max_failures`."""
    yield Run(FORGIVE, [(batch_id,)])
