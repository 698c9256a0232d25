"""SQLite: one file, one owner, one writer.

The writer takes every script that has gathered and commits them together: a commit costs an fsync, and whoever waits
for one shares it. Each script stands on its own savepoint, so one that fails takes nobody with it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import apsw

from lucius.sql.database import DatabaseUnavailable, Fetch, Row, Run, RunAgain, Script
from lucius.sql.dialect import CHUNKS, for_many_rows, to_sqlite

T = TypeVar("T")

_CLOSED = DatabaseUnavailable("the database is closed")
RUNS_MAX = 5
"""How often a script that asks for it is run again."""
GROUP_MAX = 64
"""Scripts in one commit."""
SMALL_COMMIT_ROWS = 40
"""A commit of no more than the rows of one job's turn is over sooner than a thread has woken to make it."""
BUSY_MILLISECONDS = 100
"""Nobody else should ever hold the file's lock; somebody who looks into it with a tool may, for a moment."""
CACHE_KIB = 32_768
CHECKPOINT_PAGES = 4_000


class _Task:
    __slots__ = ("future", "script")

    def __init__(self, script: Callable[[], Script[Any]]) -> None:
        self.script = script
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class _Thread:
    """A thread that does one thing after another and tells the event loop how each went."""

    def __init__(self, name: str) -> None:
        self._orders: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, act: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._orders.put((act, done))

    def stop(self) -> None:
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            act, done = order
            try:
                outcome = act()
            except Exception as error:  # Without this thread nobody would ever be answered again.
                outcome = error
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(done, outcome)


