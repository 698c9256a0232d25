"""Staged migrations: expand, copy, compare, swap and contract, on both databases, killed at any point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from msgspec.structs import replace
from tests.sql.mortal_upgrade import open_notes
from tests.sql.notes_schema import AT_1, AT_2, AT_3, FIRST, STAGED, STEP_ROWS, CopyNotes

from lucius.sql import schema
from lucius.sql.database import Database, DatabaseUnavailable, Fetch, Row, Run, Script
from lucius.sql.migration import CopyMismatch, Migration, Moved, SchemaError
from lucius.sql.schema import SchemaMismatch

NOTES = 10
TABLES = ("notes", "notes_new", "notes_old")


@pytest.fixture(params=["sqlite", "postgres"])
async def notes_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """An empty database."""
    if request.param == "sqlite":
        yield str(tmp_path / "notes.db")
        return
    server = request.getfixturevalue("postgres_server")
    name = f"notes_{os.getpid()}_{tmp_path.name[-24:]}".lower().replace("-", "_")
    admin = await asyncpg.connect(server)
    try:
        await admin.execute(f'CREATE DATABASE "{name}"')
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await admin.close()


async def write(database: Database, sql: str, *rows: tuple[Any, ...]) -> None:
    def script() -> Script[None]:
        yield Run(sql, rows or ((),))

    await database.write(script)


async def fetch(database: Database, sql: str) -> list[Row]:
    def script() -> Script[list[Row]]:
        return [tuple(row) for row in (yield Fetch(sql))]

    return await database.read(script)


async def fill(database: Database) -> None:
    """At version 1, with some notes."""
    assert await schema.upgrade(database, AT_1) == 1
    rows = [(number, f"note {number}") for number in range(1, NOTES + 1)]
    await write(database, "INSERT INTO notes (note_id, body) VALUES ($1, $2)", *rows)


async def capitals(database: Database) -> list[Row]:
    return await fetch(database, "SELECT note_id, capitals FROM notes ORDER BY note_id")


async def tables(database: Database) -> set[str]:
    found = set()
    for name in TABLES:
        try:
            await fetch(database, f"SELECT COUNT(*) FROM {name}")
        except (DatabaseUnavailable, asyncpg.UndefinedTableError):
            continue
        found.add(name)
    return found


CAPITALS = [(number, f"NOTE {number}") for number in range(1, NOTES + 1)]


async def test_staged_migration_copies_swaps_and_keeps_the_old_table_until_contract(notes_url: str) -> None:
    async with open_notes(notes_url) as database:
        await fill(database)
        reports: list[tuple[int, int]] = []
        assert await schema.upgrade(database, AT_3, lambda done, total: reports.append((done, total))) == 2
        assert reports == [(3, NOTES), (6, NOTES), (9, NOTES), (NOTES, NOTES)]
        assert await capitals(database) == CAPITALS
        assert await tables(database) == {"notes", "notes_old"}
        await schema.verify(database, AT_3)
        assert await schema.upgrade(database, AT_3) == 0

        assert await schema.contract(database, AT_3) == [2]
        assert await schema.contract(database, AT_3) == []
        assert await tables(database) == {"notes"}
        assert await capitals(database) == CAPITALS


async def test_new_database_is_made_without_old_tables(notes_url: str) -> None:
    async with open_notes(notes_url) as database:
        assert await schema.upgrade(database, AT_3) == 3
        assert await tables(database) == {"notes"}
        assert await schema.contract(database, AT_3) == []
        await schema.verify(database, AT_3)


KILLS = {
    "expand, before it is recorded": ("INSERT INTO schema_versions", 1, {"notes"}),
    "expanded, before the copy": ("SELECT COUNT(*) FROM notes", 1, {"notes", "notes_new"}),
    "copy, before its position is recorded": ("rows_copied =", 2, {"notes", "notes_new"}),
    "copied, before the comparison": ("FULL JOIN", 1, {"notes", "notes_new"}),
    "swap, between two renames": ("notes_new RENAME", 1, {"notes", "notes_new"}),
    "swap, before it is recorded": ("position = NULL", 1, {"notes", "notes_new"}),
}


@pytest.mark.parametrize("point", KILLS)
async def test_killed_upgrade_is_completed_by_the_next(notes_url: str, point: str) -> None:
    statement, count, left = KILLS[point]
    async with open_notes(notes_url) as database:
        await fill(database)
    run_to_death(notes_url, "upgrade", statement, count)
    async with open_notes(notes_url) as database:
        assert await tables(database) == left
        with pytest.raises(SchemaMismatch, match="lucius db upgrade"):
            await schema.verify(database, AT_3)
        if "notes_new" in left:
            with pytest.raises(SchemaMismatch, match="is being upgraded to schema version 2"):
                await schema.verify(database, AT_1)
            # Programs of version 10 and earlier only look at this number.
            assert await fetch(database, "SELECT MAX(version) FROM schema_versions") == [(2,)]
        else:
            await schema.verify(database, AT_1)
        reports: list[int] = []
        assert await schema.upgrade(database, AT_3, lambda done, total: reports.append(done)) == 2
        if point.startswith("copy,"):
            assert reports[0] == 2 * STEP_ROWS, "it goes on after the step that was recorded"
        assert await capitals(database) == CAPITALS
        await schema.verify(database, AT_3)


async def test_killed_contract_is_completed_by_the_next(notes_url: str) -> None:
    async with open_notes(notes_url) as database:
        await fill(database)
        await schema.upgrade(database, AT_3)
    run_to_death(notes_url, "contract", "position = NULL", 1)
    async with open_notes(notes_url) as database:
        assert await tables(database) == {"notes", "notes_old"}
        assert await schema.contract(database, AT_3) == [2]
        assert await tables(database) == {"notes"}


def run_to_death(url: str, command: str, statement: str, count: int) -> None:
    words = [sys.executable, "-m", "tests.sql.mortal_upgrade", url, command, statement, str(count)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])
    assert ended.returncode == -signal.SIGKILL, ended.stderr


# --- What may go wrong -----------------------------------------------------------------------------------------------


class LosesNotes(CopyNotes):
    def step(self, position: str | None) -> Script[Moved]:
        yield Fetch("SELECT 1")
        return Moved(None, 0)


class StandsStill(CopyNotes):
    def step(self, position: str | None) -> Script[Moved]:
        yield Fetch("SELECT 1")
        return Moved("1", 0)


@pytest.mark.parametrize(("copy", "match"), [(LosesNotes(), "10 notes differ"), (StandsStill(), "stopped at '1'")])
async def test_bad_copy_is_not_swapped_and_can_be_abandoned(notes_url: str, copy: CopyNotes, match: str) -> None:
    bad = (FIRST, replace(STAGED, copy=copy))
    async with open_notes(notes_url) as database:
        await fill(database)
        for _ in range(2):
            with pytest.raises(CopyMismatch, match=match):
                await schema.upgrade(database, bad)
        assert await tables(database) == {"notes", "notes_new"}
        assert await schema.abandon(database, bad) == 2
        assert await schema.abandon(database, bad) is None
        assert await tables(database) == {"notes"}
        await schema.verify(database, AT_1)
        assert await schema.upgrade(database, AT_2) == 1
        assert await capitals(database) == CAPITALS


async def test_upgrade_without_a_way_back_is_not_abandoned(notes_url: str) -> None:
    bad = (FIRST, replace(STAGED, copy=LosesNotes(), abandon=()))
    async with open_notes(notes_url) as database:
        await fill(database)
        with pytest.raises(CopyMismatch):
            await schema.upgrade(database, bad)
        with pytest.raises(SchemaError, match="cannot be abandoned"):
            await schema.abandon(database, bad)


async def test_failing_statement_leaves_nothing_behind(notes_url: str) -> None:
    bad = (FIRST, replace(STAGED, statements=(*STAGED.statements, "ALTER TABLE nothing ADD COLUMN at_all TEXT")))
    async with open_notes(notes_url) as database:
        await fill(database)
        with pytest.raises((DatabaseUnavailable, asyncpg.PostgresError)):
            await schema.upgrade(database, bad)
        await schema.verify(database, AT_1)
        assert await tables(database) == {"notes"}


# --- Which program works with which database -------------------------------------------------------------------------


async def test_program_accepts_a_later_schema_that_says_so(notes_url: str) -> None:
    async with open_notes(notes_url) as database:
        await fill(database)
        await schema.upgrade(database, AT_3)
        await schema.verify(database, AT_2)
        assert await schema.upgrade(database, AT_2) == 0, "an older program that can work with it leaves it as it is"
        assert await schema.current_version(database) == 3
        for use in (schema.verify, schema.upgrade, schema.contract):
            with pytest.raises(SchemaMismatch, match=r"is at schema version 3.*version 2 or later.*upgrade LUCIUS"):
                await use(database, AT_1)


async def test_contract_ends_what_older_programs_could_do(notes_url: str) -> None:
    tolerant = (FIRST, replace(STAGED, oldest_program=1))
    async with open_notes(notes_url) as database:
        await fill(database)
        await schema.upgrade(database, tolerant)
        await schema.verify(database, AT_1)
        await schema.contract(database, tolerant)
        with pytest.raises(SchemaMismatch, match="version 2 or later"):
            await schema.verify(database, AT_1)


async def test_program_works_while_an_upgrade_it_can_live_with_is_under_way(notes_url: str) -> None:
    tolerant = (FIRST, replace(STAGED, oldest_program=1, copy=LosesNotes()))
    async with open_notes(notes_url) as database:
        await fill(database)
        with pytest.raises(CopyMismatch):
            await schema.upgrade(database, tolerant)
        await schema.verify(database, AT_1)
        assert await schema.upgrade(database, AT_1) == 0
        with pytest.raises(SchemaMismatch, match="in the middle of the upgrade to schema version 2"):
            await schema.verify(database, tolerant)


async def test_table_of_versions_of_an_earlier_program_is_understood(notes_url: str) -> None:
    """It has neither phases nor the oldest program, and whoever serves may not be allowed to add them."""
    async with open_notes(notes_url) as database:
        for statement in (
            "CREATE TABLE schema_versions (version BIGINT PRIMARY KEY, name TEXT NOT NULL)",
            "INSERT INTO schema_versions (version, name) VALUES (1, 'notes')",
            *FIRST.statements,
        ):
            await write(database, statement)
        await schema.verify(database, AT_1)
        with pytest.raises(SchemaMismatch, match="is at schema version 1, this program needs 2"):
            await schema.verify(database, AT_2)
        assert await schema.upgrade(database, AT_2) == 1
        await schema.verify(database, AT_2)


def test_migrations_are_numbered_in_order_and_need_no_program_that_comes_later() -> None:
    assert [migration.version for migration in schema.MIGRATIONS] == list(range(1, schema.VERSION + 1))
    assert all(migration.oldest <= migration.version for migration in schema.MIGRATIONS)
    staged: list[Migration] = [migration for migration in schema.MIGRATIONS if migration.is_staged]
    assert all(migration.abandon for migration in staged), "an upgrade that fails must have a way back"
