"""SQLite in memory, for one thread: what rehearsals run on. Nothing survives, and nothing waits for a disk."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

import apsw

from lucius.sql.database import DatabaseUnavailable, RunAgain, Script
from lucius.sql.sqlite import RUNS_MAX
from lucius.sql.sqlite_connection import drive, keep_plans, unavailable

T = TypeVar("T")


class VolatileDatabase:
    is_shared = False
    name = "SQLite in memory"

    def __init__(self) -> None:
        self._connection: apsw.Connection | None = None

    async def __aenter__(self) -> VolatileDatabase:
        self._connection = apsw.Connection(":memory:", statementcachesize=512)
        keep_plans(self._connection)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def write(self, script: Callable[[], Script[T]]) -> T:
        return self._run(script)

    async def read(self, script: Callable[[], Script[T]]) -> T:
        return self._run(script)

    async def scan(self, script: Callable[[], Script[T]]) -> T:
        return self._run(script)

    def _run(self, script: Callable[[], Script[T]]) -> T:
        connection = self._connection
        if connection is None:
            raise DatabaseUnavailable(f"{self.name} is closed")
        cursor = connection.cursor()
        for _ in range(RUNS_MAX):
            cursor.execute("BEGIN")
            try:
                result = drive(cursor, script())
                cursor.execute("COMMIT")
                return result
            except RunAgain:
                cursor.execute("ROLLBACK")
            except apsw.Error as error:
                cursor.execute("ROLLBACK")
                raise unavailable(error) from error
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
        raise DatabaseUnavailable(f"{self.name}: the script asked {RUNS_MAX} times to be run again")
