"""Lists have readers of their own and a time limit: no turn waits for one, on SQLite or on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from lucius.domain.errors import CallerError
from lucius.sql.database import Database, DatabaseUnavailable, Fetch, Run, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase

PROMPT_SECONDS = 10.0
"""Generous for what takes some milliseconds; the lists beside it never end by themselves."""
LISTS_MAX = 2


def endless() -> Script[int]:
    rows = yield Fetch("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n")
    return int(rows[0][0])


def short() -> Script[int]:
    rows = yield Fetch("SELECT COUNT(*) FROM inflight")
    return int(rows[0][0])


def writing() -> Script[None]:
    yield Run("INSERT INTO inflight (scope, jobs) VALUES ('beside the lists', 1)")


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Callable[[float], Database]:
    """Opens databases whose lists may take so many seconds."""

    def opened(list_seconds_max: float) -> Database:
        if request.param == "sqlite":
            return SqliteDatabase(tmp_path / "lucius.db", LISTS_MAX, list_seconds_max)
        return PostgresDatabase(postgres_url, LISTS_MAX + 1, LISTS_MAX, list_seconds_max)

    return opened


async def test_turns_go_on_while_every_reader_of_lists_is_busy(databases: Callable[[float], Database]) -> None:
    async with databases(2 * PROMPT_SECONDS) as database:
        await upgrade(database)
        lists = [asyncio.create_task(database.scan(endless)) for _ in range(4 * LISTS_MAX)]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(PROMPT_SECONDS):
            for count in range(20):
                assert await database.read(short) == min(count, 1)
                if not count:
                    await database.write(writing)
        assert not any(task.done() for task in lists)
        for task in lists:
            task.cancel()
        await asyncio.gather(*lists, return_exceptions=True)
        async with asyncio.timeout(PROMPT_SECONDS):
            assert await database.scan(short) == 1, "lists that nobody waits for any more are stopped"


async def test_list_that_takes_too_long_is_stopped_and_the_next_one_is_not(
    databases: Callable[[float], Database],
) -> None:
    async with databases(0.3) as database:
        await upgrade(database)
        for _ in range(2 * LISTS_MAX):
            with pytest.raises(CallerError, match=r"longer than 0\.3 s") as raised:
                await asyncio.wait_for(database.scan(endless), PROMPT_SECONDS)
            assert (raised.value.code, raised.value.status) == ("QUERY_TOO_SLOW", 422)
            assert "created_from" in raised.value.detail
            assert await database.scan(short) == 0


async def test_postgres_itself_stops_a_list_that_takes_too_long(postgres_url: str) -> None:
    async with PostgresDatabase(postgres_url, 4, LISTS_MAX, 0.3) as database:
        with pytest.raises(CallerError):
            await database.scan(endless)
    connection = await asyncpg.connect(postgres_url)
    running = await connection.fetch(
        "SELECT query FROM pg_stat_activity WHERE state = 'active' AND datname = current_database()"
        " AND pid <> pg_backend_pid()"
    )
    await connection.close()
    assert running == []


async def test_closing_does_not_wait_for_a_list(tmp_path: Path) -> None:
    async with asyncio.timeout(PROMPT_SECONDS):
        async with SqliteDatabase(tmp_path / "lucius.db", LISTS_MAX, 10 * PROMPT_SECONDS) as database:
            task = asyncio.create_task(database.scan(endless))
            await asyncio.sleep(0.1)
        with pytest.raises(DatabaseUnavailable):
            await task
