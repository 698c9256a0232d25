"""The table `batch_members`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.records import Member
from lucius.runbooks.store.columns import columns_of
from lucius.runbooks.store.paging import Conditions, page

MEMBER = f"SELECT {columns_of(Member, {'key': 'member_key'})} FROM batch_members"
_BY_IDS = f"{MEMBER} WHERE id = ANY($1::bigint[])"
_OF_BATCH = f"{MEMBER} WHERE batch_id = $1 ORDER BY id"
_AFTER = f"{MEMBER} WHERE batch_id = $1 AND id > $2 ORDER BY id LIMIT $3"
ACTIVE_AFTER = f"{MEMBER} WHERE batch_id = $1 AND status = 'active' AND id > $2 ORDER BY id LIMIT $3"
ACTIVE_BY_KEY = f"{MEMBER} WHERE batch_id = $1 AND status = 'active' AND member_key = ANY($2::text[])"
_FAILED = f"{MEMBER} WHERE batch_id = $1 AND status = 'active' AND failed_at IS NOT NULL"
_ACTIVE_IDS = "SELECT id FROM batch_members WHERE batch_id = $1 AND status = 'active' ORDER BY id"
_COUNT_ACTIVE = "SELECT COUNT(*) FROM batch_members WHERE batch_id = $1 AND status = 'active'"
UNANNOUNCED = (
    "SELECT id, member_key FROM batch_members WHERE batch_id = $1 AND status <> 'removed'"
    " AND member_key = ANY($2::text[]) AND add_dispatched_at IS NULL"
)
WITHOUT_EARLIER_STEPS = (
    "SELECT m.id FROM batch_members m WHERE m.batch_id = $1 AND m.status = 'active' AND m.add_dispatched_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM step_executions s WHERE s.batch_member_id = m.id AND s.phase_execution_id < $2)"
)
ADD_UNHANDLED = (
    "SELECT batch_id, id FROM batch_members WHERE status = 'active' AND add_dispatched_at IS NOT NULL"
    " AND add_handled_at IS NULL AND add_dispatched_at <= $1 ORDER BY add_dispatched_at LIMIT $2"
)
REMOVE_UNHANDLED = (
    "SELECT batch_id, id FROM batch_members WHERE remove_dispatched_at IS NOT NULL"
    " AND remove_handled_at IS NULL AND remove_dispatched_at <= $1 ORDER BY remove_dispatched_at LIMIT $2"
)
OF_OPEN_BATCHES = (
    "SELECT m.member_key, m.id, m.batch_id, m.added_by_source, m.move_to"
    " FROM batches b JOIN batch_members m ON m.batch_id = b.id"
    " WHERE b.runbook_name = $1 AND b.completed_at IS NULL AND b.origin = 'source' AND m.status = 'active'"
)
_NOT_AGAIN = (
    "SELECT m.member_key, b.batch_start_time FROM batches b JOIN batch_members m ON m.batch_id = b.id"
    " WHERE b.runbook_name = $1 AND b.origin = 'source' AND (b.completed_at IS NOT NULL AND m.status = 'active'"
    " OR m.status = 'removed' AND m.removed_by_source = FALSE)"
)
_NOT_AGAIN_AT = f"{_NOT_AGAIN} AND b.batch_start_time = ANY($2::bigint[])"
# Each of these counts is an index-only scan.
_COUNTS_ALL = "SELECT batch_id, COUNT(*) FROM batch_members WHERE batch_id = ANY($1::bigint[]) GROUP BY batch_id"
_COUNTS_ACTIVE = (
    "SELECT batch_id, COUNT(*) FROM batch_members WHERE batch_id = ANY($1::bigint[]) AND status = 'active'"
    " GROUP BY batch_id"
)
_COUNTS_FAILED = (
    "SELECT batch_id, COUNT(*) FROM batch_members WHERE batch_id = ANY($1::bigint[]) AND status = 'active'"
    " AND failed_at IS NOT NULL GROUP BY batch_id"
)
_ADD = (
    "INSERT INTO batch_members (batch_id, member_key, status, added_at, added_by, added_by_source)"
    " VALUES ($1, $2, 'active', $3, $4, $5)"
    " ON CONFLICT (batch_id, member_key) WHERE status = 'active' DO NOTHING"
)
_SET_ADD_DISPATCHED = "UPDATE batch_members SET add_dispatched_at = $2 WHERE id = $1"
_SET_ADD_HANDLED = "UPDATE batch_members SET add_handled_at = $2 WHERE id = $1 AND add_handled_at IS NULL"
_SET_REMOVE_HANDLED = "UPDATE batch_members SET remove_handled_at = $2 WHERE id = $1 AND remove_handled_at IS NULL"
_SET_FAILED = "UPDATE batch_members SET failed_at = $2 WHERE id = $1"
_REMOVE = (
    "UPDATE batch_members SET status = 'removed', removed_at = $2, remove_dispatched_at = $2, removed_by = $3,"
    " removed_by_source = $4 WHERE id = $1 AND status = 'active'"
)
_LEAVE_OUT = (
    "UPDATE batch_members SET status = 'removed', removed_at = $2, removed_by = $3, removed_by_source = TRUE"
    " WHERE id = $1 AND status = 'active'"
)


def by_ids(ids: Iterable[int]) -> Script[dict[int, Member]]:
    rows = yield Fetch(_BY_IDS, [sorted(ids)])
    return {member.id: member for member in (Member(*row) for row in rows)}


def every(batch_id: int) -> Script[list[Member]]:
    return [Member(*row) for row in (yield Fetch(_OF_BATCH, [batch_id]))]


def after(batch_id: int, last_id: int, limit: int) -> Script[list[Member]]:
    return [Member(*row) for row in (yield Fetch(_AFTER, (batch_id, last_id, limit)))]


def active_after(batch_id: int, last_id: int, limit: int) -> Script[list[Member]]:
    return [Member(*row) for row in (yield Fetch(ACTIVE_AFTER, (batch_id, last_id, limit)))]


def active_by_key(batch_id: int, keys: Sequence[str]) -> Script[list[Member]]:
    return [Member(*row) for row in (yield Fetch(ACTIVE_BY_KEY, (batch_id, list(keys))))]


def failed(batch_id: int) -> Script[list[Member]]:
    return [Member(*row) for row in (yield Fetch(_FAILED, [batch_id]))]


def active_ids(batch_id: int) -> Script[list[int]]:
    return [row[0] for row in (yield Fetch(_ACTIVE_IDS, [batch_id]))]


def count_active(batch_id: int) -> Script[int]:
    count: int = (yield Fetch(_COUNT_ACTIVE, [batch_id]))[0][0]
    return count


def wanted(batch_id: int, status: str, key: str | None, limit: int, after_id: int | None) -> Fetch:
    """`status` is `active`, `removed`, `failed`, `held` or `all`."""
    conditions = Conditions()
    conditions.add("batch_id = ?", batch_id)
    if status != "all":
        conditions.add("status = ?", "removed" if status == "removed" else "active")
    if status == "failed":
        conditions.add("failed_at IS NOT NULL")
    if status == "held":
        conditions.add("move_held_at IS NOT NULL")
    conditions.add_given("member_key = ?", key)
    conditions.add_given("id > ?", after_id)
    return conditions.fetch(MEMBER, "batch_members", "id", limit)


def listed(
    batch_id: int, status: str, key: str | None, limit: int, after_id: int | None
) -> Script[tuple[list[Member], int | None]]:
    """A page, in joining order, and the id from which the next page continues."""
    rows, next_id = yield from page(wanted(batch_id, status, key, limit + 1, after_id), limit)
    return [Member(*row) for row in rows], next_id


def counts(batch_ids: Sequence[int]) -> Script[dict[int, tuple[int, int, int]]]:
    """For each batch with members: how many there are, how many are active, and how many of those have failed."""
    found = []
    for statement in (_COUNTS_ALL, _COUNTS_ACTIVE, _COUNTS_FAILED):
        found.append({row[0]: row[1] for row in (yield Fetch(statement, [list(batch_ids)]))})
    every, active, failing = found
    return {batch_id: (count, active.get(batch_id, 0), failing.get(batch_id, 0)) for batch_id, count in every.items()}


# --- Members and their source ----------------------------------------------------------------------------------------


def of_open_batches(runbook_name: str) -> Script[list[tuple[str, int, int, bool, Instant | None]]]:
    """Key, member, batch, whether the source added it, and the date it is held or kept for, of open batches from the
    source."""
    rows = yield Fetch(OF_OPEN_BATCHES, [runbook_name])
    return [(row[0], row[1], row[2], bool(row[3]), row[4]) for row in rows]


def not_again(runbook_name: str, starts: Sequence[Instant] | None = None) -> Script[set[tuple[str, Instant]]]:
    """Key and batch start of members that are not batched again: they finished, or an operator removed them."""
    if starts is None:
        rows = yield Fetch(_NOT_AGAIN, [runbook_name])
    else:
        rows = yield Fetch(_NOT_AGAIN_AT, (runbook_name, list(starts)))
    return {(row[0], row[1]) for row in rows}


# --- Joining and leaving ---------------------------------------------------------------------------------------------


def add(batch_id: int, keys: Sequence[str], now: Instant, actor: str, by_source: bool) -> Script[list[tuple[int, str]]]:
    """Add members; returns id and key of those not yet announced to the orchestrator."""
    yield Run(_ADD, [(batch_id, key, now, actor, by_source) for key in keys], in_one_statement=True)
    return [(row[0], row[1]) for row in (yield Fetch(UNANNOUNCED, (batch_id, list(keys))))]


def set_add_dispatched(ids: Sequence[int], now: Instant) -> Script[None]:
    yield Run(_SET_ADD_DISPATCHED, [(member_id, now) for member_id in ids])


def set_add_handled(member_id: int, now: Instant) -> Script[None]:
    yield Run(_SET_ADD_HANDLED, [(member_id, now)])


def set_remove_handled(member_id: int, now: Instant) -> Script[None]:
    yield Run(_SET_REMOVE_HANDLED, [(member_id, now)])


def set_failed(ids: Iterable[int], failed_at: Instant | None) -> Script[None]:
    yield Run(_SET_FAILED, [(member_id, failed_at) for member_id in ids])


def remove(ids: Sequence[int], now: Instant, actor: str, by_source: bool) -> Script[None]:
    yield Run(_REMOVE, [(member_id, now, actor, by_source) for member_id in ids])


def leave_out(member_id: int, now: Instant, actor: str) -> Script[None]:
    """Remove a member without notifying the orchestrator, as the source would: it may join another batch."""
    yield Run(_LEAVE_OUT, [(member_id, now, actor)])


def without_earlier_steps(batch_id: int, phase_id: int) -> Script[list[int]]:
    """Members that joined but have no step of an earlier phase: the orchestrator may not have handled them yet."""
    return [row[0] for row in (yield Fetch(WITHOUT_EARLIER_STEPS, (batch_id, phase_id)))]


def add_unhandled(before: Instant, limit: int) -> Script[list[tuple[int, int]]]:
    """Batch and member, announced before this time, that the orchestrator has not handled."""
    return [(row[0], row[1]) for row in (yield Fetch(ADD_UNHANDLED, (before, limit)))]


def remove_unhandled(before: Instant, limit: int) -> Script[list[tuple[int, int]]]:
    return [(row[0], row[1]) for row in (yield Fetch(REMOVE_UNHANDLED, (before, limit)))]
