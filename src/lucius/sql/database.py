"""What a database can do for the adapters that stand on it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Row = Sequence[Any]


class Fetch(NamedTuple):
    """Run a statement and hand back its rows."""

    sql: str
    args: Sequence[Any] = ()


class Run(NamedTuple):
    """Run a statement once for each row of arguments; hands back nothing."""

    sql: str
    rows: Sequence[Sequence[Any]] = ((),)
    at_once: bool = False
    """The rows may be locked in any order: nobody else wants them, or whoever does runs its transaction again."""


Script = Generator[Fetch | Run, Sequence[Row], T]


class DatabaseUnavailable(Exception):
    """The database is out of reach, full, locked or broken; the transaction was not made."""


class RunAgain(Exception):
    """Raised inside a script: another transaction got in the way. Roll back and run the script anew."""


class Database(AbstractAsyncContextManager["Database"], Protocol):
    name: str
    """For people: which database this is, without credentials."""
    is_shared: bool
    """Whether other processes may write to it at the same time."""

    async def write(self, script: Callable[[], Script[T]]) -> T:
        """Run a script in one transaction; when this returns, it is durable. Raises `DatabaseUnavailable`."""
        ...

    async def read(self, script: Callable[[], Script[T]]) -> T:
        """Run a script that only reads, on one consistent state."""
        ...
