"""A process that upgrades or contracts the notes and is killed in the middle: `URL upgrade|contract STATEMENT COUNT`.

It sends itself SIGKILL instead of running a statement that contains STATEMENT, at the COUNT-th time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tests.sql.notes_schema import AT_3

from lucius.sql import schema
from lucius.sql.database import Database, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase

T = TypeVar("T")


class MortalDatabase:
    def __init__(self, database: Database, statement: str, count: int) -> None:
        self.name = database.name
        self.is_shared = database.is_shared
        self._database = database
        self._statement = statement
        self._left = count

    async def __aenter__(self) -> MortalDatabase:
        await self._database.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._database.__aexit__(kind, error, trace)

    async def write(self, script: Callable[[], Script[T]]) -> T:
        return await self._database.write(lambda: self._doomed(script()))

    async def read(self, script: Callable[[], Script[T]]) -> T:
        return await self._database.read(lambda: self._doomed(script()))

    async def scan(self, script: Callable[[], Script[T]]) -> T:
        return await self._database.scan(script)

    def _doomed(self, script: Script[T]) -> Script[T]:
        try:
            statement = next(script)
            while True:
                if self._statement in statement.sql:
                    self._left -= 1
                    if not self._left:
                        os.kill(os.getpid(), signal.SIGKILL)
                statement = script.send((yield statement))
        except StopIteration as stop:
            result: T = stop.value
            return result


def open_notes(url: str, program_version: int = 3) -> Database:
    if url.startswith("postgresql:"):
        return PostgresDatabase(url, pool_max=2, program_version=program_version)
    return SqliteDatabase(Path(url))


async def main(url: str, command: str, statement: str, count: int) -> None:
    async with MortalDatabase(open_notes(url), statement, count) as database:
        if command == "upgrade":
            await schema.upgrade(database, AT_3)
        else:
            await schema.contract(database, AT_3)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
