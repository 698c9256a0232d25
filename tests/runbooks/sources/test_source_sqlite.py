from __future__ import annotations

import resource
import sqlite3
import sys
from pathlib import Path

import pytest

from lucius.runbooks.core.definition.model import DataSource
from lucius.runbooks.sources import deadline, dialects, sql
from lucius.runbooks.sources.limits import SourceError, SourceLimits
from lucius.runbooks.sources.reading import preview, read_source, read_source_members
from lucius.runbooks.sources.rows import Rows

LIMITS = SourceLimits()
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) AS upn FROM n"


def source_of(query: str) -> DataSource:
    return DataSource(type="sql", connection="MEMBERS_DB", query=query, primary_key="upn", batch_time_column="moves")


async def read(path: Path | str, query: str, limits: SourceLimits = LIMITS, own: tuple[Path, ...] = ()) -> Rows:
    address = path if isinstance(path, str) else f"sqlite:///{path}"
    return await read_source(source_of(query), {"MEMBERS_DB": address}, limits, own)


async def message_of(path: Path | str, query: str, limits: SourceLimits = LIMITS, own: tuple[Path, ...] = ()) -> str:
    with pytest.raises(SourceError) as caught:
        await read(path, query, limits, own)
    assert str(path) not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return str(caught.value)


async def test_rows_of_a_file_are_read(members_db: Path) -> None:
    rows = await read(members_db, "SELECT upn, size FROM members ORDER BY size;")
    assert rows.columns == ("upn", "size")
    assert rows.rows[1] == ("user1@contoso.com", 1)
    assert all(type(row) is tuple for row in rows.rows)


async def test_members_are_read_in_one_go(members_db: Path) -> None:
    source = source_of("SELECT * FROM members")
    members = await read_source_members(source, {"MEMBERS_DB": f"sqlite:///{members_db}"}, LIMITS, [])
    assert len(members.members) == 5
    assert members.fault_count == 0


async def test_a_preview_has_the_first_rows(members_db: Path) -> None:
    environ = {"MEMBERS_DB": f"sqlite:///{members_db}"}
    source = source_of("SELECT upn FROM members ORDER BY size")
    assert len((await preview(source, environ, LIMITS, [])).rows) == 5
    assert (await preview(source, environ, LIMITS, [], limit=1)).rows == [("user0@contoso.com",)]


async def test_signs_of_parameters_are_plain_text(members_db: Path) -> None:
    query = "SELECT '100% :x ? %s %(y)s' AS upn FROM members WHERE upn LIKE 'user1%' -- 5% ?"
    assert (await read(members_db, query)).rows == [("100% :x ? %s %(y)s",)]


async def test_a_database_in_wal_mode_is_read_with_its_latest_rows(members_db: Path) -> None:
    writer = sqlite3.connect(members_db)
    writer.execute("PRAGMA journal_mode=WAL")
    with writer:
        writer.execute("INSERT INTO members VALUES ('new@contoso.com', NULL, 9)")
    assert len((await read(members_db, "SELECT upn FROM members")).rows) == 6
    writer.close()
    assert len((await read(members_db, "SELECT upn FROM members")).rows) == 6


async def test_a_full_text_index_is_read(members_db: Path) -> None:
    with sqlite3.connect(members_db) as connection:
        connection.execute("CREATE VIRTUAL TABLE notes USING fts5(upn)")
        connection.execute("INSERT INTO notes VALUES ('first one')")
    connection.close()
    assert (await read(members_db, "SELECT upn FROM notes WHERE notes MATCH 'first'")).rows == [("first one",)]


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM members",
        "DELETE FROM members RETURNING upn",
        "WITH gone AS (SELECT 1) DELETE FROM members RETURNING upn",
        "INSERT INTO members VALUES ('x', NULL, 1) RETURNING upn",
        "CREATE TABLE other (x)",
        "PRAGMA query_only=OFF",
        "PRAGMA user_version=7",
        "BEGIN IMMEDIATE",
        "SELECT upn FROM members; DELETE FROM members",
        "SELECT upn FROM members; SELECT 1",
    ],
)
async def test_nothing_but_one_select_runs(unchecked: None, members_db: Path, query: str) -> None:
    before = members_db.read_bytes()
    message = await message_of(members_db, query)
    assert "the query of the source MEMBERS_DB failed: " in message
    assert members_db.read_bytes() == before


