"""The database as a bus sees it: its failures are the bus's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lucius.ports.bus import BusUnavailable
from lucius.sql.database import Database, DatabaseUnavailable, Fetch, Row, Run, Script

T = TypeVar("T")


class MessageStore:
    """Every call raises `BusUnavailable` where the database is out of reach."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run_each(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        def script() -> Script[None]:
            yield Run(sql, rows)

        if rows:
            await self.write(script)

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        def script() -> Script[Sequence[Row]]:
            return (yield Fetch(sql, args))

        return await self.read(script)

    async def read(self, script: Callable[[], Script[T]]) -> T:
        try:
            return await self._database.read(script)
        except DatabaseUnavailable as error:
            raise BusUnavailable(str(error)) from error

    async def write(self, script: Callable[[], Script[T]]) -> T:
        try:
            return await self._database.write(script)
        except DatabaseUnavailable as error:
            raise BusUnavailable(str(error)) from error
