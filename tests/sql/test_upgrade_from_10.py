"""A database of the version before is brought to documents, whatever its jobs were doing, and loses nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.sql import version_10

from lucius.domain.attempt import Attempt
from lucius.domain.job import Job
from lucius.ledgers.sql import SqlLedger
from lucius.ports.ledger import JobFilter
from lucius.sql import schema
from lucius.sql.database import Database, Fetch, Row, Run, Script
from lucius.sql.ledger_copy import CopyJobs
from lucius.sql.migration import CopyMismatch
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase


@pytest.fixture(params=["empty_sqlite", "empty_postgres"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def empty_sqlite(tmp_path: Path) -> AsyncIterator[Database]:
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        yield database


@pytest.fixture
async def empty_postgres(postgres_database: PostgresDatabase) -> Database:
    await run(postgres_database, "DROP SCHEMA public CASCADE")
    await run(postgres_database, "CREATE SCHEMA public")
    return postgres_database


async def run(database: Database, sql: str, *rows: Any) -> None:
    def script() -> Script[None]:
        yield Run(sql, rows) if rows else Run(sql)

    await database.write(script)


async def fetch(database: Database, sql: str, *args: Any) -> list[Row]:
    def script() -> Script[list[Row]]:
        return list((yield Fetch(sql, args)))

    return await database.read(script)


async def test_jobs_are_as_the_program_before_read_them(database: Database) -> None:
    await version_10.make(database)
    assert await schema.upgrade(database) == len(schema.MIGRATIONS) - 10
    await schema.verify(database)
    expected = version_10.recorded()["jobs"]
    async with SqlLedger(database) as ledger:
        jobs = await ledger.load(list(expected))
        for job_id, was in expected.items():
            assert msgspec.json.decode(msgspec.json.encode(was["job"]), type=Job) == jobs[job_id]
            attempts = await ledger.attempts(job_id)
            assert msgspec.convert(was["attempts"], dict[str, tuple[Attempt, ...]]) == {
                step_id: tuple(found) for step_id, found in attempts.items()
            }
            events = await ledger.events(job_id, 0, 1_000)
            assert json.loads(msgspec.json.encode(events)) == was["events"]
            correlation_id = jobs[job_id].spec.correlation_id
            found = await ledger.matching(JobFilter(correlation_id=correlation_id), 100, None)
            assert job_id in [key.job_id for key in found]
        assert await ledger.inflight() == version_10.recorded()["inflight"]
        clock_end = max(was["job"]["updated_at"] for was in expected.values())
        assert (await ledger.repair(clock_end, 30.0)).slots == 0


async def test_other_tables_are_left_alone(database: Database) -> None:
    await version_10.make(database)
    await schema.upgrade(database)
    for table, content in version_10.recorded()["tables"].items():
        if table in ("jobs", "steps", "attempts", "events", "schema_versions"):
            continue
        names = ", ".join(f'"{name}"' for name in content["columns"])
        found = [list(row) for row in await fetch(database, f'SELECT {names} FROM "{table}"')]
        wanted = [[version_10.value_of(value) for value in row] for row in content["rows"]]
        assert len(found) == len(wanted)
        assert all(row in found for row in wanted), table


async def test_old_tables_are_kept_until_they_are_removed_on_request(database: Database) -> None:
    await version_10.make(database)
    await schema.upgrade(database)
    count = len(version_10.recorded()["jobs"])
    assert (await fetch(database, "SELECT COUNT(*) FROM old_jobs"))[0][0] == count
    assert await schema.contract(database) == [11]
    assert await schema.contract(database) == []
    assert (await fetch(database, "SELECT COUNT(*) FROM jobs"))[0][0] == count
    with pytest.raises(Exception, match="old_jobs"):
        await fetch(database, "SELECT COUNT(*) FROM old_jobs")


async def test_copy_goes_on_where_it_stopped(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await version_10.make(database)
    monkeypatch.setattr("lucius.sql.ledger_copy.JOBS_AT_ONCE", 3)
    steps = 0
    step = CopyJobs.step

    def dying_step(self: CopyJobs, position: str | None) -> Any:
        nonlocal steps
        steps += 1
        if steps in (3, 5):
            raise SystemError("killed")
        return (yield from step(self, position))

    monkeypatch.setattr(CopyJobs, "step", dying_step)
    for _ in range(2):
        with pytest.raises(Exception, match="killed"):
            await schema.upgrade(database)
        with pytest.raises(schema.SchemaMismatch):
            await schema.verify(database)
    await schema.upgrade(database)
    expected = version_10.recorded()["jobs"]
    assert steps == 2 + -(-len(expected) // 3) + (len(expected) % 3 == 0)
    async with SqlLedger(database) as ledger:
        assert len(await ledger.load(list(expected))) == len(expected)


async def test_copy_that_differs_is_not_used(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await version_10.make(database)
    step = CopyJobs.step

    def losing_step(self: CopyJobs, position: str | None) -> Any:
        moved = yield from step(self, position)
        yield Run("UPDATE job_states SET status = 'SUCCEEDED' WHERE status = 'PAUSED'")
        return moved

    monkeypatch.setattr(CopyJobs, "step", losing_step)
    with pytest.raises(CopyMismatch, match="is not what the old tables hold"):
        await schema.upgrade(database)
    assert (await fetch(database, "SELECT COUNT(*) FROM jobs WHERE status = 'PAUSED'"))[0][0] == 2
    monkeypatch.setattr(CopyJobs, "step", step)
    assert await schema.abandon(database) == 11
    await schema.upgrade(database)
    await schema.verify(database)


async def test_job_that_could_not_be_read_is_reported_by_this_program_too(database: Database) -> None:
    await version_10.make(database)
    broken = next(iter(version_10.recorded()["jobs"]))
    await run(database, "UPDATE steps SET payload = '{broken' WHERE job_id = $1", (broken,))
    await schema.upgrade(database)
    async with SqlLedger(database) as ledger:
        assert broken not in await ledger.load([broken])
        others = [job_id for job_id in version_10.recorded()["jobs"] if job_id != broken]
        assert len(await ledger.load(others)) == len(others)