async def test_no_other_file_is_attached(unchecked: None, members_db: Path, tmp_path: Path) -> None:
    other = tmp_path / "lucius.db"
    sqlite3.connect(other).close()
    assert "the query would write" in await message_of(members_db, f"ATTACH DATABASE '{other}' AS own", own=(other,))
    assert "the query would write" in await message_of(members_db, f"VACUUM INTO '{tmp_path / 'copy.db'}'")
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize("way", ["path", "symlink", "hardlink", "dots", "folder"])
async def test_the_own_database_is_refused_by_whatever_name(members_db: Path, tmp_path: Path, way: str) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    named = folder / "link.db"
    if way == "path":
        named = members_db
    elif way == "symlink":
        named.symlink_to(members_db)
    elif way == "hardlink":
        named.hardlink_to(members_db)
    elif way == "dots":
        named = folder / ".." / members_db.name
    else:
        (folder / "again").symlink_to(tmp_path)
        named = folder / "again" / members_db.name
    assert "LUCIUS's own database" in await message_of(named, "SELECT upn FROM members", own=(members_db,))
    assert len((await read(named, "SELECT upn FROM members")).rows) == 5


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("sqlite://", "plain path"),
        ("sqlite:///:memory:", "plain path"),
        ("sqlite:///file:x.db?mode=memory&uri=true", "plain path"),
        ("sqlite:////tmp/x.db?mode=rw", "plain path"),
        ("sqlite+aiosqlite:////tmp/x.db", "driver 'sqlite\\+aiosqlite'"),
        ("sqlite:////nowhere/s3cret.db", "cannot be read: No such file"),
        ("sqlite:////", "not a regular file"),
        ("s3cret", "MEMBERS_DB is not a SQLAlchemy URL"),
        ("nonesuch://u:s3cret@h/d", "SQLAlchemy does not know the database 'nonesuch'"),
        ("postgresql+asyncpg://u:s3cret@localhost/d", "asynchronous"),
        ("mysql+pymysql://u:s3cret@localhost/d", "install the Python package 'pymysql'"),
    ],
)
async def test_an_address_that_cannot_be_used_is_told_without_showing_it(address: str, told: str) -> None:
    with pytest.raises(SourceError, match=told) as caught:
        await read(address, "SELECT 1 AS upn")
    assert "s3cret" not in str(caught.value)


async def test_a_missing_sqlalchemy_names_the_extra(members_db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert "pip install '.[sources]' in a clone of LUCIUS" in await message_of(members_db, "SELECT upn FROM members")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT nonesuch FROM members", "no such column: nonesuch"),
        ("SELECT upn FROM nonesuch", "no such table: nonesuch"),
        ("SELECT upn FROM", "incomplete input"),
        ("SELECT upn FROM members WHERE OR", "syntax error"),
        ("SELECT CAST(x'73656372657480ff' AS TEXT) AS upn", "OperationalError"),
        ("SELECT json('secret') AS upn", "SQLITE_ERROR"),
        ("SELECT upn, upn FROM members", "at most in letter case"),
        ('SELECT upn AS "a,b", 1 AS _x FROM members', "begins with _"),
    ],
)
async def test_a_query_that_fails_says_why_without_a_row(members_db: Path, query: str, told: str) -> None:
    message = await message_of(members_db, query)
    assert told in message
    assert "secret" not in message


async def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"secret " * 1000)
    message = await message_of(tmp_path / "x.db", "SELECT 1 AS upn FROM sqlite_schema")
    assert "file is not a database" in message


async def test_limits_of_rows_columns_and_text_are_kept(members_db: Path) -> None:
    query = "SELECT upn, size FROM members"
    assert len((await read(members_db, query, SourceLimits(rows_max=5))).rows) == 5
    assert "more than 4 rows: narrow the query or raise LUCIUS_SOURCE_ROWS_MAX" in await message_of(
        members_db, query, SourceLimits(rows_max=4)
    )
    assert "2 columns; at most 1" in await message_of(members_db, query, SourceLimits(columns_max=1))
    assert "in one cell of the column 'upn'" in await message_of(members_db, query, SourceLimits(cell_chars_max=5))
    assert "50 characters in all" in await message_of(members_db, query, SourceLimits(result_chars_max=50))


