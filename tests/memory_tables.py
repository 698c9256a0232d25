"""Tables in memory, for tests with more rows than Azurite can bear: it looks through a whole partition at each write.

They take what `lucius.azure.tables` takes and answer as Azurite does: see `tests/azure/test_memory_tables.py`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import count
from typing import Any

from lucius.azure.tables import (
    OP_ID,
    PAGE_ROWS_MAX,
    Delete,
    Insert,
    Page,
    Row,
    Table,
    TableConflict,
    TableNotFound,
    Write,
)

_numbers = count(1)


class _Partition:
    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.keys: list[str] = []


class MemoryTable(Table):
    def __init__(self, name: str) -> None:
        super().__init__(f"table {name} in memory", None, asyncio.Semaphore())
        self._partitions: dict[str, _Partition] = {}

    async def get(self, partition: str, key: str, select: Sequence[str] | None = None) -> Row | None:
        row = self._partition(partition).rows.get(key)
        return None if row is None else _selected(row, select)

    async def page(
        self,
        partition: str,
        first: str = "",
        end: str | None = None,
        *,
        limit: int = PAGE_ROWS_MAX,
        select: Sequence[str] | None = None,
        continuation: str | None = None,
    ) -> Page:
        kept = self._partition(partition)
        start = bisect_left(kept.keys, first if continuation is None else continuation)
        stop = len(kept.keys) if end is None else max(start, bisect_left(kept.keys, end))
        keys = kept.keys[start : min(stop, start + min(limit, PAGE_ROWS_MAX))]
        following = start + len(keys)
        return Page(
            [_selected(kept.rows[key], select) for key in keys], None if following >= stop else kept.keys[following]
        )

    async def write(self, partition: str, writes: Sequence[Write]) -> dict[str, str]:
        self._check(partition, writes)
        kept = self._partition(partition)
        for write in writes:
            self._refuse(kept.rows.get(write.key), write, len(writes) == 1)
        etags: dict[str, str] = {}
        for write in writes:
            etags[write.key] = self._apply(kept, partition, write)
        return etags

    def _refuse(self, row: Row | None, write: Write, is_alone: bool) -> None:
        if isinstance(write, Insert):
            if row is not None:
                raise TableConflict(f"{self.place}: EntityAlreadyExists (HTTP 409)")
            return
        if row is None:
            if (isinstance(write, Delete) and not (is_alone and write.etag is None)) or write.etag is not None:
                raise TableNotFound(f"{self.place}: ResourceNotFound (HTTP 404)")
        elif write.etag is not None and write.etag != row.etag:
            raise TableConflict(f"{self.place}: UpdateConditionNotSatisfied (HTTP 412)")

    def _apply(self, kept: _Partition, partition: str, write: Write) -> str:
        if isinstance(write, Delete):
            if kept.rows.pop(write.key, None) is not None:
                del kept.keys[bisect_left(kept.keys, write.key)]
            return ""
        if write.key not in kept.rows:
            insort(kept.keys, write.key)
        values = {name: value for name, value in write.values.items() if value is not None}
        etag = str(next(_numbers))
        kept.rows[write.key] = Row(partition, write.key, {OP_ID: etag, **values}, etag)
        return etag

    def _partition(self, name: str) -> _Partition:
        return self._partitions.setdefault(name, _Partition())


def _selected(row: Row, select: Sequence[str] | None) -> Row:
    if select is None:
        return row
    return row._replace(values={name: row.values[name] for name in select if name in row.values})


class MemoryAccount:
    """Instead of a `TableAccount`."""

    account = "memory"
    skew_seconds = 0.0

    def __init__(self) -> None:
        self.observers: list[Any] = []
        self._tables: dict[str, MemoryTable] = {}

    def table(self, name: str) -> MemoryTable:
        return self._tables.setdefault(name, MemoryTable(name))

    async def create_table(self, name: str) -> bool:
        is_new = name not in self._tables
        self.table(name)
        return is_new

    async def delete_table(self, name: str) -> None:
        del self._tables[name]

    async def table_names(self) -> set[str]:
        return set(self._tables)

    async def close(self) -> None:
        """It stays for the next ledger."""


class NoBlobs:
    """Instead of a `BlobAccount`, for jobs without large texts."""

    async def create_container(self, container: str) -> None:
        pass

    async def has_container(self, container: str) -> bool:
        return True

    async def names(self, container: str, prefix: str, limit: int) -> list[str]:
        return []

    async def close(self) -> None:
        pass
