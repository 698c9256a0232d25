"""SQLite: one file, one owner, one writer thread.

The writer takes every script that has gathered and commits them together: a commit costs an fsync, and whoever waits for
one shares it. Each script stands on its own savepoint, so one that fails takes nobody with it. Reads run in a thread and
on a connection of their own and never wait for the writer.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import queue
import threading
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import apsw

from lucius.sql.database import DatabaseUnavailable, Fetch, Row, Run, RunAgain, Script
from lucius.sql.dialect import CHUNKS, for_many_rows, to_sqlite

T = TypeVar("T")

GROUP_MAX = 64
"""Scripts in one commit."""
BUSY_MILLISECONDS = 2_000
CACHE_KIB = 32_768
CHECKPOINT_PAGES = 4_000


class _Task:
    __slots__ = ("future", "loop", "script")

    def __init__(self, script: Callable[[], Script[Any]], loop: asyncio.AbstractEventLoop) -> None:
        self.script = script
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()


class _Worker:
    """A thread with a connection, that runs scripts one group after another."""

    def __init__(self, path: Path, read_only: bool) -> None:
        self._path = path
        self._read_only = read_only
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._loop, name=f"sqlite-{'reader' if read_only else 'writer'}", daemon=True
        )
        self._connection = _connect(path, read_only)
        self._thread.start()

    async def submit(self, script: Callable[[], Script[T]]) -> T:
        task = _Task(script, asyncio.get_running_loop())
        self._tasks.put(task)
        result: T = await task.future
        return result

    def stop(self) -> None:
        self._tasks.put(None)
        self._thread.join()
        self._connection.close()

    def _loop(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None:
                return
            group = [task]
            is_last = False
            while len(group) < GROUP_MAX:
                try:
                    more = self._tasks.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    is_last = True
                    break
                group.append(more)
            self._answer(group, self._run_group(group))
            if is_last:
                return

    def _run_group(self, group: list[_Task]) -> list[Any]:
        """One transaction for the whole group; a result or an exception for each."""
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN" if self._read_only else "BEGIN IMMEDIATE")
        except apsw.Error as error:
            return [_unavailable(error)] * len(group)
        results: list[Any] = []
        try:
            for task in group:
                results.append(self._run_one(cursor, task))
            cursor.execute("COMMIT")
        except apsw.Error as error:
            self._roll_back(cursor)
            return [_unavailable(error)] * len(group)
        return results

    def _run_one(self, cursor: apsw.Cursor, task: _Task) -> Any:
        if self._read_only:
            try:
                return _drive(cursor, task.script())
            except Exception as error:
                return error
        cursor.execute("SAVEPOINT script")
        try:
            result = _drive(cursor, task.script())
        except RunAgain:
            cursor.execute("ROLLBACK TO script")
            result = _drive(cursor, task.script())
        except (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.NotADBError):
            raise  # The transaction itself may be gone: nobody in the group can be told it was written.
        except apsw.Error as error:
            cursor.execute("ROLLBACK TO script")
            result = _unavailable(error)
        except Exception as error:
            cursor.execute("ROLLBACK TO script")
            result = error
        cursor.execute("RELEASE script")
        return result

    def _roll_back(self, cursor: apsw.Cursor) -> None:
        if self._connection.in_transaction:
            cursor.execute("ROLLBACK")

    @staticmethod
    def _answer(group: list[_Task], results: list[Any]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for task, result in zip(group, results, strict=True):
            by_loop.setdefault(task.loop, []).append((task.future, result))
        for loop, answers in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, answers)


def _resolve(answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in answers:
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


def _drive(cursor: apsw.Cursor, script: Script[T]) -> T:
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


def _unavailable(error: apsw.Error) -> DatabaseUnavailable:
    failure = DatabaseUnavailable(f"SQLite: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _connect(path: Path, read_only: bool) -> apsw.Connection:
    connection = apsw.Connection(str(path), statementcachesize=512)
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
        self._writer: _Worker | None = None
        self._reader: _Worker | None = None

    async def __aenter__(self) -> SqliteDatabase:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._own()
        try:
            self._writer = _Worker(self.path, read_only=False)
            self._reader = _Worker(self.path, read_only=True)
        except apsw.Error as error:
            await self.__aexit__(None, None, None)
            raise _unavailable(error) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in (self._reader, self._writer):
            if worker is not None:
                await asyncio.to_thread(worker.stop)
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
