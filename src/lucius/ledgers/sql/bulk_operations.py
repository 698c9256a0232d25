"""Bulk operations in SQL. An operation is a document; its jobs are rows.

Whoever records outcomes locks the operation's row first, so that counts and outcomes change together. On a database of
one owner there is nobody to share with, and leases of processes that died are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from lucius.domain.bulk_operation import BulkOperation, ItemStatus, settled
from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.ledgers.sql import bulk_statements as statements
from lucius.ledgers.sql.audit import note_operation, note_steering
from lucius.ports.bulk_operations import BulkItem, BulkLeaseLost
from lucius.sql.database import Database, Fetch, Row, Run, Script

T = TypeVar("T")

LIST_SLICE = 100
"""Operations that are read at once while a list is filtered."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BulkOperation).decode


class SqlBulkOperations:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, operation: BulkOperation, key: str | None, open_max: int) -> BulkOperation | None:
        return await self._database.write(lambda: _create(operation, key, open_max))

    async def get(self, operation_id: str) -> BulkOperation | None:
        found = await self._fetch(statements.GET, operation_id)
        return _decode(found[0][0]) if found else None

    async def newest(
        self, limit: int, before_id: str | None, is_wanted: Callable[[BulkOperation], bool]
    ) -> list[BulkOperation]:
        found: list[BulkOperation] = []
        while len(found) < limit:
            args = (LIST_SLICE,) if before_id is None else (LIST_SLICE, before_id)
            page = await self._fetch(statements.NEWEST if before_id is None else statements.NEWEST_BEFORE, *args)
            found += [operation for row in page if is_wanted(operation := _decode(row[1]))]
            if len(page) < LIST_SLICE:
                break
            before_id = page[-1][0]
        return found[:limit]

    async def items(
        self, operation_id: str, limit: int, after_id: str | None, status: ItemStatus | None = None
    ) -> list[BulkItem]:
        if status is None:
            found = await self._fetch(statements.ITEMS, operation_id, limit, after_id or "")
        else:
            found = await self._fetch(statements.ITEMS_BY_STATUS, operation_id, limit, after_id or "", status.value)
        return [_read_item(row) for row in found]

    async def change(self, operation_id: str, decide: Callable[[BulkOperation], BulkOperation]) -> BulkOperation | None:
        def script() -> Script[BulkOperation | None]:
            found = yield Fetch(statements.LOCK, [operation_id])
            if not found:
                return None
            before = _decode(found[0][0])
            after = decide(before)
            yield _update(after)
            yield from note_steering(before, after)
            return after

        return await self._database.write(script)

    async def take(self, holder: str, now: Instant, lease_seconds: float, limit: int) -> list[BulkOperation]:
        """Looks before it locks: most of the time there is nothing to do."""
        if not any(
            self._may_lease(row, holder, now, lease_seconds) for row in await self._fetch(statements.ACTIVE, limit)
        ):
            return []

        def script() -> Script[list[BulkOperation]]:
            taken = []
            for operation_id, document, *lease in (yield Fetch(statements.LEASABLE, [limit])):
                if self._may_lease((operation_id, *lease), holder, now, lease_seconds):
                    taken.append(_decode(document))
            until = after(now, lease_seconds)
            if taken:
                yield Run(statements.LEASE, [(operation.operation_id, holder, until) for operation in taken])
            return taken

        return await self._database.write(script)

    def _may_lease(self, row: Row, holder: str, now: Instant, lease_seconds: float) -> bool:
        """A lease beyond the maximum length is ignored: its holder's clock was ahead."""
        _, held_by, until = row
        if not self._database.is_shared or held_by in (None, holder) or until <= now:
            return True
        return bool(until > after(now, lease_seconds + CLOCK_TOLERANCE_SECONDS))

    async def release(self, holder: str) -> None:
        def script() -> Script[None]:
            yield Run(statements.RELEASE, [(holder,)])

        await self._database.write(script)

    async def select(
        self, operation_id: str, holder: str, items: Sequence[BulkItem], selected_to: str | None, now: Instant
    ) -> BulkOperation:
        def script() -> Script[BulkOperation]:
            operation = yield from _held(operation_id, holder)
            ids = [item.job_id for item in items]
            known = {row[0] for row in (yield Fetch(statements.STATUSES, (operation_id, ids)))}
            new = [item for item in items if item.job_id not in known]
            if new:
                yield Run(
                    statements.INSERT_ITEM,
                    [(operation_id, item.job_id, item.tenant_id, item.status.value) for item in new],
                )
            counts = replace(operation.counts, pending=operation.counts.pending + len(new))
            is_selected = operation.is_selected or selected_to is None
            changed = replace(
                operation, counts=counts, selected_to=selected_to, is_selected=is_selected, updated_at=now
            )
            changed = settled(changed, now)
            yield _update(changed)
            return changed

        return await self._database.write(script)

    async def due(self, operation_id: str, status: ItemStatus, now: Instant, limit: int) -> list[BulkItem]:
        return [_read_item(row) for row in await self._fetch(statements.DUE, operation_id, status.value, now, limit)]

    async def record(
        self, operation_id: str, holder: str, changes: Sequence[tuple[BulkItem, BulkItem]], now: Instant
    ) -> BulkOperation:
        def script() -> Script[BulkOperation]:
            operation = yield from _held(operation_id, holder)
            ids = [before.job_id for before, _ in changes]
            kept = {row[0]: row[1] for row in (yield Fetch(statements.STATUSES, (operation_id, ids)))}
            counts, rows = operation.counts, []
            for before, item in changes:
                if kept.get(before.job_id) == before.status:
                    counts = counts.moved(before.status, item.status)
                    rows.append(_item_row(operation_id, item))
            if rows:
                yield Run(statements.UPDATE_ITEM, rows)
            changed = settled(replace(operation, counts=counts, updated_at=now), now)
            yield _update(changed)
            return changed

        return await self._database.write(script)

    async def prune(self, ended_before: Instant, limit: int) -> int:
        def script() -> Script[int]:
            found = yield Fetch(statements.PRUNABLE, (ended_before, limit))
            for statement in statements.PRUNE:
                yield Run(statement, [(row[0],) for row in found])
            return len(found)

        return await self._database.write(script)

    async def _fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        def script() -> Script[Sequence[Row]]:
            found = yield Fetch(sql, args)
            return found

        return await self._database.read(script)


