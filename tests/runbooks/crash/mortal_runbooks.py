"""A database and a bus that end with their process at a chosen point of a run of runbooks.

The driver does one thing after another, so death is an exception that nobody on the way catches: whoever made the life
throws away all that was in memory and opens everything anew on what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from types import TracebackType
from typing import Any, TypeVar

from lucius.ports.bus import Bus, DeliveryRef, Message, Refused
from lucius.sql.database import Database, Script, Together

T = TypeVar("T")

COMMITTED = "after a commit, before anybody hears of it"
PUBLISHED = "after a publish, before it is known"
SETTLED = "after a settle"
"""Before each of them everything is as it was after the one before, so those points are the same."""


AtPoint = Callable[[int, str], None]


class Killed(BaseException):
    """The process is gone. No handler of errors may see it, as none sees `kill -9`."""


class _Inside(Exception):
    """Ends a transaction in its midst: the database undoes what was done of it."""


class Doom:
    """Counts the points that are passed, shows each to `at_point`, and ends everything at some of them."""

    def __init__(self, ends_at: Container[int] = (), at_point: AtPoint | None = None) -> None:
        self.passed: list[str] = []
        self.deaths = 0
        self._ends_at = ends_at
        self._at_point = at_point

    def reach(self, point: str, ending: type[BaseException] = Killed) -> None:
        number = len(self.passed)
        self.passed.append(point)
        if self._at_point is not None:
            self._at_point(number, point)
        if number in self._ends_at:
            self.deaths += 1
            raise ending(f"point {number}: {point}")


class MortalDatabase:
    """Owns nothing: whoever opened the database inside closes it."""

    def __init__(self, inside: Database, doom: Doom, dies_inside: bool) -> None:
        """`dies_inside`: also after every statement of a transaction, and not only after its commit."""
        self.inside = inside
        self.name = inside.name
        self.is_shared = inside.is_shared
        self._doom = doom
        self._dies_inside = dies_inside

    async def __aenter__(self) -> MortalDatabase:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def write(self, script: Callable[[], Script[T]]) -> T:
        try:
            result = await self.inside.write(lambda: self._watched(script()))
        except _Inside as death:
            raise Killed(str(death)) from None
        self._doom.reach(COMMITTED)
        return result

    async def read(self, script: Callable[[], Script[T]]) -> T:
        return await self.inside.read(script)

    async def scan(self, script: Callable[[], Script[T]]) -> T:
        return await self.inside.scan(script)

    def _watched(self, script: Script[T]) -> Script[T]:
        try:
            statement = next(script)
            while True:
                rows = yield statement
                if self._dies_inside:
                    self._doom.reach(f"inside a transaction, after: {_named(statement)[:60]}", _Inside)
                statement = script.send(rows)
        except StopIteration as stop:
            result: T = stop.value
            return result


def _named(statement: Any) -> str:
    one = statement.statements[-1] if isinstance(statement, Together) else statement
    return str(one.sql)


class MortalBus:
    """A bus outside the database, which lives on, as the process that dies sees it."""

    def __init__(self, inside: Bus, doom: Doom) -> None:
        self._inside = inside
        self._doom = doom

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)

    async def publish(self, messages: Sequence[Message]) -> list[Refused | None]:
        answers = await self._inside.publish(messages)
        self._doom.reach(PUBLISHED)
        return answers

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        await self._inside.settle(refs)
        self._doom.reach(SETTLED)
