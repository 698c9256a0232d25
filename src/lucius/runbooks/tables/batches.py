"""Batches, phases and members: rows as data, and the statements that read and move them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.sql.database import Fetch, Script


class Batch(Struct):
    id: int
    runbook_id: int
    start: Instant
    status: str
    runbook_name: str
    origin: str
    advance: str
    held_at: Instant | None
    hold_reason: str | None
    error_message: str | None
    completed_at: Instant | None
    version: int
    data_table: str


class Phase(Struct):
    id: int
    batch_id: int
    name: str
    offset_minutes: int
    due_at: Instant
    version: int
    status: str
    dispatched_at: Instant | None
    completed_at: Instant | None
    member_count: int | None
    barrier_index: int | None
    failures_forgiven: int


class Member(Struct):
    id: int
    batch_id: int
    key: str
    status: str
    failed_at: Instant | None


BATCH = (
    "SELECT b.id, b.runbook_id, b.batch_start_time, b.status, b.runbook_name, b.origin, b.advance, b.held_at,"
    " b.hold_reason, b.error_message, b.completed_at, r.version, r.data_table_name"
    " FROM batches b JOIN runbooks r ON r.id = b.runbook_id"
)
PHASE = (
    "SELECT id, batch_id, phase_name, offset_minutes, due_at, runbook_version, status, dispatched_at, completed_at,"
    " member_count, barrier_index, failures_forgiven FROM phase_executions"
)
MEMBER = "SELECT id, batch_id, member_key, status, failed_at FROM batch_members"

LOCK_BATCHES = "SELECT id FROM batches WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE"

SET_BATCH_STATUS = "UPDATE batches SET status = $3, error_message = $4, completed_at = $5 WHERE id = $1 AND status = $2"
HOLD_BATCH = "UPDATE batches SET held_at = $2, hold_reason = $3 WHERE id = $1"
SET_PHASE_STATUS = (
    "UPDATE phase_executions SET status = $3, completed_at = $4, error_message = $5 WHERE id = $1 AND status = $2"
)
REOPEN_PHASE = (
    "UPDATE phase_executions SET status = 'dispatched', completed_at = NULL, error_message = NULL"
    " WHERE id = $1 AND status IN ('completed', 'failed')"
)
SET_BARRIER = "UPDATE phase_executions SET barrier_index = $2 WHERE id = $1"
SET_MEMBER_FAILED = "UPDATE batch_members SET failed_at = $2 WHERE id = $1"


def lock(batch_ids: Sequence[int]) -> Script[dict[int, Batch]]:
    """Take these batches for this transaction: whoever else wants one waits. Always in the order of their ids."""
    wanted = sorted(set(batch_ids))
    yield Fetch(LOCK_BATCHES, [wanted])
    rows = yield Fetch(f"{BATCH} WHERE b.id = ANY($1::bigint[]) ORDER BY b.id", [wanted])
    return {row[0]: Batch(*row) for row in rows}


def phases_of(batch_id: int) -> Script[list[Phase]]:
    rows = yield Fetch(f"{PHASE} WHERE batch_id = $1 ORDER BY id", [batch_id])
    return [Phase(*row) for row in rows]


def phases_by_ids(ids: Sequence[int]) -> Script[list[Phase]]:
    rows = yield Fetch(f"{PHASE} WHERE id = ANY($1::bigint[]) ORDER BY id", [sorted(ids)])
    return [Phase(*row) for row in rows]


def members_by_ids(ids: Sequence[int]) -> Script[dict[int, Member]]:
    rows = yield Fetch(f"{MEMBER} WHERE id = ANY($1::bigint[])", [sorted(ids)])
    return {row[0]: Member(*row) for row in rows}
