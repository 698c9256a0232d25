"""PostgreSQL by asyncpg: a pool of connections, several processes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from lucius.sql.database import DatabaseUnavailable, Fetch, Row, Run, RunAgain, Script
from lucius.sql.dialect import for_all_rows

try:
    import asyncpg
except ImportError as error:  # pragma: no cover - exercised by installing without the extra
    raise ImportError("PostgreSQL needs an extra: pip install 'lucius[postgres]'") from error

T = TypeVar("T")

TRIES_MAX = 5
"""How often a transaction is run again after a deadlock or a race with another process."""
CONNECT_SECONDS = 10.0
MANY_ROWS = 8
"""From so many rows on, one statement over arrays is cheaper than one a row."""
STATEMENT_SECONDS = 30.0
"""The longest that a statement takes, and that a transaction waits for its next one: a process that vanished with its
machine, without a word, keeps its locks no longer."""

_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    OSError,
    TimeoutError,
    asyncio.TimeoutError,
)
_RACED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, RunAgain)


class PostgresDatabase:
    is_shared = True

    def __init__(self, url: str, pool_max: int) -> None:
        parts = urlsplit(url)
        self.name = f"PostgreSQL {parts.path.lstrip('/') or 'database'} at {parts.hostname or 'a local socket'}"
        self._url = url
        self._pool_max = pool_max
        self._pool: asyncpg.Pool[Any] | None = None

    async def __aenter__(self) -> PostgresDatabase:
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._pool_max,
                timeout=CONNECT_SECONDS,
                command_timeout=STATEMENT_SECONDS,
                server_settings={
                    "synchronous_commit": "on",
                    "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS:.0f}s",
                    "application_name": "lucius",
                    "jit": "off",
                },
            )
        except _GONE as error:
            raise DatabaseUnavailable(f"{self.name} cannot be reached: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), CONNECT_SECONDS)
            except TimeoutError:
                pool.terminate()

    async def write(self, script: Callable[[], Script[T]]) -> T:
        for _ in range(TRIES_MAX):
            try:
                return await self._transact(script, read_only=False)
            except _RACED as error:
                raced = error
        raise DatabaseUnavailable(f"{self.name}: gave up after {TRIES_MAX} races: {raced}") from raced

    async def read(self, script: Callable[[], Script[T]]) -> T:
        return await self._transact(script, read_only=True)

    async def _transact(self, script: Callable[[], Script[T]], read_only: bool) -> T:
        if self._pool is None:
            raise DatabaseUnavailable(f"{self.name} is closed")
        try:
            async with self._pool.acquire(timeout=CONNECT_SECONDS) as connection:
                isolation = "repeatable_read" if read_only else "read_committed"
                async with connection.transaction(isolation=isolation, readonly=read_only):
                    return await _drive(connection, script())
        except _GONE as error:
            raise DatabaseUnavailable(f"{self.name}: {type(error).__name__}: {error}") from error


_types: dict[str, tuple[str, ...]] = {}
"""Of the arguments of statements that were run for many rows at once."""


async def _run_many(connection: Any, statement: Run) -> None:
    sql, rows = statement.sql, statement.rows
    if statement.at_once and len(rows) >= MANY_ROWS:
        types = _types.get(sql)
        if types is None:
            prepared = await connection.prepare(sql)
            types = _types[sql] = tuple(parameter.name for parameter in prepared.get_parameters())
        whole = for_all_rows(sql, types)
        if whole is not None:
            await connection.execute(whole, *map(list, zip(*rows, strict=True)))
            return
    await connection.executemany(sql, rows)


async def _drive(connection: Any, script: Script[T]) -> T:
    rows: list[Row] = []
    try:
        statement = next(script)
        while True:
            if isinstance(statement, Fetch):
                rows = await connection.fetch(statement.sql, *statement.args)
            elif statement.rows == ((),):
                await connection.execute(statement.sql)
                rows = []
            else:
                await _run_many(connection, statement)
                rows = []
            statement = script.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result
