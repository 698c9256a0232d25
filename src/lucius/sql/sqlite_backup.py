"""Backups of a SQLite file: made while its owner runs, checked, and put back in one step.

A backup is one consistent state, read in one transaction: writers go on meanwhile. It is a file of its own without a
write-ahead log. Both directions write a copy beside the target and rename it once it is whole, checked and on the disk.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import apsw

from lucius.private_files import PRIVATE_FILE
from lucius.sql.database import DatabaseUnavailable
from lucius.sql.migration import SchemaMismatch
from lucius.sql.schema_state import SchemaState, read_state
from lucius.sql.sqlite_connection import drive, unavailable

BUSY_MILLISECONDS = 5_000
STEP_PAGES = 1_024
_LOGS = ("-wal", "-shm", "-journal")


def back_up(path: Path, target: Path) -> SchemaState:
    """Copy the database file to a new file; what state it is in. The file may be in use."""
    if not path.is_file():
        raise DatabaseUnavailable(f"there is no file {path}")
    _refuse_to_overwrite(target)
    copy = target.with_name(f"{target.name}.part")
    try:
        state = _checked_copy(path, copy)
        _refuse_to_overwrite(target)
        copy.replace(target)
    except OSError as error:
        raise DatabaseUnavailable(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        _remove(copy)
    sync(target.parent)
    return state


def restore(backup: Path, path: Path, program: int) -> SchemaState:
    """Put a backup in the place of the database file; what state it is in. Whoever calls owns the file.

    The file that was there is kept beside it, with `.replaced` at the end of its name."""
    if not backup.is_file():
        raise DatabaseUnavailable(f"there is no file {backup}")
    if path.exists() and backup.samefile(path):
        raise DatabaseUnavailable(f"{backup} is the database itself")
    copy = path.with_name(f"{path.name}.restore")
    try:
        state = _checked_copy(backup, copy)
        too_new = state.too_new_for(program)
        if too_new is not None:
            raise SchemaMismatch(f"{backup} {too_new}: upgrade LUCIUS")
        if path.exists():
            _set_aside(path)
        copy.replace(path)
    except OSError as error:
        raise DatabaseUnavailable(f"{path} cannot be replaced: {error.strerror or error}") from error
    finally:
        _remove(copy)
    sync(path.parent)
    return state


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_to_overwrite(target: Path) -> None:
    if target.exists():
        raise DatabaseUnavailable(f"{target} exists already: name a file that does not")


def _checked_copy(path: Path, copy: Path) -> SchemaState:
    _remove(copy)  # A process that was killed may have left one.
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE))
    try:
        _copy_pages(path, copy)
        with closing(apsw.Connection(str(copy))) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            faults = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
            if faults != ["ok"]:
                raise DatabaseUnavailable(f"{path} is damaged: {'; '.join(faults)}")
            state = drive(connection.cursor(), read_state(is_shared=False))
    except apsw.NotADBError as error:
        raise DatabaseUnavailable(f"{path} is not a SQLite file") from error
    except apsw.Error as error:
        raise unavailable(error) from error
    if not state.version:
        raise DatabaseUnavailable(f"{path} is not a database of LUCIUS")
    sync(copy)
    return state


def _copy_pages(path: Path, copy: Path) -> None:
    with (
        closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as source,
        closing(apsw.Connection(str(copy))) as target,
    ):
        source.set_busy_timeout(BUSY_MILLISECONDS)
        target.execute("PRAGMA synchronous = OFF")
        # One transaction around all steps: else whatever the owner writes meanwhile starts the copy anew.
        source.execute("BEGIN")
        source.execute("SELECT COUNT(*) FROM sqlite_master").fetchall()
        with target.backup("main", source, "main") as steps:
            while not steps.done:
                steps.step(STEP_PAGES)
        source.execute("COMMIT")


def _set_aside(path: Path) -> None:
    """Keep the file under another name too, and leave no log at its own: it would be taken for that of the new file."""
    kept = path.with_name(f"{path.name}.replaced")
    _remove(kept)
    log = path.with_name(f"{path.name}-wal")
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.set_busy_timeout(BUSY_MILLISECONDS)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (apsw.CorruptError, apsw.NotADBError):
        log.unlink(missing_ok=True)  # What is in it cannot be brought into a damaged file.
    except apsw.Error as error:
        raise unavailable(error) from error
    if log.exists():
        raise DatabaseUnavailable(f"another program has {path} open: close it, then restore again")
    for suffix in _LOGS:
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
    os.link(path, kept)


def _remove(copy: Path) -> None:
    for suffix in ("", *_LOGS):
        copy.with_name(f"{copy.name}{suffix}").unlink(missing_ok=True)
