"""A connection to a SQLite file, and how a script runs on one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from lucius.sql.database import DatabaseUnavailable, Fetch, Row, Run, Script
from lucius.sql.dialect import CHUNKS, for_many_rows, to_sqlite

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode

BUSY_MILLISECONDS = 100
"""Nobody else should ever hold the file's lock; somebody who looks into it with a tool may, for a moment."""
CACHE_KIB = 32_768
CHECKPOINT_PAGES = 4_000
LOG_BYTES_MAX = 33_554_432
"""What is left of a write-ahead log that a long read had let grow, once its pages are in the file."""


class Task:
    __slots__ = ("future", "script")

    def __init__(self, script: Callable[[], Any]) -> None:
        self.script = script
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


def resolve(group: Sequence[Task], results: Sequence[Any]) -> None:
    for task, result in zip(group, results, strict=True):
        if task.future.done():
            continue
        if isinstance(result, BaseException):
            task.future.set_exception(result)
        else:
            task.future.set_result(result)


def drive(cursor: apsw.Cursor, script: Script[T]) -> T:
    result, writes = drive_to_last_read(cursor, script)
    run_all(cursor, writes)
    return result


def drive_to_last_read(cursor: apsw.Cursor, script: Script[T]) -> tuple[T, list[Run]]:
    """Run a script but for the writes after its last read; its result, and those writes."""
    writes: list[Run] = []
    rows: list[Row] = []
    try:
        statement = next(script)
        while True:
            if isinstance(statement, Fetch):
                run_all(cursor, writes)
                writes = []
                rows = list(cursor.execute(to_sqlite(statement.sql), [_bindable(arg) for arg in statement.args]))
            else:
                writes.append(statement)
                rows = []
            statement = script.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result, writes


def run_all(cursor: apsw.Cursor, writes: Sequence[Run]) -> None:
    for write in writes:
        _run_many(cursor, write)


def _run_many(cursor: apsw.Cursor, statement: Run) -> None:
    """Take the rows in the largest chunks there are, and what is left one by one."""
    rows, done = statement.rows, 0
    for size in CHUNKS:
        while len(rows) - done >= size:
            sql = for_many_rows(statement.sql, size)
            if sql is None:
                break
            cursor.execute(sql, tuple(chain.from_iterable(rows[done : done + size])))
            done += size
    if done < len(rows):
        rest = rows[done:]
        if any(isinstance(arg, list) for arg in rest[0]):
            rest = [[_bindable(arg) for arg in row] for row in rest]
        cursor.executemany(to_sqlite(statement.sql), rest)


def _bindable(value: Any) -> Any:
    return _encode(value).decode() if isinstance(value, list | tuple) else value


def unavailable(error: apsw.Error) -> DatabaseUnavailable:
    failure = DatabaseUnavailable(f"SQLite: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def keep_plans(connection: apsw.Connection) -> None:
    """A plan serves whatever is bound: else a `LIMIT ?` alone has SQLite prepare its statement anew each time."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def connect(path: Path, read_only: bool) -> apsw.Connection:
    connection = apsw.Connection(str(path), statementcachesize=512)
    keep_plans(connection)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    if not read_only:
        # Takes effect in a file without tables; one that has some is as it was made. See `sqlite_space`.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB if not read_only else CACHE_KIB // 4}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_MAX}")
    connection.execute("PRAGMA temp_store = MEMORY")
    # What is deleted is overwritten: a settled directive leaves its callback token nowhere in the file.
    connection.execute("PRAGMA secure_delete = FAST")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection
