"""The table `batches`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from lucius.domain.runbook_tenants import tenant_of_runbook
from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.records import Batch
from lucius.runbooks.store.columns import columns_of, insert_of, values_of
from lucius.runbooks.store.conditions import UNDER_WAY
from lucius.runbooks.store.paging import Conditions

_NAMED = {
    "start": "b.batch_start_time", "version": "r.version", "data_table": "r.data_table_name", "runbook_name": "r.name",
    "is_named": "CASE WHEN b.runbook_name = '' THEN 0 ELSE 1 END",
    "has_columns": "CASE WHEN r.columns_json IS NULL THEN 0 ELSE 1 END",
    "change_number": "COALESCE((SELECT MAX(c.change_number) FROM batch_changes c WHERE c.batch_id = b.id), 0)",
    "is_counted": "COALESCE((SELECT c.counted FROM batch_changes c WHERE c.batch_id = b.id"
    " ORDER BY c.change_number DESC LIMIT 1), TRUE)",
    "is_cancelling": "b.cancelling",
}  # fmt: skip
BATCH = f"SELECT {columns_of(Batch, _NAMED, 'b')} FROM batches b JOIN runbooks r ON r.id = b.runbook_id"


class NewBatch(Struct, frozen=True, kw_only=True):
    runbook_id: int
    start: Instant
    detected_at: Instant
    runbook_name: str
    tenant_id: str | None
    origin: str
    advance: str
    created_by: str


LOCK = "SELECT id FROM batches WHERE id = ANY($1::bigint[]) ORDER BY id FOR UPDATE"
BY_IDS = f"{BATCH} WHERE b.id = ANY($1::bigint[]) ORDER BY b.id"
_ALL = f"{BATCH} ORDER BY b.id"
_NEW = insert_of("batches", NewBatch, {"start": "batch_start_time"}, {"status": "'detected'"})
_CREATE = f"{_NEW} RETURNING id"
_SET_STATUS = "UPDATE batches SET status = $3, error_message = $4, completed_at = $5 WHERE id = $1 AND status = $2"
_HOLD = "UPDATE batches SET held_at = $2, hold_reason = $3 WHERE id = $1"
_PAUSE = "UPDATE batches SET paused_at = $2, pause_reason = $3 WHERE id = $1"
_SET_DELAY = "UPDATE batches SET delay_millis = $2 WHERE id = $1"
_START_INIT = "UPDATE batches SET status = $3, init_dispatched_at = $4 WHERE id = $1 AND status = $2"
_FOLLOW_VERSION = "UPDATE batches SET runbook_id = $2 WHERE id = $1"
_SET_NAME = "UPDATE batches SET runbook_name = $2, tenant_id = $3 WHERE id = $1"
_SET_WAIT = "UPDATE batches SET wait_until = $2 WHERE id = $1"
_NEXT_WAIT = "SELECT MIN(wait_until) FROM batches WHERE wait_until IS NOT NULL"
_SET_CANCELLED = "UPDATE batches SET cancelled_at = $2, cancelling = TRUE WHERE id = $1"
_END_CANCELLING = "UPDATE batches SET cancelling = FALSE WHERE id = $1"
CANCELLING = "SELECT id FROM batches WHERE cancelling = TRUE ORDER BY id"
OPEN_FROM_SOURCE = (
    "SELECT id, batch_start_time FROM batches WHERE runbook_name = $1 AND completed_at IS NULL AND origin = 'source'"
)
NOT_STARTED = (
    "SELECT id FROM batches WHERE runbook_name = $1 AND completed_at IS NULL AND status = 'detected'"
    " AND origin = 'source' ORDER BY id"
)
_INCOMPLETE = (
    "SELECT id FROM batches WHERE completed_at IS NULL AND status = 'detected' AND origin = 'manual'"
    " AND detected_at <= $1 ORDER BY id LIMIT 100"
)
BEHIND = (
    "SELECT b.id FROM batches b WHERE b.runbook_name = $1 AND b.completed_at IS NULL AND b.runbook_id <> $2"
    " ORDER BY b.id LIMIT $3"
)
NEAR_DEADLINE = (
    "SELECT b.id, b.batch_start_time FROM batches b WHERE b.runbook_name = $1 AND b.completed_at IS NULL"
    " AND b.batch_start_time <= $2 AND NOT EXISTS (SELECT 1 FROM notification_causes c"
    " WHERE c.cause_key = 'deadline:batch:' || b.id || ':' || b.batch_start_time) ORDER BY b.id LIMIT $3"
)
INIT_NOT_BEGUN = (
    "SELECT b.id FROM batches b WHERE b.completed_at IS NULL AND b.status = 'init_dispatched'"
    " AND b.init_dispatched_at <= $1 AND NOT EXISTS (SELECT 1 FROM init_executions e WHERE e.batch_id = b.id"
    f" AND {UNDER_WAY}) ORDER BY b.id LIMIT $2"
)


def lock(batch_ids: Sequence[int]) -> Script[dict[int, Batch]]:
    """Lock these batches for this transaction, always in the order of their ids."""
    wanted = sorted(set(batch_ids))
    yield Fetch(LOCK, [wanted])
    return (yield from by_ids(wanted))


def by_ids(batch_ids: Sequence[int]) -> Script[dict[int, Batch]]:
    rows = yield Fetch(BY_IDS, [list(batch_ids)])
    return {batch.id: batch for batch in (Batch(*row) for row in rows)}


def near_deadline(runbook: str, started_by: Instant, limit: int) -> Script[list[tuple[int, str]]]:
    """Open batches that started by then and nobody was warned of, and the mark that says that somebody was."""
    rows = yield Fetch(NEAR_DEADLINE, (runbook, started_by, limit))
    return [(row[0], f"deadline:batch:{row[0]}:{row[1]}") for row in rows]


def every() -> Script[list[Batch]]:
    return [Batch(*row) for row in (yield Fetch(_ALL))]


def listed(
    runbook: str | None, status: str | None, limit: int, before: int | None, tenants: Sequence[str] | None = None
) -> Script[tuple[list[Batch], int | None]]:
    """A page, newest first, and the id from which the next page continues. With several tenants, a page of each is read
    and the newest of them all are taken: one index serves each."""
    found: list[Batch] = []
    for tenant_id in (None,) if tenants is None else tenants:
        found += yield from _listed(runbook, status, limit + 1, before, tenant_id)
    found = sorted(found, key=lambda batch: -batch.id)
    return found[:limit], found[limit - 1].id if len(found) > limit else None


def _listed(
    runbook: str | None, status: str | None, limit: int, before: int | None, tenant_id: str | None
) -> Script[list[Batch]]:
    conditions = Conditions()
    conditions.add_given("b.tenant_id = ?", tenant_id)
    conditions.add_given("b.runbook_name = ?", runbook)
    conditions.add_given("b.status = ?", status)
    conditions.add_given("b.id < ?", before)
    return [Batch(*row) for row in (yield conditions.fetch(BATCH, "batches b", "b.id DESC", limit))]


# --- Writing ---------------------------------------------------------------------------------------------------------


def create(batch: NewBatch) -> Script[int]:
    batch_id: int = (yield Fetch(_CREATE, values_of(batch)))[0][0]
    return batch_id


def set_status(
    batch: Batch, status: str, reason: str | None = None, completed_at: Instant | None = None
) -> Script[None]:
    """Move a locked batch, and its record with it."""
    yield Run(_SET_STATUS, [(batch.id, batch.status, status, reason, completed_at)])
    batch.status, batch.error_message, batch.completed_at = status, reason, completed_at


def set_wait(batch: Batch, until_at: Instant | None) -> Script[None]:
    """Until when its ready steps wait; None: they do not."""
    yield Run(_SET_WAIT, [(batch.id, until_at)])
    batch.wait_until = until_at


def next_wait() -> Script[Instant | None]:
    """When the first batch with steps that wait may send them."""
    moment: Instant | None = (yield Fetch(_NEXT_WAIT))[0][0]
    return moment


def start_init(batch: Batch, status: str, now: Instant) -> Script[None]:
    yield Run(_START_INIT, [(batch.id, batch.status, status, now)])
    batch.status = status


def hold(batch: Batch, held_at: Instant | None, reason: str | None) -> Script[None]:
    """Hold a batch, or with None release it."""
    yield Run(_HOLD, [(batch.id, held_at, reason)])
    batch.held_at, batch.hold_reason = held_at, reason


def pause(batch: Batch, paused_at: Instant | None, reason: str | None) -> Script[None]:
    """Pause a batch, or with None let it go on."""
    yield Run(_PAUSE, [(batch.id, paused_at, reason)])
    batch.paused_at, batch.pause_reason = paused_at, reason


def set_delay(batch: Batch, delay_millis: int) -> Script[None]:
    yield Run(_SET_DELAY, [(batch.id, delay_millis)])
    batch.delay_millis = delay_millis


def set_cancelled(batch: Batch, now: Instant) -> Script[None]:
    """An operator has cancelled it; it cannot be reopened, and its steps are still to be cancelled."""
    yield Run(_SET_CANCELLED, [(batch.id, now)])
    batch.cancelled_at, batch.is_cancelling = now, True


def end_cancelling(batch: Batch) -> Script[None]:
    yield Run(_END_CANCELLING, [(batch.id,)])
    batch.is_cancelling = False


def set_name(batch: Batch) -> Script[None]:
    """Write the name of its runbook, by which batches are found, where another scheduler left it out."""
    yield Run(_SET_NAME, [(batch.id, batch.runbook_name, tenant_of_runbook(batch.runbook_name))])
    batch.is_named = True


def follow_version(batch: Batch, runbook_id: int) -> Script[None]:
    yield Run(_FOLLOW_VERSION, [(batch.id, runbook_id)])


# --- Finding ---------------------------------------------------------------------------------------------------------


def open_from_source(runbook_name: str) -> Script[dict[int, Instant]]:
    """Start of each open batch that came from the source."""
    return {row[0]: row[1] for row in (yield Fetch(OPEN_FROM_SOURCE, [runbook_name]))}


def not_started(runbook_name: str) -> Script[list[int]]:
    return [row[0] for row in (yield Fetch(NOT_STARTED, [runbook_name]))]


def incomplete(before: Instant) -> Script[list[int]]:
    """Manual batches that were detected before this time and not started."""
    return [row[0] for row in (yield Fetch(_INCOMPLETE, [before]))]


def behind(runbook_name: str, runbook_id: int, limit: int) -> Script[list[int]]:
    """Open batches on another version."""
    return [row[0] for row in (yield Fetch(BEHIND, (runbook_name, runbook_id, limit)))]


def cancelling() -> Script[list[int]]:
    """Cancelled batches whose steps are not all cancelled yet."""
    return [row[0] for row in (yield Fetch(CANCELLING))]


def init_not_begun(before: Instant, limit: int) -> Script[list[int]]:
    """Batches whose init was sent before this time and has no step that began."""
    return [row[0] for row in (yield Fetch(INIT_NOT_BEGUN, (before, limit)))]
