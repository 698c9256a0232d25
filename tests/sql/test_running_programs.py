"""Upgrades of a PostgreSQL database while programs use it: who is in the way, who is not, and who is locked out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
from msgspec.structs import replace
from tests.sql.notes_schema import ADDITIVE, AT_1, AT_2, AT_3, FIRST, STAGED, CopyNotes

from lucius.sql import schema
from lucius.sql.database import DatabaseUnavailable, Fetch, Script
from lucius.sql.migration import CopyMismatch, Moved, ProgramsRunning
from lucius.sql.postgres import PostgresDatabase

WAIT_SECONDS = 30.0
HOLDER = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 5824002 AND objid = 1"
TERMINATE = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'lucius-1'"


@pytest.fixture
async def notes_url(postgres_url: str) -> str:
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    finally:
        await connection.close()
    async with program(postgres_url, 1) as database:
        await schema.upgrade(database, AT_1)
    return postgres_url


@pytest.fixture
async def admin(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


def program(url: str, version: int) -> PostgresDatabase:
    return PostgresDatabase(url, pool_max=2, program_version=version)


async def without_lock(url: str) -> asyncpg.Connection:
    """A session as programs of schema version 10 and earlier open it."""
    return await asyncpg.connect(url, server_settings={"application_name": "lucius"})


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await condition():
            await asyncio.sleep(0.02)


async def test_upgrade_is_refused_while_an_older_program_runs(notes_url: str) -> None:
    async with program(notes_url, 2) as upgrading:
        async with program(notes_url, 1) as running:
            await schema.verify(running, AT_1)
            with pytest.raises(ProgramsRunning, match=r"schema version 2 or later.*pid \d+ \(lucius-1.*Stop them"):
                await schema.upgrade(upgrading, AT_2)
            await schema.verify(running, AT_1)
        assert await schema.upgrade(upgrading, AT_2) == 1


async def test_upgrade_that_a_running_program_can_live_with_is_made(notes_url: str) -> None:
    async with program(notes_url, 3) as upgrading:
        await schema.upgrade(upgrading, AT_2)
        async with program(notes_url, 2) as running:
            await schema.verify(running, AT_2)
            assert await schema.upgrade(upgrading, AT_3) == 1
            await schema.verify(running, AT_2)
            with pytest.raises(ProgramsRunning, match="contracting schema version 3"):
                await schema.contract(upgrading, (FIRST, STAGED, replace(ADDITIVE, contract=("SELECT 1",))))


async def test_program_without_a_lock_is_found_and_can_be_left_out_by_its_pid(notes_url: str) -> None:
    session = await without_lock(notes_url)
    try:
        pid = session.get_server_pid()
        async with program(notes_url, 2) as upgrading:
            with pytest.raises(ProgramsRunning, match=rf"pid {pid} \(lucius[ )].*--ignore-session PID"):
                await schema.upgrade(upgrading, AT_2)
            with pytest.raises(ProgramsRunning):
                await schema.upgrade(upgrading, AT_2, ignored_pids=[pid + 1])
            assert await schema.upgrade(upgrading, AT_2, ignored_pids=[pid]) == 1
    finally:
        await session.close()


async def test_program_with_a_lock_cannot_be_left_out(notes_url: str, admin: asyncpg.Connection) -> None:
    async with program(notes_url, 1) as running, program(notes_url, 2) as upgrading:
        await schema.verify(running, AT_1)
        pids = [row[0] for row in await admin.fetch("SELECT pid FROM pg_stat_activity")]
        holder = await admin.fetchval(HOLDER)
        for ignored in ([], pids):
            with pytest.raises(ProgramsRunning, match=rf"database: pid {holder} \(lucius-1[^)]*\)\. Stop them[^-]*$"):
                await schema.upgrade(upgrading, AT_2, ignored_pids=ignored)


async def test_other_sessions_are_not_in_the_way(notes_url: str, admin: asyncpg.Connection) -> None:
    await admin.execute("SET application_name = 'psql'")
    async with program(notes_url, 2) as upgrading:
        assert await schema.upgrade(upgrading, AT_2) == 1


class Interrupted(CopyNotes):
    def compare(self, position: str | None) -> Script[Moved]:
        yield Fetch("SELECT 1")
        raise CopyMismatch("the test ends the upgrade here")


async def test_program_that_comes_back_during_the_copy_stops_the_swap(notes_url: str) -> None:
    """Programs of version 10 and earlier do not read the version when they connect again."""
    async with program(notes_url, 2) as upgrading:
        with pytest.raises(CopyMismatch):
            await schema.upgrade(upgrading, (FIRST, replace(STAGED, copy=Interrupted())))
        session = await without_lock(notes_url)
        try:
            with pytest.raises(ProgramsRunning, match="the upgrade to schema version 2"):
                await schema.upgrade(upgrading, AT_2)
            assert await schema.upgrade(upgrading, AT_2, ignored_pids=[session.get_server_pid()]) == 1
        finally:
            await session.close()


async def test_program_is_locked_out_if_the_database_was_upgraded_while_it_was_away(
    notes_url: str, admin: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with program(notes_url, 1) as running:
        await schema.verify(running, AT_1)
        await admin.execute("UPDATE schema_versions SET version = 2, oldest_program = 2")
        await admin.execute(TERMINATE)

        async def is_locked_out() -> bool:
            try:
                await running.read(one)
            except DatabaseUnavailable as error:
                return "needs a program of version 2 or later; this program is at 1: upgrade LUCIUS" in str(error)
            return False

        await until(is_locked_out)
        with pytest.raises(DatabaseUnavailable, match="upgrade LUCIUS"):
            await running.write(one)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_lock_is_taken_again_after_its_connection_was_lost(notes_url: str, admin: asyncpg.Connection) -> None:
    async with program(notes_url, 1) as running:
        before = await admin.fetchval(HOLDER)
        assert before is not None
        await admin.execute(TERMINATE)

        async def is_held_again() -> bool:
            return await admin.fetchval(HOLDER) not in (None, before)

        await until(is_held_again)
        assert await running.read(one) == 1
    assert await admin.fetchval(HOLDER) is None, "it ends with the program"


def one() -> Script[int]:
    return (yield Fetch("SELECT 1"))[0][0]  # type: ignore[no-any-return]
