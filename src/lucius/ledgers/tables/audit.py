"""What people did, on Azure Tables: an entry has a row for each way in which it is looked for, in one transaction.

Acts on bulk operations are written with the operation (`bulk_operations`). Acts on jobs and dead letters are written
right after the job, which is in another partition, under an id that follows from the act: writing one again changes
nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from lucius.azure.keys import key, part
from lucius.azure.tables import Delete, Put, Table, TableFailed, Write
from lucius.domain.effects import Event
from lucius.domain.errors import CallerError
from lucius.domain.job import Job
from lucius.domain.time import Instant
from lucius.ledgers.tables.operators_table import OPERATIONS, descending, document_columns, read_document
from lucius.ports.audit import (
    AuditEntry,
    AuditFilter,
    dismissal_of,
    entry_of,
    first_entry_id_at,
    is_act,
    matches,
)
from lucius.ports.ledger import Closing, LedgerUnavailable

READ_ROWS_MAX = 10_000
"""Entries that one call looks at, if it asks for what no row is made for."""
PAGE_ROWS = 500
TRANSACTION_ENTRIES = 16
"""Each has up to six rows, and a transaction at most a hundred."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditEntry).decode


class TablesAudit:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def note(self, entries: Sequence[AuditEntry]) -> None:
        """Raises `LedgerUnavailable`."""
        try:
            for start in range(0, len(entries), TRANSACTION_ENTRIES):
                chunk = entries[start : start + TRANSACTION_ENTRIES]
                await self._table.write(OPERATIONS, [write for entry in chunk for write in entry_writes(entry)])
        except TableFailed as error:
            raise LedgerUnavailable(str(error)) from error

    async def audit(self, filter_: AuditFilter, limit: int, before_id: str | None) -> Sequence[AuditEntry]:
        try:
            found = [
                entry
                for prefix in _prefixes(filter_)
                for entry in await self._newest(prefix, filter_, limit, before_id)
            ]
        except TableFailed as error:
            raise LedgerUnavailable(str(error)) from error
        return sorted(found, key=lambda entry: entry.entry_id, reverse=True)[:limit]

    async def prune(self, before: Instant, limit: int) -> int:
        """Delete up to `limit` entries from before this time; returns the number."""
        oldest = f"{_prefix('all')}:{descending(first_entry_id_at(before))}~"
        try:
            found = await self._table.rows(OPERATIONS, oldest, f"{_prefix('all')};", limit=limit)
            for row in found:
                entry = _decode(read_document(row.values))
                await self._table.write(OPERATIONS, [Delete(write.key) for write in entry_writes(entry)])
        except TableFailed as error:
            raise LedgerUnavailable(str(error)) from error
        return len(found)

    async def _newest(self, prefix: str, filter_: AuditFilter, limit: int, before_id: str | None) -> list[AuditEntry]:
        found: list[AuditEntry] = []
        async for entry in self._entries(prefix, *_range(filter_, before_id), min(limit, PAGE_ROWS)):
            if matches(entry, filter_):
                found.append(entry)
                if len(found) == limit:
                    break
        return found

    async def _entries(
        self, prefix: str, first_id: str | None, end_id: str | None, page_rows: int
    ) -> AsyncIterator[AuditEntry]:
        """Newest first, from before `end_id` down to `first_id`."""
        # The key of `end_id` itself sorts before all that are older.
        begin = f"{prefix}:" if end_id is None else f"{prefix}:{descending(part(end_id))}~"
        end = f"{prefix};" if first_id is None else f"{prefix}:{descending(first_id)}~"
        continuation: str | None = None
        looked_at = 0
        while looked_at < READ_ROWS_MAX:
            page = await self._table.page(OPERATIONS, begin, end, limit=page_rows, continuation=continuation)
            for row in page.rows:
                yield _decode(read_document(row.values))
            continuation = page.next
            if continuation is None:
                return
            looked_at += page_rows
            page_rows = PAGE_ROWS  # Few of them match.
        raise CallerError.of(
            "QUERY_TOO_SLOW",
            f"more than {READ_ROWS_MAX:,} entries were looked at: narrow the list with target, tenant_id, from and to",
        )


def entry_writes(entry: AuditEntry) -> list[Write]:
    """The rows of an entry, all in the partition of operations."""
    values = document_columns(_encode(entry))
    return [Put(f"{prefix}:{descending(entry.entry_id)}", values) for prefix in _prefixes_of(entry)]


def acts_of(job: Job, events: Sequence[Event]) -> list[AuditEntry]:
    """Those among the events of a job."""
    return [entry_of(job, event, entry_id(event.at, job.job_id, str(event.seq))) for event in events if is_act(event)]


def dismissal_entry(closing: Closing, tenant_id: str | None) -> AuditEntry:
    return dismissal_of(closing, tenant_id, entry_id(closing.at, closing.job_id, "dismiss"))


def entry_id(at: Instant, *names: str) -> str:
    """The same for the same act, and of the form of other entries' ids."""
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{first_entry_id_at(at)}-{digest[:8]}-{digest[8:16]}"


def _prefixes_of(entry: AuditEntry) -> Iterator[str]:
    yield _prefix("all")
    if entry.tenant_id is not None:
        yield _prefix("tenant", entry.tenant_id)
    yield _prefix("target", entry.target)
    yield _prefix("actor", entry.actor)
    yield _prefix("action", entry.action)
    yield _prefix("kind", entry.kind.value)


def _prefixes(filter_: AuditFilter) -> list[str]:
    """Where the entries of a filter are found with the fewest others."""
    if filter_.target is not None:
        return [_prefix("target", filter_.target)]
    if filter_.tenants is not None:
        return [_prefix("tenant", tenant_id) for tenant_id in dict.fromkeys(filter_.tenants)]
    if filter_.actor is not None:
        return [_prefix("actor", filter_.actor)]
    if filter_.action is not None:
        return [_prefix("action", filter_.action)]
    return [_prefix("all")] if filter_.kind is None else [_prefix("kind", filter_.kind.value)]


def _prefix(name: str, value: str = "") -> str:
    """Values may be longer than a key, so their hash stands for them."""
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return key("audit", name, digest) if value else key("audit", name)


def _range(filter_: AuditFilter, before_id: str | None) -> tuple[str | None, str | None]:
    """The smallest id, and the end, exclusive; None: there is none."""
    ends = [] if before_id is None else [before_id]
    if filter_.at_to is not None:
        ends.append(first_entry_id_at(filter_.at_to))
    first = None if filter_.at_from is None else first_entry_id_at(filter_.at_from)
    return first, min(ends) if ends else None