async def test_the_row_limit_ends_a_query_without_end(members_db: Path) -> None:
    query = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS upn FROM n"
    assert "more than 3000 rows" in await message_of(members_db, query, SourceLimits(rows_max=3_000))


async def test_a_query_that_takes_too_long_ends_by_itself_with_its_thread(
    members_db: Path, monkeypatch: pytest.MonkeyPatch, source_threads_end: None
) -> None:
    monkeypatch.setattr(sql, "wake_of", lambda connection: None)
    message = await message_of(members_db, ENDLESS, SourceLimits(query_seconds=0.3))
    assert "ran longer than 0.3 s and was stopped: make it faster or raise" in message
    assert "left behind" not in message


async def test_a_query_that_does_not_stop_by_itself_is_interrupted(
    members_db: Path, monkeypatch: pytest.MonkeyPatch, source_threads_end: None
) -> None:
    monkeypatch.setattr(dialects, "_PROGRESS_INSTRUCTIONS", 0)
    monkeypatch.setattr(deadline, "MARGIN_SECONDS", 0.2)
    # The thread may need longer to end on a slow machine; what it says then is true as well.
    message = await message_of(members_db, ENDLESS, SourceLimits(query_seconds=0.3))
    assert "ran longer than 0.3 s and was stopped" in message


NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 3000) "
TOO_LARGE = "a value or a row has more than 262144 bytes"
HUNGRY = {
    "a blob": ("SELECT zeroblob(900000000) AS upn", TOO_LARGE),
    "random bytes": ("SELECT hex(randomblob(900000000)) AS upn", TOO_LARGE),
    "replacement": ("SELECT replace(hex(zeroblob(50000)), '0', hex(zeroblob(50000))) AS upn", TOO_LARGE),
    "gathering": (NUMBERS + "SELECT group_concat(hex(zeroblob(50000))) AS upn FROM n", TOO_LARGE),
    "JSON": (NUMBERS + "SELECT json_group_array(hex(zeroblob(50000))) AS upn FROM n", TOO_LARGE),
    "doubling": (
        "WITH RECURSIVE n(x) AS (SELECT 'x' UNION ALL SELECT x || x FROM n) SELECT max(length(x)) AS upn FROM n",
        TOO_LARGE,
    ),
    "many large cells": (
        NUMBERS + "SELECT hex(zeroblob(130000)) AS upn, hex(zeroblob(130000)) AS a FROM n",
        "more than 32768 characters in one cell",
    ),
    "bytes in all": (
        NUMBERS + "SELECT zeroblob(30000) AS upn, zeroblob(30000) AS a, zeroblob(30000) AS b FROM n",
        "more than 134217728 characters in all",
    ),
    "a deep expression": ("SELECT 1" + " + 1" * 600 + " AS upn", "Expression tree is too large"),
    "many selects": (" UNION ALL ".join(["SELECT 1 AS upn"] * 120), "too many terms in compound SELECT"),
    "a long pattern": (f"SELECT 'x' LIKE '{'%x' * 600}' AS upn", "LIKE or GLOB pattern too complex"),
}


@pytest.mark.parametrize("what", HUNGRY)
async def test_a_query_cannot_take_all_the_memory(members_db: Path, what: str) -> None:
    query, told = HUNGRY[what]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert told in await message_of(members_db, query)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000, "kilobytes"


async def test_padding_beyond_the_limit_gives_nothing(members_db: Path) -> None:
    assert (await read(members_db, "SELECT printf('%*d', 900000000, 1) AS upn")).rows == [(None,)]


async def test_numbers_count_as_well(members_db: Path) -> None:
    limits = SourceLimits(result_chars_max=1_000)
    assert "1000 characters in all" in await message_of(members_db, NUMBERS + "SELECT x AS upn FROM n", limits)
