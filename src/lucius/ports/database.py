"""The database port: transactions as scripts.

A script is a generator that yields statements and receives rows. It has no connection and does no I/O, so scripts of
several modules join into one transaction with `yield from`. Only modules that contain SQL create `Fetch` and `Run`; all
others pass scripts on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Row = Sequence[Any]


class Fetch(NamedTuple):
    """Run a statement and return its rows."""

    sql: str
    args: Sequence[Any] = ()
    is_alone: bool = False
    """It is the only statement of its script, and so needs no transaction around it."""


class Run(NamedTuple):
    """Run a statement once for each row of arguments; returns nothing."""

    sql: str
    rows: Sequence[Sequence[Any]] = ((),)
    in_one_statement: bool = False
    """The rows may be locked in any order: no other transaction locks them, or the one that does is run again."""


class Check(NamedTuple):
    """A condition, as a query for one boolean, without which a `Together` that needs no transaction writes nothing."""

    sql: str
    args: Sequence[Any] = ()


class Together(NamedTuple):
    """Run these in one round trip; returns a list with the rows of each. None of them may depend on what another one
    writes, and no two may write the same row. Only for a database that is shared; see `lucius.sql.together`."""

    statements: Sequence[Fetch | Run | Check]
    is_alone: bool = False
    """It needs no transaction around it. Of the statements of its script only the last one writes, and raises
    `RunAgain` if a check does not hold, if a row is there already, or if it cannot be one statement."""


Script = Generator[Fetch | Run, Sequence[Row], T]
"""`lucius.sql.together` makes scripts that also yield `Together`."""


class DatabaseUnavailable(Exception):
    """The database is unreachable, full, locked or broken; the transaction did not happen."""


class DatabaseOwned(DatabaseUnavailable):
    """Another process has the database, which can have one owner only."""


class Database(AbstractAsyncContextManager["Database"], Protocol):
    name: str
    """A human-readable name of the database, without credentials."""
    is_shared: bool
    """Whether other processes may write to it at the same time."""

    async def write(self, script: Callable[[], Script[T]]) -> T:
        """Run a script in one transaction; when this returns, it is durable. Raises `DatabaseUnavailable`."""
        ...

    async def read(self, script: Callable[[], Script[T]]) -> T:
        """Run a script that only reads, on one consistent state. For short reads, which engines wait for."""
        ...

    async def scan(self, script: Callable[[], Script[T]]) -> T:
        """Like `read`, for lists that people request: on separate readers, so that no `read` waits for one, and within
        a time limit. Raises `CallerError` `QUERY_TOO_SLOW` when the limit is exceeded."""
        ...
