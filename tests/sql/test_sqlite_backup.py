"""Backups of a SQLite file: made while it is in use, checked, private, and restored in one step."""

from __future__ import annotations

import asyncio
import shutil
import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from lucius.roles import db_backup, db_restore
from lucius.settings import Settings, SettingsError
from lucius.sql import schema, sqlite_backup
from lucius.sql.database import DatabaseUnavailable, Run, Script
from lucius.sql.migration import SchemaMismatch
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.sqlite_backup import back_up

ROWS = 3_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of some megabytes, closed."""
    path = tmp_path / "data" / "lucius.db"
    asyncio.run(_make(path))
    return path


async def _make(path: Path) -> None:
    async with SqliteDatabase(path) as database:
        await schema.upgrade(database)
        await database.write(lambda: insert([(f"{number:04d}{'x' * 900}", 1) for number in range(ROWS)]))


def insert(rows: list[tuple[str, int]]) -> Script[None]:
    yield Run("INSERT INTO inflight (scope, jobs) VALUES ($1, $2)", rows)


def scopes(path: Path) -> list[str]:
    with closing(apsw.Connection(str(path))) as connection:
        return [row[0][:4] for row in connection.execute("SELECT scope FROM inflight ORDER BY scope")]


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


async def test_backup_of_a_file_in_use_is_one_state_of_it(tmp_path: Path, path: Path) -> None:
    """Rows come in pairs, each in one transaction, while the pages are copied."""
    target = tmp_path / "backup.db"
    async with SqliteDatabase(path) as database:
        copying = asyncio.create_task(asyncio.to_thread(back_up, path, target))
        pairs = 0
        while not copying.done() or not pairs:
            await database.write(lambda: insert([(f"a{pairs}", 1), (f"b{pairs}", 1)]))  # noqa: B023 - runs at once
            pairs += 1
            await asyncio.sleep(0)
        assert (await copying).version == schema.VERSION
        await database.write(lambda: insert([("after", 1)]))
    found = scopes(target)
    assert len(found) >= ROWS
    assert "after" not in found
    firsts, seconds = ({name[1:] for name in found if name.startswith(letter)} for letter in "ab")
    assert firsts == seconds
    assert files(tmp_path) == ["backup.db", "data"]
    assert target.stat().st_mode & 0o777 == 0o600


def test_backup_goes_on_while_the_owner_writes(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that began anew with every write would never end."""
    monkeypatch.setattr(sqlite_backup, "STEP_PAGES", 50)
    stopped = threading.Event()
    writing = threading.Event()

    def write() -> None:
        with closing(apsw.Connection(str(path))) as connection:
            connection.set_busy_timeout(5_000)
            number = 0
            while not stopped.is_set():
                connection.execute("INSERT INTO inflight (scope, jobs) VALUES (?, 1)", (f"meanwhile {number}",))
                number += 1
                writing.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert writing.wait(30)
        back_up(path, tmp_path / "backup.db")
    finally:
        stopped.set()
        writer.join()
    assert len(scopes(tmp_path / "backup.db")) > ROWS


def test_backup_does_not_overwrite(tmp_path: Path, path: Path) -> None:
    target = tmp_path / "backup.db"
    target.write_text("precious")
    with pytest.raises(DatabaseUnavailable, match="exists already"):
        back_up(path, target)
    assert target.read_text() == "precious"


def test_backup_that_was_killed_is_not_in_the_way(tmp_path: Path, path: Path) -> None:
    (tmp_path / "backup.db.part").write_bytes(b"left by a crash")
    (tmp_path / "backup.db.part-journal").write_bytes(b"left by a crash")
    back_up(path, tmp_path / "backup.db")
    assert files(tmp_path) == ["backup.db", "data"]


def test_backup_has_what_a_killed_server_left_in_its_log(tmp_path: Path, path: Path) -> None:
    _leave_log(path, tmp_path)
    back_up(path, tmp_path / "backup.db")
    assert "left" in scopes(tmp_path / "backup.db")
    assert "left" in scopes(path)


def test_backup_says_what_cannot_be_backed_up(tmp_path: Path, path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match=r"there is no file .*nothing\.db"):
        back_up(tmp_path / "nothing.db", tmp_path / "backup.db")
    with pytest.raises(DatabaseUnavailable, match="cannot be written: No such file or directory"):
        back_up(path, tmp_path / "no folder" / "backup.db")
    assert files(tmp_path) == ["data"]


def test_damaged_file_is_named_and_gives_no_backup(tmp_path: Path, path: Path) -> None:
    damage(path)
    with pytest.raises(DatabaseUnavailable, match=r"damaged|malformed"):
        back_up(path, tmp_path / "backup.db")
    assert files(tmp_path) == ["data"]


