"""Space: what is removed from a SQLite file is given back to the disk, while others go on writing."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.sql.many_jobs import JOBS, OPEN_JOBS, fill

from lucius.roles import db_compact, prune
from lucius.settings import Settings, SettingsError
from lucius.sql import sqlite_space
from lucius.sql.database import DatabaseUnavailable, Fetch, Run, Script
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.sqlite_connection import LOG_BYTES_MAX

ROWS, ROW_BYTES = 6_000, 4_000
MEGABYTE = 1 << 20


async def write(database: SqliteDatabase, sql: str, *rows: tuple[object, ...]) -> None:
    def script() -> Script[None]:
        yield Run(sql, rows or ((),))

    await database.write(script)


async def grow(database: SqliteDatabase) -> None:
    """Some 24 MB, and all but the newest tenth of it removed again."""
    rows = [(f"{place:06d}" + "x" * ROW_BYTES, place) for place in range(ROWS)]
    for first in range(0, ROWS, 500):
        await write(database, "INSERT INTO inflight (scope, jobs) VALUES ($1, $2)", *rows[first : first + 500])
    await write(database, "DELETE FROM inflight WHERE jobs < $1", (ROWS * 9 // 10,))


def checked(path: Path) -> str:
    with closing(apsw.Connection(str(path))) as connection:
        return str(connection.pragma("integrity_check"))


async def test_file_shrinks_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_space, "CHECK_SECONDS", 0.05)
    path = tmp_path / "lucius.db"
    async with SqliteDatabase(path) as database:
        await upgrade(database)
        await grow(database)
        written, deadline = 0, time.monotonic() + 60
        while path.stat().st_size > 8 * MEGABYTE:
            assert time.monotonic() < deadline, f"the file still has {path.stat().st_size:,} bytes"
            await write(database, "INSERT INTO inflight (scope, jobs) VALUES ($1, 1)", (f"meanwhile {written}",))
            written += 1
            await asyncio.sleep(0.005)
        assert written, "the file was small before anything was given back"

        def count() -> Script[int]:
            return (yield Fetch("SELECT COUNT(*) FROM inflight"))[0][0]  # type: ignore[no-any-return]

        assert await database.read(count) == ROWS // 10 + written
    assert checked(path) == "ok"


def test_prune_gives_back_what_it_frees(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path))
    path = tmp_path / "lucius.db"
    asyncio.run(_make(path))
    size_before = path.stat().st_size
    assert prune(settings, 1.0) == f"{JOBS - OPEN_JOBS} jobs removed."
    assert path.stat().st_size < size_before / 3
    assert not path.with_name("lucius.db-wal").exists()
    assert checked(path) == "ok"


async def test_log_does_not_stay_as_long_as_a_reader_made_it(sqlite_database: SqliteDatabase) -> None:
    log_file = sqlite_database.path.with_name("lucius.db-wal")
    reader = apsw.Connection(str(sqlite_database.path))
    reader.execute("BEGIN")
    assert list(reader.execute("SELECT COUNT(*) FROM inflight")) == [(0,)]
    for _ in range(2):
        await grow(sqlite_database)
        await write(sqlite_database, "DELETE FROM inflight")
    assert log_file.stat().st_size > LOG_BYTES_MAX
    reader.close()
    for place in range(3):
        await write(sqlite_database, "INSERT INTO inflight (scope, jobs) VALUES ($1, 1)", (str(place),))
    assert log_file.stat().st_size <= LOG_BYTES_MAX


# --- A file that an earlier version made -----------------------------------------------------------------------------


async def _make(path: Path, *, is_old: bool = False) -> None:
    if is_old:
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE schema_versions (version BIGINT PRIMARY KEY, name TEXT NOT NULL)")
    async with SqliteDatabase(path) as database:
        await upgrade(database)
        await fill(database)


def test_old_file_is_pruned_keeps_its_size_and_is_compacted_on_request(tmp_path: Path) -> None:
    settings, path = Settings(data=str(tmp_path)), tmp_path / "lucius.db"
    asyncio.run(_make(path, is_old=True))
    size_before = path.stat().st_size
    assert "run 'lucius db compact'" in prune(settings, 1.0)
    assert path.stat().st_size == size_before
    rows_before = _rows(path)
    path.with_name("lucius.db.compact").write_bytes(b"left by a crash")
    path.chmod(0o600)
    assert "MiB before" in db_compact(settings)
    assert path.stat().st_size < size_before / 3
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lucius.db", "lucius.db.owner"]
    assert (checked(path), _rows(path)) == ("ok", rows_before)
    assert prune(settings, 1.0) == "0 jobs removed.", "the file shrinks by itself from now on"


def _rows(path: Path) -> list[object]:
    with closing(apsw.Connection(str(path))) as connection:
        return [
            *connection.execute("SELECT * FROM job_states ORDER BY job_id"),
            *connection.execute("SELECT * FROM sqlite_sequence"),
        ]


async def test_old_file_is_served_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_space, "CHECK_SECONDS", 0.01)
    path = tmp_path / "lucius.db"
    await _make(path, is_old=True)
    async with SqliteDatabase(path) as database:
        size_before = path.stat().st_size
        await write(database, "DELETE FROM job_states")
        await asyncio.sleep(0.2)
        assert path.stat().st_size == size_before


async def test_file_in_use_is_not_compacted(tmp_path: Path) -> None:
    path = tmp_path / "lucius.db"
    await _make(path)
    async with SqliteDatabase(path):
        with pytest.raises(DatabaseUnavailable, match="is owned by process"):
            SqliteDatabase(path).compact()
    intruder = apsw.Connection(str(path))
    assert list(intruder.execute("SELECT COUNT(*) FROM inflight")) == [(0,)]
    with pytest.raises(DatabaseUnavailable, match="another program has"):
        SqliteDatabase(path).compact()
    intruder.close()
    assert SqliteDatabase(path).compact().bytes_after > 0


async def test_compacting_says_how_much_room_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lucius.db"
    await _make(path)
    monkeypatch.setattr(sqlite_space, "COPY_ROOM", 1e12)
    with pytest.raises(DatabaseUnavailable, match="MiB of free space in its folder"):
        SqliteDatabase(path).compact()
    assert checked(path) == "ok"


def test_only_a_file_is_compacted() -> None:
    with pytest.raises(SettingsError, match="PostgreSQL frees space by itself"):
        db_compact(Settings(ledger="postgresql://nobody@127.0.0.1:9/nothing"))