class _Writer:
    """Runs scripts in the event loop's own thread and only waits for the disk elsewhere.

    A statement is a few microseconds of work, for which SQLite gives up the interpreter lock and then has to wait for
    it: in a thread of its own, half of a transaction's time went into such waits. A commit is where the disk is waited
    for, and what arrives meanwhile makes up the next group.
    """

    def __init__(self, path: Path) -> None:
        self._connection = _connect(path, read_only=False)
        self._cursor = self._connection.cursor()
        self._committer = _Thread("sqlite-commit")
        self._waiting: list[_Task] = []
        self._is_busy = False
        self._is_closed = False

    async def submit(self, script: Callable[[], Script[T]]) -> T:
        task = _Task(script)
        if self._is_closed:
            raise _CLOSED
        self._waiting.append(task)
        if not self._is_busy:
            self._is_busy = True
            asyncio.get_running_loop().call_soon(self._begin)
        result: T = await task.future
        return result

    async def close(self) -> None:
        """Finish the commit under way; whoever waits for the next one is told that there is none."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, []
        _resolve(waiting, [_CLOSED] * len(waiting))
        await asyncio.to_thread(self._committer.stop)
        self._connection.close()

    def _begin(self) -> None:
        if self._is_closed:
            return
        group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
        changes_before = self._connection.total_changes()
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
            results = [self._run_one(task) for task in group]
        except apsw.Error as error:
            self._roll_back()
            self._finish(group, [unavailable(error)] * len(group))
            return
        if self._connection.total_changes() - changes_before <= SMALL_COMMIT_ROWS:
            failure = self._commit()
            self._finish(group, [failure] * len(group) if failure else results)
            return
        self._committer.do(
            self._commit, lambda failure: self._finish(group, [failure] * len(group) if failure else results)
        )

    def _run_one(self, task: _Task) -> Any:
        """Run one script on its savepoint: its result, or what it failed with."""
        cursor = self._cursor
        cursor.execute("SAVEPOINT script")
        result: Any = unavailable(apsw.BusyError(f"the script asked {RUNS_MAX} times to be run again"))
        for _ in range(RUNS_MAX):
            try:
                result = drive(cursor, task.script())
                break
            except RunAgain:
                cursor.execute("ROLLBACK TO script")
            except (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.NotADBError):
                raise  # The transaction itself may be gone: nobody in the group can be told it was written.
            except Exception as error:
                cursor.execute("ROLLBACK TO script")
                result = unavailable(error) if isinstance(error, apsw.Error) else error
                break
        cursor.execute("RELEASE script")
        return result

    def _commit(self) -> DatabaseUnavailable | None:
        try:
            self._cursor.execute("COMMIT")
        except apsw.Error as error:
            self._roll_back()
            return unavailable(error)
        return None

    def _roll_back(self) -> None:
        with suppress(apsw.Error):  # Where even this fails, the next BEGIN fails too, and it is tried again.
            if self._connection.in_transaction:
                self._cursor.execute("ROLLBACK")

    def _finish(self, group: list[_Task], results: list[Any]) -> None:
        _resolve(group, results)
        if self._waiting:
            # Whoever was just answered may have something to add to the next group.
            asyncio.get_running_loop().call_soon(self._begin)
        else:
            self._is_busy = False


class _Reader:
    """Reads in a thread and on a connection of its own: a long one keeps nobody waiting."""

    def __init__(self, path: Path) -> None:
        self._connection = _connect(path, read_only=True)
        self._thread = _Thread("sqlite-reader")

    async def submit(self, script: Callable[[], Script[T]]) -> T:
        task = _Task(script)
        self._thread.do(lambda: self._run(task), lambda result: _resolve([task], [result]))
        result: T = await task.future
        return result

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.stop)
        self._connection.close()

    def _run(self, task: _Task) -> Any:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN")
            result = drive(cursor, task.script())
            cursor.execute("COMMIT")
            return result
        except apsw.Error as error:
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            return unavailable(error)
        except Exception as error:
            cursor.execute("ROLLBACK")
            return error


def _resolve(group: Sequence[_Task], results: Sequence[Any]) -> None:
    for task, result in zip(group, results, strict=True):
        if task.future.done():
            continue
        if isinstance(result, BaseException):
            task.future.set_exception(result)
        else:
            task.future.set_result(result)


def drive(cursor: apsw.Cursor, script: Script[T]) -> T:
    rows: list[Row] = []
    try:
        statement = next(script)
        while True:
            if isinstance(statement, Fetch):
                rows = list(cursor.execute(to_sqlite(statement.sql), [_bindable(arg) for arg in statement.args]))
            else:
                _run_many(cursor, statement)
                rows = []
            statement = script.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result


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
        cursor.executemany(to_sqlite(statement.sql), rows[done:])


def _bindable(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple) else value


def unavailable(error: apsw.Error) -> DatabaseUnavailable:
    failure = DatabaseUnavailable(f"SQLite: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def keep_plans(connection: apsw.Connection) -> None:
    """A plan serves whatever is bound: else a `LIMIT ?` alone has SQLite prepare its statement anew each time."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _connect(path: Path, read_only: bool) -> apsw.Connection:
    connection = apsw.Connection(str(path), statementcachesize=512)
    keep_plans(connection)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB if not read_only else CACHE_KIB // 4}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute("PRAGMA temp_store = MEMORY")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


class SqliteDatabase:
    """Owns its file: a second owner is refused by name, because two writers starve each other."""

    is_shared = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = f"SQLite file {path}"
        self._lock_file: int | None = None
        self._writer: _Writer | None = None
        self._reader: _Reader | None = None

    async def __aenter__(self) -> SqliteDatabase:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._own()
        try:
            self._writer = _Writer(self.path)
            self._reader = _Reader(self.path)
        except apsw.Error as error:
            await self.__aexit__(None, None, None)
            raise unavailable(error) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in (self._reader, self._writer):
            if worker is not None:
                await worker.close()
        self._reader = self._writer = None
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    async def write(self, script: Callable[[], Script[T]]) -> T:
        if self._writer is None:
            raise DatabaseUnavailable(f"{self.name} is closed")
        return await self._writer.submit(script)

    async def read(self, script: Callable[[], Script[T]]) -> T:
        if self._reader is None:
            raise DatabaseUnavailable(f"{self.name} is closed")
        return await self._reader.submit(script)

    def _own(self) -> None:
        """Take the lock beside the file; it goes with the process, however that ends."""
        descriptor = os.open(f"{self.path}.owner", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise DatabaseUnavailable(
                f"{self.path} is owned by {owner}. A SQLite file has one owner: stop that one, or use PostgreSQL"
                " (LUCIUS_LEDGER=postgresql://…) to run several processes."
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()}".encode())
        self._lock_file = descriptor
