"""The tables of a ledger, and the blobs that hold what is too large for a row.

A text of more than 64 KiB goes to a blob, and the row refers to it (a claim check); so do smaller ones of a transaction
that would be too large. The name of the blob is that of the
layout, because both may be in one account with copies of the same jobs, of the job and of its content; so writing it
twice does nothing, and everything of a job is deleted by the job's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeVar

from msgspec.structs import replace

from lucius.azure.blob import BlobAccount, BlobConflict, BlobContainerNotFound, BlobNotFound
from lucius.azure.keys import part, prefix_end
from lucius.azure.tables import (
    TEXT_CHARS_MAX,
    TRANSACTION_BYTES_MAX,
    Delete,
    Insert,
    Put,
    Row,
    Table,
    TableAccount,
    TableNotFound,
    Write,
)
from lucius.ledgers.tables.hints import newest_first
from lucius.ledgers.tables.layouts import SHARDS, JobRef, Layout, Place, shard_of
from lucius.ledgers.tables.rows import BLOB, VOID, CoreRows

REQUESTS_AT_ONCE = 24
TENANTS_REMEMBERED_MAX = 20_000
TEXT_BYTES_MAX = 64 * 1024 * 1024
BLOBS_OF_JOB_MAX = 5_000
BYTES_OF_CHAR_MAX = 6
"""In a request: JSON within ASCII."""
SHORT_CHARS_MAX = 3_500
"""Of a text that is never in a blob: two in each of a hundred rows are not too much, and lists of hints are shorter."""
WRITES_MAX = 95
OPERATORS = "operators"

T = TypeVar("T")
S = TypeVar("S")


class Store:
    def __init__(self, tables: TableAccount, blobs: BlobAccount, layout: Layout, prefix: str) -> None:
        self.account = tables
        self.blobs = blobs
        self.layout = layout
        self.prefix = prefix
        self.container = f"{prefix}-ledger"
        self._tenants: dict[str, str] = {}

    def table(self, place: Place) -> Table:
        return self.account.table(self.prefix + place.table)

    async def create(self) -> list[str]:
        """Create what is missing of tables and container; returns the names of new tables."""
        created = [name for name in self.table_names() if await self.account.create_table(name)]
        await self.blobs.create_container(self.container)
        return created

    def table_names(self) -> list[str]:
        return [self.prefix + name for name in (*self.layout.tables, OPERATORS)]

    @property
    def operators(self) -> Table:
        """The table of what is beside the ledger."""
        return self.account.table(self.prefix + OPERATORS)

    # --- Many requests -----------------------------------------------------------------------------------------------

    async def each(self, call: Callable[[S], Awaitable[T]], items: Iterable[S]) -> list[T]:
        """The answers in order; if a call fails, the first failure, once all calls have ended."""

        at_once = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def one(item: S) -> T:
            async with at_once:
                return await call(item)

        items = list(items)
        if len(items) == 1:
            return [await call(items[0])]
        answers = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
        found: list[T] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found

    # --- Rows --------------------------------------------------------------------------------------------------------

    async def write(self, place: Place, writes: Sequence[Write], job_id: str = "") -> dict[str, str]:
        """One transaction; `job_id`: whose blobs large texts become."""
        chars = sum(len(text) for write in writes for text in _texts(write).values())
        # Of a transaction that may be too large for Azure, smaller texts too are in blobs.
        longest = TEXT_CHARS_MAX if chars <= TRANSACTION_BYTES_MAX // BYTES_OF_CHAR_MAX else SHORT_CHARS_MAX
        packed = [
            write if isinstance(write, Delete) else write._replace(values=await self._pack(job_id, write, longest))
            for write in writes
        ]
        return await self.table(place).write(place.partition, packed)

    async def read_core(self, ref: JobRef) -> CoreRows | None:
        """One request, and one for each blob."""
        core = await self.read_packed_core(ref)
        if core is None:
            return None
        return replace(core, by_name={name: await self.unpack(values) for name, values in core.by_name.items()})

    async def read_packed_core(self, ref: JobRef) -> CoreRows | None:
        """One request. What is in blobs stays there."""
        place, own_key = self.layout.core(ref), self.layout.core_key(ref)
        found = await self.table(place).rows(place.partition, own_key, prefix_end(own_key), limit=1_000)
        named = {row.key.removeprefix(own_key).lstrip(":"): row for row in found}
        own = named.get("")
        if own is None or own.values.get("status") == VOID:
            return None
        return CoreRows(job_id=ref.job_id, etag=own.etag, by_name={name: row.values for name, row in named.items()})

    async def read_own(self, ref: JobRef, columns: Sequence[str]) -> Row | None:
        """The job's own row; None also for one that only keeps a job from being created."""
        place = self.layout.core(ref)
        row = await self.table(place).get(place.partition, self.layout.core_key(ref), [*columns, "status"])
        return None if row is None or row.values.get("status") == VOID else row

    async def refs(self, job_ids: Iterable[str]) -> list[JobRef]:
        """Those of these jobs that the index knows, where the layout needs their tenant; else all."""
        if not self.layout.needs_tenant:
            return [JobRef(job_id, "") for job_id in job_ids]
        found = await self.each(self._ref, job_ids)
        return [ref for ref in found if ref is not None]

    def remember(self, ref: JobRef) -> None:
        if len(self._tenants) >= TENANTS_REMEMBERED_MAX:
            self._tenants.clear()
        self._tenants[ref.job_id] = ref.tenant_id

    async def _ref(self, job_id: str) -> JobRef | None:
        tenant_id = self._tenants.get(job_id)
        if tenant_id is None:
            place = self.layout.index(shard_of(job_id))
            row = await self.table(place).get(place.partition, f"JOB:{newest_first(job_id)}", ["tenant_id"])
            if row is None:
                return None
            tenant_id = row.values["tenant_id"]
            self.remember(JobRef(job_id, tenant_id))
        return JobRef(job_id, tenant_id)

    # --- The index ---------------------------------------------------------------------------------------------------

    async def write_index(self, puts: Mapping[int, list[Put]], deletes: Mapping[int, list[str]]) -> None:
        """Hints by shard: as few transactions as hold them."""
        groups: list[tuple[int, list[Write]]] = []
        for shard in sorted({*puts, *deletes}):
            unique: dict[str, Write] = {one: Delete(one) for one in deletes.get(shard, ())}
            unique |= {one.key: one for one in puts.get(shard, ())}
            writes = list(unique.values())
            groups += [(shard, writes[first : first + WRITES_MAX]) for first in range(0, len(writes), WRITES_MAX)]
        await self.each(self._write_hints, groups)

    async def _write_hints(self, group: tuple[int, list[Write]]) -> None:
        shard, writes = group
        place = self.layout.index(shard)
        try:
            await self.table(place).write(place.partition, writes)
        except TableNotFound:
            # Somebody else has deleted one of those that are to be deleted.
            kept = [write for write in writes if not isinstance(write, Delete)]
            if kept:
                await self.table(place).write(place.partition, kept)
            for write in writes:
                if isinstance(write, Delete):
                    await self.table(place).write(place.partition, [write])

    async def read_hints(
        self, prefix: str, first: str = "", end: str | None = None, *, limit: int, shards: Sequence[int] = range(SHARDS)
    ) -> list[Row]:
        """Up to `limit` hints of each shard, with keys from `first` up to `end` within the prefix; sorted by key."""
        last = prefix_end(prefix) if end is None else end

        async def of_shard(shard: int) -> list[Row]:
            place = self.layout.index(shard)
            return await self.table(place).rows(place.partition, first or f"{prefix}:", last, limit=limit)

        found = await self.each(of_shard, shards)
        return sorted((row for rows in found for row in rows), key=lambda row: row.key)

    # --- Large texts -------------------------------------------------------------------------------------------------

    async def _pack(self, job_id: str, write: Insert | Put, longest: int) -> Mapping[str, Any]:
        large = {name: text for name, text in _texts(write).items() if _is_longer(text, longest)}
        if not large:
            return write.values
        packed = dict(write.values)
        for name, text in large.items():
            content = text.encode()
            blob = self.blob_prefix(job_id) + sha256(content).hexdigest()
            with suppress(BlobConflict):  # The same content, written before.
                await self.blobs.write(self.container, blob, content, overwrite=False)
            packed[name] = None
            packed[name + BLOB] = blob
        return packed

    async def unpack(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """A column whose blob is gone stays as it is."""
        named = [name for name in values if name.endswith(BLOB)]
        if not named:
            return values
        unpacked = dict(values)
        for name in named:
            try:
                blob = await self.blobs.read(self.container, values[name], TEXT_BYTES_MAX)
            except BlobContainerNotFound:
                raise
            except BlobNotFound:
                continue
            del unpacked[name]
            unpacked[name.removesuffix(BLOB)] = blob.content.decode()
        return unpacked

    def blob_prefix(self, job_id: str) -> str:
        """What the names of a job's blobs begin with."""
        return f"{self.layout.name}/{part(job_id)}/"

    async def delete_blobs(self, job_id: str) -> None:
        for name in await self.blobs.names(self.container, self.blob_prefix(job_id), BLOBS_OF_JOB_MAX):
            await self.blobs.delete(self.container, name)


def _texts(write: Write) -> dict[str, str]:
    if isinstance(write, Delete):
        return {}
    return {name: text for name, text in write.values.items() if isinstance(text, str)}


def _is_longer(text: str, chars_max: int) -> bool:
    """In UTF-16, as Azure counts."""
    if len(text) <= chars_max // 2:
        return False
    return len(text.encode("utf-16-le")) // 2 > chars_max
