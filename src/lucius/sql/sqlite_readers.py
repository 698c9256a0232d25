"""SQLite's readers: a few connections, each used by one thread at a time.

Engines and people have readers of their own. A list that takes seconds occupies one of the readers of lists, and what a
turn reads never queues behind it.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from lucius.sql.database import Script, query_too_slow
from lucius.sql.sqlite_connection import Task, connect, drive, resolve, unavailable
from lucius.sql.threads import Threads

T = TypeVar("T")

DEADLINE_CHECK_STEPS = 20_000
"""Of SQLite's virtual machine, between two looks at the clock: about a millisecond."""


class Readers:
    def __init__(self, path: Path, name: str, count: int, seconds_max: float | None = None) -> None:
        """`seconds_max`: how long one script may take; None is for ever."""
        self._seconds_max = seconds_max
        self._connections: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        self._count = count
        self._is_closed = False
        for _ in range(count):
            self._connections.put(connect(path, read_only=True))
        self._threads = Threads(name, count)

    async def submit(self, script: Callable[[], Script[T]]) -> T:
        task = Task(script)
        self._threads.do(lambda: self._run(task), lambda result: resolve([task], [result]))
        result: T = await task.future
        return result

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.to_thread(self._threads.stop)
        for _ in range(self._count):
            self._connections.get_nowait().close()

    def _run(self, task: Task) -> Any:
        if task.future.cancelled():
            return None  # Nobody waits for it any more.
        connection = self._connections.get_nowait()
        try:
            if self._seconds_max is None:
                return self._read(connection, task)
            ends_at = time.monotonic() + self._seconds_max
            connection.set_progress_handler(
                lambda: time.monotonic() > ends_at or task.future.cancelled() or self._is_closed, DEADLINE_CHECK_STEPS
            )
            return self._read(connection, task)
        finally:
            self._connections.put(connection)

    def _read(self, connection: apsw.Connection, task: Task) -> Any:
        cursor = connection.cursor()
        try:
            cursor.execute("BEGIN")
            result = drive(cursor, task.script())
            cursor.execute("COMMIT")
            return result
        except Exception as error:
            if connection.in_transaction:
                cursor.execute("ROLLBACK")
            if isinstance(error, apsw.InterruptError) and self._seconds_max is not None and not self._is_closed:
                return query_too_slow(self._seconds_max)
            return unavailable(error) if isinstance(error, apsw.Error) else error