def damage(path: Path) -> None:
    """Overwrite pages in the middle."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 20_000)


# --- Restore ---------------------------------------------------------------------------------------------------------


def test_restore_brings_back_what_was_backed_up(tmp_path: Path, path: Path) -> None:
    settings, target = Settings(data=str(path.parent)), tmp_path / "backup.db"
    assert f"at schema version {schema.VERSION}" in db_backup(settings, target)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("DELETE FROM inflight")
    target.chmod(0o400)
    said = db_restore(settings, target)
    assert "restored from" in said
    assert "lucius.db.replaced" in said
    assert len(scopes(path)) == ROWS
    assert scopes(path.with_name("lucius.db.replaced")) == []
    assert files(path.parent) == ["lucius.db", "lucius.db.owner", "lucius.db.replaced"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert target.exists()
    asyncio.run(_write_one(path))


async def _write_one(path: Path) -> None:
    async with SqliteDatabase(path) as database:
        await schema.verify(database)
        await database.write(lambda: insert([("later", 1)]))


def test_restore_into_a_new_folder(tmp_path: Path, path: Path) -> None:
    back_up(path, tmp_path / "backup.db")
    assert "replaced" not in db_restore(Settings(data=str(tmp_path / "new")), tmp_path / "backup.db")
    assert len(scopes(tmp_path / "new" / "lucius.db")) == ROWS


async def test_restore_is_refused_while_the_file_has_an_owner(tmp_path: Path, path: Path) -> None:
    back_up(path, tmp_path / "backup.db")
    async with SqliteDatabase(path) as database:
        with pytest.raises(DatabaseUnavailable, match=r"owned by process \d+"):
            SqliteDatabase(path).restore(tmp_path / "backup.db", schema.VERSION)
        await database.write(lambda: insert([("still here", 1)]))


def test_restore_is_refused_while_another_program_has_the_file_open(tmp_path: Path, path: Path) -> None:
    back_up(path, tmp_path / "backup.db")
    with closing(apsw.Connection(str(path))) as intruder:
        intruder.execute("INSERT INTO inflight (scope, jobs) VALUES ('mine', 1)")
        with pytest.raises(DatabaseUnavailable, match="another program has"):
            SqliteDatabase(path).restore(tmp_path / "backup.db", schema.VERSION)
        assert list(intruder.execute("SELECT COUNT(*) FROM inflight")) == [(ROWS + 1,)]


def test_restore_takes_no_log_of_the_replaced_file_for_its_own(tmp_path: Path, path: Path) -> None:
    """As a killed server leaves it: a log with commits that are not in the file."""
    back_up(path, tmp_path / "backup.db")
    _leave_log(path, tmp_path)
    SqliteDatabase(path).restore(tmp_path / "backup.db", schema.VERSION)
    assert "left" not in scopes(path)
    assert "left" in scopes(path.with_name("lucius.db.replaced"))


def _leave_log(path: Path, folder: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("INSERT INTO inflight (scope, jobs) VALUES ('left', 1)")
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", folder / f"killed{suffix}")
    for suffix in ("", "-wal"):
        shutil.move(folder / f"killed{suffix}", f"{path}{suffix}")


def test_damaged_database_is_replaced_and_kept(tmp_path: Path, path: Path) -> None:
    back_up(path, tmp_path / "backup.db")
    _leave_log(path, tmp_path)
    with path.open("r+b") as file:
        file.write(b"no database" * 100)
    SqliteDatabase(path).restore(tmp_path / "backup.db", schema.VERSION)
    assert len(scopes(path)) == ROWS
    assert path.with_name("lucius.db.replaced").read_bytes().startswith(b"no database")
    assert files(path.parent) == ["lucius.db", "lucius.db.owner", "lucius.db.replaced"]


@pytest.mark.parametrize(
    ("content", "match"),
    [(b"no database at all" * 500, "is not a SQLite file"), (b"", "is not a database of LUCIUS")],
)
def test_what_is_no_backup_is_refused_and_changes_nothing(
    tmp_path: Path, path: Path, content: bytes, match: str
) -> None:
    (tmp_path / "backup.db").write_bytes(content)
    with pytest.raises(DatabaseUnavailable, match=match):
        SqliteDatabase(path).restore(tmp_path / "backup.db", schema.VERSION)
    assert len(scopes(path)) == ROWS
    assert files(path.parent) == ["lucius.db", "lucius.db.owner"]


def test_damaged_backup_is_refused_and_changes_nothing(tmp_path: Path, path: Path) -> None:
    back_up(path, tmp_path / "backup.db")
    damage(tmp_path / "backup.db")
    with pytest.raises(DatabaseUnavailable, match=r"damaged|malformed"):
        SqliteDatabase(path).restore(tmp_path / "backup.db", schema.VERSION)
    with pytest.raises(DatabaseUnavailable, match="there is no file"):
        SqliteDatabase(path).restore(tmp_path / "nothing.db", schema.VERSION)
    with pytest.raises(DatabaseUnavailable, match="is the database itself"):
        SqliteDatabase(path).restore(path, schema.VERSION)
    assert len(scopes(path)) == ROWS


def test_backup_of_a_later_version_is_refused_and_one_of_an_earlier_is_upgraded(tmp_path: Path, path: Path) -> None:
    later = tmp_path / "later.db"
    back_up(path, later)
    with closing(apsw.Connection(str(later))) as connection:
        connection.execute("INSERT INTO schema_versions (version, name) VALUES (?, '')", (schema.VERSION + 1,))
    with pytest.raises(SchemaMismatch, match="upgrade LUCIUS"):
        SqliteDatabase(path).restore(later, schema.VERSION)

    earlier = tmp_path / "earlier.db"
    asyncio.run(_make_earlier(earlier))
    assert "'lucius db upgrade'" in db_restore(Settings(data=str(path.parent)), earlier)
    assert asyncio.run(_upgraded(path)) == 1


async def _make_earlier(path: Path) -> None:
    async with SqliteDatabase(path) as database:
        await schema.upgrade(database, schema.MIGRATIONS[:-1])


async def _upgraded(path: Path) -> int:
    async with SqliteDatabase(path) as database:
        return await schema.upgrade(database)


def test_backup_of_postgresql_names_its_own_tools(tmp_path: Path) -> None:
    settings = Settings(ledger="postgresql://nobody@127.0.0.1:9/nothing")
    with pytest.raises(SettingsError, match="pg_dump --format=custom"):
        db_backup(settings, tmp_path / "backup")
    with pytest.raises(SettingsError, match="pg_restore "):
        db_restore(settings, tmp_path / "backup")