def _create(operation: BulkOperation, key: str | None, open_max: int) -> Script[BulkOperation | None]:
    claim_key = key or operation.operation_id
    found = yield Fetch(statements.BY_CLAIM, [claim_key])
    if found:
        return _decode(found[0][0])
    counted = yield Fetch(statements.COUNT_OPEN, [operation.by])
    if counted[0][0] >= open_max:
        return None
    row = (
        operation.operation_id, claim_key, operation.by, operation.status.value, int(operation.is_active),
        operation.ended_at, _encode(operation).decode(),
    )  # fmt: skip
    yield Run(statements.INSERT, [row])
    # Another process may have been faster.
    kept = _decode((yield Fetch(statements.BY_CLAIM, [claim_key]))[0][0])
    if kept.operation_id == operation.operation_id:
        yield note_operation(operation)
    return kept


def _held(operation_id: str, holder: str) -> Script[BulkOperation]:
    found = yield Fetch(statements.LOCK, [operation_id])
    if not found or found[0][1] != holder:
        raise BulkLeaseLost(f"another process carries on with operation {operation_id}")
    return _decode(found[0][0])


def _update(operation: BulkOperation) -> Run:
    row = (
        operation.operation_id, operation.status.value, int(operation.is_active), operation.ended_at,
        _encode(operation).decode(),
    )  # fmt: skip
    return Run(statements.UPDATE, [row])


def _read_item(row: Row) -> BulkItem:
    fields = dict(zip(BulkItem.__struct_fields__, row, strict=True))
    return BulkItem(**{**fields, "status": ItemStatus(fields["status"])})


def _item_row(operation_id: str, item: BulkItem) -> tuple[Any, ...]:
    return (
        operation_id, item.job_id, item.status.value, item.new_job_id, item.code, item.detail, item.acted_at,
        item.ended_at, item.next_at,
    )  # fmt: skip
