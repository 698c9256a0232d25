"""The SQLite database: one owner, group commits that keep to themselves, and nothing half written when it fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from lucius.ledgers.sql import SqlLedger
from lucius.ports.ledger import LedgerUnavailable
from lucius.sql.database import Database, DatabaseUnavailable, Fetch, Row, Run, RunAgain, Script
from lucius.sql.schema import MIGRATIONS, VERSION, SchemaMismatch, upgrade, verify
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import ManualClock

TABLES = ("jobs", "steps", "attempts", "events", "claims", "inflight", "webhooks", "messages")


def insert(scope: str, jobs: int = 1) -> Callable[[], Script[None]]:
    def script() -> Script[None]:
        yield Run("INSERT INTO inflight (scope, jobs) VALUES ($1, $2)", [(scope, jobs)])

    return script


async def fetch(database: Database, sql: str, *args: Any) -> list[Row]:
    def script() -> Script[list[Row]]:
        return list((yield Fetch(sql, args)))

    return await database.read(script)


async def scopes(database: Database) -> set[str]:
    return {row[0] for row in await fetch(database, "SELECT scope FROM inflight")}


async def counts(database: Database) -> dict[str, int]:
    return {table: (await fetch(database, f"SELECT COUNT(*) FROM {table}"))[0][0] for table in TABLES}


# --- One owner -------------------------------------------------------------------------------------------------------


async def test_second_owner_is_refused_by_name(sqlite_database: SqliteDatabase) -> None:
    with pytest.raises(DatabaseUnavailable, match=r"owned by process \d+.*one owner.*PostgreSQL"):
        async with SqliteDatabase(sqlite_database.path):
            pass
    await sqlite_database.write(insert("still mine"))


async def test_file_has_a_new_owner_once_the_last_has_gone(tmp_path: Path) -> None:
    for _ in range(2):
        async with SqliteDatabase(tmp_path / "lucius.db") as database:
            await upgrade(database)


async def test_owner_keeps_what_was_committed(tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        await upgrade(database)
        await database.write(insert("kept"))
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        assert await scopes(database) == {"kept"}


async def test_writes_are_on_disk_when_they_are_answered(sqlite_database: SqliteDatabase) -> None:
    writer = sqlite_database._writer
    assert writer is not None
    assert list(writer._connection.execute("PRAGMA journal_mode")) == [("wal",)]
    assert list(writer._connection.execute("PRAGMA synchronous")) == [(2,)]


async def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lucius.db"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(DatabaseUnavailable):
        async with SqliteDatabase(path) as database:
            await upgrade(database)
    path.unlink()
    async with SqliteDatabase(path) as database:
        await upgrade(database)


# --- Groups ----------------------------------------------------------------------------------------------------------


async def test_script_that_fails_takes_nobody_with_it(sqlite_database: SqliteDatabase) -> None:
    def fails_halfway(scope: str) -> Callable[[], Script[None]]:
        def script() -> Script[None]:
            yield Run("INSERT INTO inflight (scope, jobs) VALUES ($1, 1)", [(scope,)])
            raise ValueError(scope)

        return script

    def breaks_a_rule() -> Script[None]:
        yield Run("INSERT INTO inflight (scope, jobs) VALUES ($1, 1)", [("twice",)])
        yield Run("INSERT INTO inflight (scope, jobs) VALUES ($1, 1)", [("twice",)])

    def makes_no_sense() -> Script[None]:
        yield Run("INSERT INTO nowhere VALUES (1)")

    scripts: list[Callable[[], Script[None]]] = []
    for place in range(10):
        scripts += [insert(f"good {place}"), fails_halfway(f"bad {place}"), breaks_a_rule, makes_no_sense]
    answers = await asyncio.gather(*map(sqlite_database.write, scripts), return_exceptions=True)
    assert [type(answer) for answer in answers] == [
        type(None),
        ValueError,
        DatabaseUnavailable,
        DatabaseUnavailable,
    ] * 10
    assert await scopes(sqlite_database) == {f"good {place}" for place in range(10)}


async def test_script_sees_what_others_of_its_group_have_written(sqlite_database: SqliteDatabase) -> None:
    def count() -> Script[int]:
        rows = yield Fetch("SELECT COUNT(*) FROM inflight")
        return int(rows[0][0])

    answers = await asyncio.gather(
        sqlite_database.write(insert("one")), sqlite_database.write(count), sqlite_database.write(insert("two"))
    )
    assert answers[1] == 1


async def test_more_scripts_than_one_group_all_stand(sqlite_database: SqliteDatabase) -> None:
    await asyncio.gather(*(sqlite_database.write(insert(f"scope {place}")) for place in range(300)))
    assert len(await scopes(sqlite_database)) == 300


async def test_what_a_script_writes_after_its_last_read_is_written_in_another_thread(
    sqlite_database: SqliteDatabase,
) -> None:
    writer = sqlite_database._writer
    assert writer is not None
    writer._connection.create_scalar_function("thread_id", threading.get_ident, 0)

    def script() -> Script[tuple[int, int]]:
        yield Run("INSERT INTO inflight (scope, jobs) VALUES ('read later', thread_id())")
        rows = yield Fetch("SELECT jobs, thread_id() FROM inflight WHERE scope = 'read later'")
        yield Run("INSERT INTO inflight (scope, jobs) VALUES ('last', thread_id())")
        return rows[0][0], rows[0][1]

    here = threading.get_ident()
    assert await sqlite_database.write(script) == (here, here)
    [written] = await fetch(sqlite_database, "SELECT jobs FROM inflight WHERE scope = 'last'")
    assert written[0] != here


async def test_many_rows_in_one_statement_all_stand(sqlite_database: SqliteDatabase) -> None:
    def script() -> Script[None]:
        rows = [(f"scope {place:03d}", place) for place in range(157)]
        yield Run("INSERT INTO inflight (scope, jobs) VALUES ($1, $2)", rows)
        yield Run("UPDATE inflight SET jobs = jobs + $2 WHERE scope = $1", [(scope, 1_000) for scope, _ in rows])
        yield Run("DELETE FROM inflight WHERE scope = $1", [(scope,) for scope, place in rows if place % 2])

    await sqlite_database.write(script)
    kept = await fetch(sqlite_database, "SELECT scope, jobs FROM inflight ORDER BY scope")
    assert [tuple(row) for row in kept] == [(f"scope {place:03d}", 1_000 + place) for place in range(0, 157, 2)]


async def test_script_is_run_again_when_it_asks_for_it(sqlite_database: SqliteDatabase) -> None:
    tries = []

    def script() -> Script[str]:
        tries.append(1)
        yield Run("INSERT INTO inflight (scope, jobs) VALUES ('again', 1)")
        if len(tries) == 1:
            raise RunAgain("once more")
        return "done"

    assert await sqlite_database.write(script) == "done"
    assert await scopes(sqlite_database) == {"again"}


async def test_script_that_asks_to_be_run_again_for_ever_is_given_up(sqlite_database: SqliteDatabase) -> None:
    def script() -> Script[None]:
        yield Run("INSERT INTO inflight (scope, jobs) VALUES ('never', 1)")
        raise RunAgain("once more")

    answers = await asyncio.wait_for(
        asyncio.gather(
            sqlite_database.write(insert("before")),
            sqlite_database.write(script),
            sqlite_database.write(insert("after")),
            return_exceptions=True,
        ),
        10,
    )
    assert isinstance(answers[1], DatabaseUnavailable)
    await asyncio.wait_for(sqlite_database.write(insert("later")), 10)
    assert await scopes(sqlite_database) == {"before", "after", "later"}


async def test_caller_that_goes_away_harms_no_other(sqlite_database: SqliteDatabase) -> None:
    gone = asyncio.create_task(sqlite_database.write(insert("gone")))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(*(sqlite_database.write(insert(f"here {place}")) for place in range(5)))
    assert await scopes(sqlite_database) >= {f"here {place}" for place in range(5)}


async def test_reading_cannot_write(sqlite_database: SqliteDatabase) -> None:
    with pytest.raises(DatabaseUnavailable):
        await sqlite_database.read(insert("by a reader"))
    assert await scopes(sqlite_database) == set()


async def test_reading_fails_alone(sqlite_database: SqliteDatabase) -> None:
    def fails() -> Script[None]:
        yield Fetch("SELECT 1")
        raise ValueError("halfway")

    reads = [sqlite_database.read(fails), fetch(sqlite_database, "SELECT 2"), fetch(sqlite_database, "SELECT nothing")]
    answers = await asyncio.gather(*reads, return_exceptions=True)
    assert isinstance(answers[0], ValueError)
    assert [tuple(row) for row in answers[1]] == [(2,)]  # type: ignore[union-attr]
    assert isinstance(answers[2], DatabaseUnavailable)


# --- Trouble ---------------------------------------------------------------------------------------------------------


async def test_full_disk_leaves_nothing_half_written(sqlite_database: SqliteDatabase, clock: ManualClock) -> None:
    writer = sqlite_database._writer
    assert writer is not None
    driver = LedgerDriver(SqlLedger(sqlite_database), clock)
    job = await driver.create(key="before")
    before = await counts(sqlite_database)
    [(pages,)] = writer._connection.execute("PRAGMA page_count")
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")
    for place in range(3):
        changes = [driver.creation(key=f"{place} {number}") for number in range(60)]
        with pytest.raises(LedgerUnavailable, match="Full"):
            await driver.ledger.commit(changes)
    assert await counts(sqlite_database) == before
    assert await driver.read(job) == job
    writer._connection.execute("PRAGMA max_page_count = 1000000")
    await driver.create(key="after")
    assert (await counts(sqlite_database))["jobs"] == 2


async def test_full_disk_tells_everybody_in_the_group(sqlite_database: SqliteDatabase) -> None:
    writer = sqlite_database._writer
    assert writer is not None
    [(pages,)] = writer._connection.execute("PRAGMA page_count")
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")

    def large() -> Script[None]:
        yield Run("INSERT INTO inflight (scope, jobs) VALUES ($1, 1)", [("x" * 2_000_000,)])

    answers = await asyncio.gather(
        sqlite_database.write(insert("one")),
        sqlite_database.write(large),
        sqlite_database.write(insert("two")),
        return_exceptions=True,
    )
    assert all(isinstance(answer, DatabaseUnavailable) for answer in answers)
    assert await scopes(sqlite_database) == set()
    await sqlite_database.write(insert("small"))
    assert await scopes(sqlite_database) == {"small"}


async def test_locked_database_is_unavailable_until_it_is_free(
    sqlite_database: SqliteDatabase, clock: ManualClock
) -> None:
    driver = LedgerDriver(SqlLedger(sqlite_database), clock)
    intruder = apsw.Connection(str(sqlite_database.path))
    intruder.execute("BEGIN EXCLUSIVE")
    change = driver.creation()
    with pytest.raises(LedgerUnavailable, match="Busy"):
        await driver.commit(change)
    assert await driver.ledger.load([change.after.job_id]) == {}
    intruder.execute("ROLLBACK")
    await driver.write(change)
    intruder.close()


async def test_closed_database_is_unavailable(tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        await upgrade(database)
    with pytest.raises(DatabaseUnavailable, match="closed"):
        await database.write(insert("late"))
    with pytest.raises(DatabaseUnavailable, match="closed"):
        await scopes(database)


async def test_closing_answers_everybody_who_waits(tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        await upgrade(database)
        writes = [asyncio.create_task(database.write(insert(f"scope {place}"))) for place in range(200)]
        reads = [asyncio.create_task(scopes(database)) for _ in range(20)]
        await asyncio.sleep(0)
    done, waiting = await asyncio.wait([*writes, *reads], timeout=10)
    for task in waiting:
        task.cancel()
    assert not waiting, f"{len(waiting)} wait for ever"
    failures = [task.exception() for task in done if task.exception() is not None]
    assert all(isinstance(failure, DatabaseUnavailable) for failure in failures), failures
    stood = {f"scope {place}" for place, task in enumerate(writes) if task.exception() is None}
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        assert await scopes(database) == stood


# --- Migrations ------------------------------------------------------------------------------------------------------


async def test_upgrade_is_done_once(tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        with pytest.raises(SchemaMismatch, match="db upgrade"):
            await verify(database)
        assert await upgrade(database) == len(MIGRATIONS)
        assert await upgrade(database) == 0
        await verify(database)


async def test_database_of_a_later_version_is_refused(sqlite_database: SqliteDatabase) -> None:
    def script() -> Script[None]:
        yield Run("INSERT INTO schema_versions (version, name) VALUES ($1, $2)", [(VERSION + 1, "from the future")])

    await sqlite_database.write(script)
    with pytest.raises(SchemaMismatch, match="upgrade LUCIUS"):
        await upgrade(sqlite_database)
    with pytest.raises(SchemaMismatch):
        await verify(sqlite_database)
