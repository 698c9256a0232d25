"""Bulk operations on Azure Tables.

Whoever changes an operation writes its row under the ETag that was read, together with the rows of the jobs: counts and
outcomes change together. A call with more jobs than a transaction can hold is several transactions, each of which
leaves counts that are exact.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from lucius.azure.keys import decoded, instant, key, part, prefix_end
from lucius.azure.tables import Delete, Insert, Put, Table, TableConflict, TableNotFound, Write
from lucius.domain.bulk_operation import BulkOperation, Counts, ItemStatus, settled
from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.ledgers.tables import bulk_rows as rows
from lucius.ledgers.tables.audit import entry_id, entry_writes
from lucius.ledgers.tables.bulk_rows import Kept
from lucius.ledgers.tables.operators_table import OPERATIONS, TRIES_MAX, crowded_out, is_missing_table, unavailable
from lucius.ports.audit import creation_of, steering_events, steering_of
from lucius.ports.bulk_operations import BulkItem, BulkLeaseLost

LIST_SLICE = 100
ITEM_ROWS = 3
"""Rows that the change of one job writes."""
ITEMS_PER_WRITE = (100 - 8) // ITEM_ROWS
"""A transaction has at most a hundred rows; some are of the operation itself."""
ITEMS_MAX = 200_000
"""More than the jobs of any operation."""
DELETES_PER_WRITE = 100

T = TypeVar("T")


class TablesBulkOperations:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def create(self, operation: BulkOperation, key_: str | None, open_max: int) -> BulkOperation | None:
        claim_key = key_ or operation.operation_id
        with unavailable():
            claimed = await self._claimed(claim_key)
            if claimed is not None:
                return claimed
            own = rows.open_prefix(operation.by)
            if len(await self._table.rows(OPERATIONS, own, prefix_end(own), limit=open_max)) >= open_max:
                return None
            kept = Kept(operation=operation, claim_key=claim_key)
            row = rows.operation_write(kept)
            writes: list[Write] = [
                Insert(rows.claim_row_key(claim_key), {"operation_id": operation.operation_id}),
                Insert(row.key, row.values),
                Insert(key(own, part(operation.operation_id)), {}),
                *([Insert(rows.active_key(operation.operation_id), {})] if operation.is_active else []),
                *entry_writes(creation_of(operation, entry_id(operation.created_at, operation.operation_id))),
            ]
            try:
                await self._table.write(OPERATIONS, writes)
            except TableConflict:
                claimed = await self._claimed(claim_key)  # Another process was faster.
                if claimed is None:
                    raise
                return claimed
        return operation

    async def get(self, operation_id: str) -> BulkOperation | None:
        with unavailable():
            kept = await self._get(operation_id)
        return None if kept is None else kept.operation

    async def newest(
        self, limit: int, before_id: str | None, is_wanted: Callable[[BulkOperation], bool]
    ) -> list[BulkOperation]:
        begin = f"{rows.OPERATION}:" if before_id is None else f"{rows.operation_key(before_id)}~"
        found: list[BulkOperation] = []
        continuation: str | None = None
        with unavailable():
            while len(found) < limit:
                page = await self._table.page(
                    OPERATIONS, begin, prefix_end(rows.OPERATION), limit=LIST_SLICE, continuation=continuation
                )
                operations = [rows.read_kept(row).operation for row in page.rows]
                found += [operation for operation in operations if is_wanted(operation)]
                continuation = page.next
                if continuation is None:
                    break
        return found[:limit]

    async def items(
        self, operation_id: str, limit: int, after_id: str | None, status: ItemStatus | None = None
    ) -> list[BulkItem]:
        with unavailable():
            if status is None:
                prefix = rows.item_prefix(operation_id)
                found = await self._table.rows(OPERATIONS, _after(prefix, after_id), prefix_end(prefix), limit=limit)
                return [rows.read_item(row) for row in found]
            prefix = key(rows.state_prefix(operation_id, status), instant(0))
            found = await self._table.rows(OPERATIONS, _after(prefix, after_id), prefix_end(prefix), limit=limit)
            if status in rows.UNDECIDED:
                # Those that wait sort by when they are due.
                end = prefix_end(rows.state_prefix(operation_id, status))
                found += await self._table.rows(OPERATIONS, prefix_end(prefix), end, limit=ITEMS_MAX)
        items = [rows.read_item(row) for row in found]
        wanted = [item for item in items if after_id is None or item.job_id > after_id]
        return sorted(wanted, key=lambda item: item.job_id)[:limit]

    async def change(self, operation_id: str, decide: Callable[[BulkOperation], BulkOperation]) -> BulkOperation | None:
        async def act() -> BulkOperation | None:
            kept = await self._get(operation_id)
            if kept is None:
                return None
            changed = decide(kept.operation)
            await self._write(kept, changed, _audit_writes(kept.operation, changed))
            return changed

        return await self._until_alone(operation_id, act)

    async def take(self, holder: str, now: Instant, lease_seconds: float, limit: int) -> list[BulkOperation]:
        taken: list[BulkOperation] = []
        with unavailable():
            for kept in await self._active(limit):
                if not _may_lease(kept, holder, now, lease_seconds):
                    continue
                leased = replace(kept, lease_holder=holder, lease_until=after(now, lease_seconds))
                try:
                    await self._table.write(OPERATIONS, [rows.operation_write(leased)])
                except TableConflict:
                    continue  # Somebody else was faster, or changes it.
                taken.append(kept.operation)
        return taken

    async def release(self, holder: str) -> None:
        with unavailable():
            for kept in await self._active(ITEMS_MAX):
                if kept.lease_holder == holder:
                    try:
                        await self._table.write(OPERATIONS, [rows.operation_write(replace(kept, lease_until=0))])
                    except TableConflict:
                        continue  # It ends by itself.

    async def select(
        self, operation_id: str, holder: str, items: Sequence[BulkItem], selected_to: str | None, now: Instant
    ) -> BulkOperation:
        known = await self._known(operation_id, [item.job_id for item in items])
        new = [item for item in items if item.job_id not in known]
        # `selected_to` is written with the last of them: if this process dies before, they are looked at again.
        for start in range(0, len(new), ITEMS_PER_WRITE):
            chunk = new[start : start + ITEMS_PER_WRITE]
            await self._until_alone(operation_id, partial(self._add, operation_id, holder, chunk, now))

        async def finish() -> BulkOperation:
            kept = await self._held(operation_id, holder)
            is_selected = kept.operation.is_selected or selected_to is None
            changed = replace(kept.operation, selected_to=selected_to, is_selected=is_selected, updated_at=now)
            changed = settled(changed, now)
            await self._write(kept, changed)
            return changed

        return await self._until_alone(operation_id, finish)

    async def due(self, operation_id: str, status: ItemStatus, now: Instant, limit: int) -> list[BulkItem]:
        prefix = rows.state_prefix(operation_id, status)
        with unavailable():
            found = await self._table.rows(OPERATIONS, f"{prefix}:", key(prefix, instant(now + 1)), limit=limit)
        return [rows.read_item(row) for row in found]

    async def record(
        self, operation_id: str, holder: str, changes: Sequence[tuple[BulkItem, BulkItem]], now: Instant
    ) -> BulkOperation:
        operation: BulkOperation | None = None
        for start in range(0, max(1, len(changes)), ITEMS_PER_WRITE):
            chunk = changes[start : start + ITEMS_PER_WRITE]
            operation = await self._record_as_read(operation_id, holder, chunk, now)
            if operation is None:
                act = partial(self._record_checked, operation_id, holder, chunk, now)
                operation = await self._until_alone(operation_id, act)
        assert operation is not None
        return operation

    async def prune(self, ended_before: Instant, limit: int) -> int:
        with unavailable():
            end = key(rows.ENDED, instant(ended_before))
            found = await self._table.rows(OPERATIONS, f"{rows.ENDED}:", end, limit=limit)
            for row in found:
                await self._delete(row.key)
        return len(found)

    # --- Within a call -----------------------------------------------------------------------------------------------

    async def _until_alone(self, operation_id: str, act: Callable[[], Awaitable[T]]) -> T:
        """Again, if somebody else has changed the operation in between."""
        with unavailable():
            for _ in range(TRIES_MAX):
                try:
                    return await act()
                except (TableConflict, TableNotFound) as error:
                    if is_missing_table(error):
                        raise
        raise crowded_out(f"operation {operation_id}")

    async def _get(self, operation_id: str) -> Kept | None:
        row = await self._table.get(OPERATIONS, rows.operation_key(operation_id))
        return None if row is None else rows.read_kept(row)

    async def _claimed(self, claim_key: str) -> BulkOperation | None:
        row = await self._table.get(OPERATIONS, rows.claim_row_key(claim_key))
        kept = None if row is None else await self._get(row.values["operation_id"])
        return None if kept is None else kept.operation

    async def _active(self, limit: int) -> list[Kept]:
        prefix = rows.ACTIVE
        found = await self._table.rows(OPERATIONS, f"{prefix}:", prefix_end(prefix), limit=limit)
        kept = [await self._get(decoded(row.key.partition(":")[2])) for row in found]
        return [one for one in kept if one is not None]

    async def _held(self, operation_id: str, holder: str) -> Kept:
        kept = await self._get(operation_id)
        if kept is None or kept.lease_holder != holder:
            raise BulkLeaseLost(f"another process carries on with operation {operation_id}")
        return kept

    async def _write(self, kept: Kept, changed: BulkOperation, more: Sequence[Write] = ()) -> None:
        own = rows.operation_write(replace(kept, operation=changed))
        await self._table.write(OPERATIONS, [own, *rows.index_writes(kept.operation, changed), *more])

    async def _known(self, operation_id: str, job_ids: Sequence[str]) -> set[str]:
        """Which of these jobs the operation has. They are neighbours: few others are between them."""
        if not job_ids:
            return set()
        first, last = rows.item_key(operation_id, min(job_ids)), rows.item_key(operation_id, max(job_ids))
        with unavailable():
            found = await self._table.rows(OPERATIONS, first, f"{last}~", limit=ITEMS_MAX, select=[])
        return {decoded(row.key.rpartition(":")[2]) for row in found}

    async def _add(self, operation_id: str, holder: str, items: Sequence[BulkItem], now: Instant) -> None:
        kept = await self._held(operation_id, holder)
        counts = replace(kept.operation.counts, pending=kept.operation.counts.pending + len(items))
        writes: list[Write] = []
        for item in items:
            values = rows.item_values(item)
            writes += [Insert(rows.item_key(operation_id, item.job_id), values)]
            writes += [Insert(rows.state_key(operation_id, item), values)]
        await self._write(kept, replace(kept.operation, counts=counts, updated_at=now), writes)

    async def _record_as_read(
        self, operation_id: str, holder: str, changes: Sequence[tuple[BulkItem, BulkItem]], now: Instant
    ) -> BulkOperation | None:
        """Without reading the jobs again: the rows that this deletes are there only if each is as in `before`. None if
        one is not."""
        if any(rows.state_key(operation_id, before) == rows.state_key(operation_id, item) for before, item in changes):
            return None
        with unavailable():
            kept = await self._held(operation_id, holder)
            counts, writes = kept.operation.counts, list[Write]()
            for before, item in changes:
                counts = counts.moved(before.status, item.status)
                writes += _item_writes(operation_id, before, item)
            try:
                return await self._write_counts(kept, counts, now, writes)
            except (TableConflict, TableNotFound) as error:
                if is_missing_table(error):
                    raise
                return None

    async def _record_checked(
        self, operation_id: str, holder: str, changes: Sequence[tuple[BulkItem, BulkItem]], now: Instant
    ) -> BulkOperation:
        kept = await self._held(operation_id, holder)
        counts, writes = kept.operation.counts, list[Write]()
        for before, item in changes:
            row = await self._table.get(OPERATIONS, rows.item_key(operation_id, before.job_id))
            current = None if row is None else rows.read_item(row)
            if current is not None and current.status is before.status:
                counts = counts.moved(before.status, item.status)
                writes += _item_writes(operation_id, current, item)
        return await self._write_counts(kept, counts, now, writes)

    async def _write_counts(self, kept: Kept, counts: Counts, now: Instant, writes: Sequence[Write]) -> BulkOperation:
        changed = settled(replace(kept.operation, counts=counts, updated_at=now), now)
        await self._write(kept, changed, writes)
        return changed

    async def _delete(self, ended_key: str) -> None:
        """Its own rows last: what is left after a crash, the next call deletes."""
        operation_id = decoded(ended_key.rpartition(":")[2])
        for prefix in (rows.item_prefix(operation_id), rows.state_prefix(operation_id)):
            while found := await self._table.rows(
                OPERATIONS, f"{prefix}:", prefix_end(prefix), limit=DELETES_PER_WRITE, select=[]
            ):
                await self._table.write(OPERATIONS, [Delete(row.key) for row in found])
        kept = await self._get(operation_id)
        keys = [ended_key]
        if kept is not None:
            keys += [rows.operation_key(operation_id), rows.claim_row_key(kept.claim_key)]
        await self._table.write(OPERATIONS, [Delete(one) for one in keys])


def _item_writes(operation_id: str, before: BulkItem, item: BulkItem) -> list[Write]:
    values = rows.item_values(item)
    was, new = rows.state_key(operation_id, before), rows.state_key(operation_id, item)
    writes: list[Write] = [Put(rows.item_key(operation_id, item.job_id), values), Put(new, values)]
    return writes if was == new else [*writes, Delete(was)]


def _audit_writes(before: BulkOperation, changed: BulkOperation) -> list[Write]:
    events = steering_events(before, changed)
    ids = [entry_id(event.at, changed.operation_id, event.type, event.by or "") for event in events]
    entries = [steering_of(changed, event, id_) for event, id_ in zip(events, ids, strict=True)]
    return [write for entry in entries for write in entry_writes(entry)]


def _after(prefix: str, job_id: str | None) -> str:
    return f"{prefix}:" if job_id is None else f"{prefix}:{part(job_id)}~"


def _may_lease(kept: Kept, holder: str, now: Instant, lease_seconds: float) -> bool:
    """A lease beyond the maximum length is ignored: its holder's clock was ahead."""
    if kept.lease_holder in (None, holder) or kept.lease_until <= now:
        return True
    return kept.lease_until > after(now, lease_seconds + CLOCK_TOLERANCE_SECONDS)
