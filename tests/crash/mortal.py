"""A database and a bus that die with their process at a chosen point: nothing comes back from them afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from lucius.ports.bus import Bus, DeliveryRef, Message, Refused
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.sqlite import SqliteDatabase

T = TypeVar("T")


class Died(Exception):
    """The process is gone; seen only by the transaction that it was in, which is rolled back."""


class Fate:
    """Counts the points that are passed, and ends everything at one of them."""

    def __init__(self, ends_at: int | None) -> None:
        self.passed: list[str] = []
        self.died = asyncio.Event()
        self._ends_at = ends_at

    async def reach(self, point: str) -> None:
        if self._ends_here(point):
            await asyncio.Event().wait()

    def reach_inside(self, point: str) -> None:
        if self._ends_here(point):
            raise Died(point)

    def _ends_here(self, point: str) -> bool:
        if not self.died.is_set():
            if len(self.passed) == self._ends_at:
                self.died.set()
            self.passed.append(point)
        return self.died.is_set()


class MortalDatabase:
    """Owns nothing: whoever opened the database inside closes it."""

    is_shared = False

    def __init__(self, inside: SqliteDatabase, fate: Fate, dies_inside: bool) -> None:
        """`dies_inside`: also between any two statements of a transaction."""
        self.inside = inside
        self.name = inside.name
        self._fate = fate
        self._dies_inside = dies_inside

    async def __aenter__(self) -> MortalDatabase:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def write(self, script: Callable[[], Script[T]]) -> T:
        await self._fate.reach("before a transaction")
        try:
            result = await self.inside.write(lambda: self._watched(script()))
        except Died:
            await asyncio.Event().wait()
            raise
        await self._fate.reach("after a commit, before anybody hears of it")
        return result

    async def read(self, script: Callable[[], Script[T]]) -> T:
        result = await self.inside.read(script)
        if self._fate.died.is_set():
            await asyncio.Event().wait()
        return result

    async def scan(self, script: Callable[[], Script[T]]) -> T:
        return await self.read(script)

    def _watched(self, script: Script[T]) -> Script[T]:
        try:
            statement: Fetch | Run = next(script)
            while True:
                rows = yield statement
                if self._dies_inside:
                    self._fate.reach_inside(f"after: {statement.sql[:40]}")
                statement = script.send(rows)
        except StopIteration as stop:
            result: T = stop.value
            return result


class MortalBus:
    """A bus outside the ledger's database, as the process that dies sees it."""

    def __init__(self, inside: Bus, fate: Fate) -> None:
        self._inside = inside
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)

    async def publish(self, messages: Sequence[Message]) -> list[Refused | None]:
        await self._fate.reach("before a publish")
        answers = await self._inside.publish(messages)
        await self._fate.reach("after a publish, before it is known")
        return answers

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        await self._fate.reach("before a settle")
        await self._inside.settle(refs)
        await self._fate.reach("after a settle")
