"""Who has asked for work, on Azure Tables: a row for each instance, all in one partition, which is read whole; and how
often each failed, a row for each minute and instance.

There are as many rows as instances are remembered, a few thousand at most.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict, replace

from lucius.azure.keys import key
from lucius.azure.tables import Delete, Insert, Put, Row, Table, TableConflict, TableNotFound, Write
from lucius.domain.time import Instant
from lucius.ledgers.tables.operators_table import (
    TRIES_MAX,
    WORKER_FAILURES,
    WORKERS,
    crowded_out,
    is_missing_table,
    unavailable,
)
from lucius.ports.workers import Failures, Sighting, WorkerKind

ROWS_MAX = 20_000
TRANSACTION_ROWS = 100
MINUTE_DIGITS = 10
FAILURES_KEPT_MINUTES = 120


class TablesWorkers:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def write(self, sightings: Sequence[Sighting]) -> None:
        if not sightings:
            return
        with unavailable():
            for _ in range(TRIES_MAX):
                known = await self._read()
                writes = [write for one in sightings if (write := _write(one, known.get(_key(one)))) is not None]
                if await self._written(writes):
                    return
        raise crowded_out("workers")

    async def newest(self, limit: int) -> list[Sighting]:
        with unavailable():
            found = [_sighting(row) for row in (await self._read()).values()]
        return sorted(found, key=lambda one: one.last_seen_at, reverse=True)[:limit]

    async def forget(self, seen_before: Instant, kept_max: int) -> int:
        with unavailable():
            for _ in range(TRIES_MAX):
                rows = sorted((await self._read()).values(), key=_seen_at, reverse=True)
                oldest_kept = _seen_at(rows[kept_max - 1]) if len(rows) >= kept_max else 0
                gone = [row for row in rows if _seen_at(row) < max(seen_before, oldest_kept)]
                if await self._written([Delete(row.key, row.etag) for row in gone]):
                    return len(gone)
        raise crowded_out("workers")

    async def add_failures(self, counted: Sequence[Failures]) -> None:
        with unavailable():
            for one in counted:
                await self._add_failure(one)
            if counted:
                before = _minute(max(one.minute for one in counted) - FAILURES_KEPT_MINUTES)
                for row in await self._table.rows(WORKER_FAILURES, "", key(before), limit=ROWS_MAX):
                    await self._deleted(row)

    async def failures(self, since_minute: int) -> dict[tuple[WorkerKind, str, str], int]:
        found: Counter[tuple[WorkerKind, str, str]] = Counter()
        with unavailable():
            rows = await self._table.rows(WORKER_FAILURES, key(_minute(since_minute)), limit=ROWS_MAX)
        for row in rows:
            who = (WorkerKind(row.values["kind"]), str(row.values["name"]), str(row.values["instance"]))
            found[who] += int(row.values["failures"])
        return dict(found)

    async def _add_failure(self, one: Failures) -> None:
        row_key = key(_minute(one.minute), _digest(one.kind, one.name, one.instance))
        named = {"kind": one.kind.value, "name": one.name, "instance": one.instance}
        for _ in range(TRIES_MAX):
            row = await self._table.get(WORKER_FAILURES, row_key)
            count = one.failures + (0 if row is None else int(row.values["failures"]))
            values: dict[str, Any] = {**named, "failures": count}
            write: Write = Insert(row_key, values) if row is None else Put(row_key, values, row.etag)
            try:
                await self._table.write(WORKER_FAILURES, [write])
            except (TableConflict, TableNotFound) as error:
                if is_missing_table(error):
                    raise
            else:
                return
        raise crowded_out("failures of workers")

    async def _deleted(self, row: Row) -> None:
        try:
            await self._table.write(WORKER_FAILURES, [Delete(row.key)])
        except TableNotFound as error:
            if is_missing_table(error):
                raise

    async def _read(self) -> dict[str, Row]:
        return {row.key: row for row in await self._table.rows(WORKERS, limit=ROWS_MAX)}

    async def _written(self, writes: Sequence[Write]) -> bool:
        """Whether nobody else has changed one of the rows in between."""
        try:
            for start in range(0, len(writes), TRANSACTION_ROWS):
                await self._table.write(WORKERS, writes[start : start + TRANSACTION_ROWS])
        except (TableConflict, TableNotFound) as error:
            if is_missing_table(error):
                raise
            return False
        return True


def _write(sighting: Sighting, row: Row | None) -> Write | None:
    if row is None:
        return Insert(_key(sighting), _values(sighting))
    before = _sighting(row)
    if sighting.last_seen_at < before.last_seen_at:
        return None
    kept = replace(sighting, first_seen_at=before.first_seen_at)
    return None if kept == before else Put(row.key, _values(kept), row.etag)


def _key(sighting: Sighting) -> str:
    return _digest(sighting.kind, sighting.name, sighting.instance)


def _digest(kind: WorkerKind, name: str, instance: str) -> str:
    """A hash, because names may be longer than a key."""
    named = "\0".join((kind.value, name, instance))
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()


def _minute(minute: int) -> str:
    return f"{max(minute, 0):0{MINUTE_DIGITS}d}"


def _values(sighting: Sighting) -> dict[str, Any]:
    return {**asdict(sighting), "kind": sighting.kind.value}


def _sighting(row: Row) -> Sighting:
    fields: dict[str, Any] = {name: row.values.get(name) for name in Sighting.__struct_fields__}
    return Sighting(**{**fields, "kind": WorkerKind(row.values["kind"])})


def _seen_at(row: Row) -> Instant:
    return int(row.values["last_seen_at"])
