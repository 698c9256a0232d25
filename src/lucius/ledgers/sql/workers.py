"""Who has asked for work, in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.time import Instant
from lucius.ports.workers import Failures, Sighting, WorkerKind
from lucius.sql.database import Database, Fetch, Run, Script

WRITE = (
    "INSERT INTO workers (kind, name, instance, version, in_work, first_seen_at, last_seen_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (kind, name, instance) DO UPDATE SET"
    " version = CASE WHEN excluded.last_seen_at >= workers.last_seen_at THEN excluded.version ELSE workers.version END,"
    " in_work = CASE WHEN excluded.last_seen_at >= workers.last_seen_at THEN excluded.in_work ELSE workers.in_work END,"
    " last_seen_at = CASE WHEN excluded.last_seen_at >= workers.last_seen_at THEN excluded.last_seen_at"
    " ELSE workers.last_seen_at END"
)
NEWEST = (
    "SELECT kind, name, instance, version, in_work, first_seen_at, last_seen_at FROM workers"
    " ORDER BY last_seen_at DESC LIMIT $1"
)
FORGET = "DELETE FROM workers WHERE last_seen_at < $1 RETURNING kind"

ADD_FAILURES = (
    "INSERT INTO worker_failures (kind, name, instance, minute, failures) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (minute, kind, name, instance)"
    " DO UPDATE SET failures = worker_failures.failures + excluded.failures"
)
FAILURES = (
    "SELECT kind, name, instance, SUM(failures) FROM worker_failures WHERE minute >= $1 GROUP BY kind, name, instance"
)
FORGET_FAILURES = "DELETE FROM worker_failures WHERE minute < $1"
FAILURES_KEPT_MINUTES = 120


class SqlWorkers:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, sightings: Sequence[Sighting]) -> None:
        rows = [
            (one.kind.value, one.name, one.instance, one.version, one.in_work, one.first_seen_at, one.last_seen_at)
            # In one order, so that processes that write the same rows do not wait for each other in a circle.
            for one in sorted(sightings, key=lambda one: (one.kind, one.name, one.instance))
        ]

        def script() -> Script[None]:
            yield Run(WRITE, rows)

        if rows:
            await self._database.write(script)

    async def newest(self, limit: int) -> list[Sighting]:
        def script() -> Script[list[Sighting]]:
            found = yield Fetch(NEWEST, [limit])
            names = Sighting.__struct_fields__
            return [Sighting(**dict(zip(names, (WorkerKind(row[0]), *row[1:]), strict=True))) for row in found]

        return await self._database.read(script)

    async def forget(self, seen_before: Instant, kept_max: int) -> int:
        def script() -> Script[int]:
            kept = yield Fetch(NEWEST, [kept_max])
            oldest_kept = kept[-1][-1] if len(kept) == kept_max else 0
            gone = yield Fetch(FORGET, [max(seen_before, oldest_kept)])
            return len(gone)

        return await self._database.write(script)

    async def add_failures(self, counted: Sequence[Failures]) -> None:
        rows = [
            (one.kind.value, one.name, one.instance, one.minute, one.failures)
            # In one order, so that processes that write the same rows do not wait for each other in a circle.
            for one in sorted(counted, key=lambda one: (one.minute, one.kind, one.name, one.instance))
        ]

        def script() -> Script[None]:
            yield Run(ADD_FAILURES, rows)
            yield Run(FORGET_FAILURES, [(rows[-1][3] - FAILURES_KEPT_MINUTES,)])

        if rows:
            await self._database.write(script)

    async def failures(self, since_minute: int) -> dict[tuple[WorkerKind, str, str], int]:
        def script() -> Script[dict[tuple[WorkerKind, str, str], int]]:
            found = yield Fetch(FAILURES, [since_minute])
            return {(WorkerKind(row[0]), row[1], row[2]): int(row[3]) for row in found}

        return await self._database.read(script)
