"""PostgreSQL by asyncpg: a pool of connections, several processes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from lucius.sql.database import (
    LIST_SECONDS_MAX,
    LISTS_MAX,
    DatabaseUnavailable,
    Fetch,
    Row,
    Run,
    RunAgain,
    Script,
    Together,
    query_too_slow,
)

try:
    import asyncpg
except ImportError as error:  # pragma: no cover - exercised by installing without the extra
    raise ImportError(
        "PostgreSQL needs the extra `postgres`: pip install '.[postgres]' in a clone of LUCIUS"
    ) from error

from lucius.sql.postgres_hosts import CONNECT_SECONDS, Hosts, ServerMoved, ServerReadOnly, is_read_only
from lucius.sql.postgres_lock import ProgramLock
from lucius.sql.postgres_statements import run
from lucius.sql.postgres_wakeups import PostgresWakeups
from lucius.sql.postgres_watch import ServerWatch
from lucius.sql.programs import session_name
from lucius.sql.schema import VERSION
from lucius.sql.schema_state import read_state

T = TypeVar("T")

TRIES_MAX = 5
"""How often a transaction is run again after a deadlock or a race with another process."""
_PLANS = "SET LOCAL plan_cache_mode = auto"
BEGIN_TO_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_PLANS}"
BEGIN_TO_WRITE = f"BEGIN ISOLATION LEVEL READ COMMITTED; {_PLANS}"
STATEMENTS_PREPARED_MAX = 256
"""On each connection. Turns have many forms, each of which is one statement."""
QUERIES_OF_A_CONNECTION_MAX = 10_000
"""Then it is replaced: plans that are kept were made for tables of the size that they had then."""
STATEMENT_SECONDS = 30.0
"""The longest that a statement takes, and that a transaction waits for its next one: a process that vanished with its
machine, without a word, keeps its locks no longer."""

_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # The driver lost track of the connection's state.
    asyncpg.ObjectNotInPrerequisiteStateError,  # The database takes no connections,
    asyncpg.InvalidCatalogNameError,  # is gone,
    asyncpg.InvalidAuthorizationSpecificationError,  # or lets this user in no more.
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.LockNotAvailableError,
    OSError,
    TimeoutError,
    asyncio.TimeoutError,
)
_READ_ONLY = (ServerReadOnly, asyncpg.ReadOnlySQLTransactionError)
_RACED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, RunAgain)


class PostgresDatabase:
    is_shared = True

    def __init__(
        self,
        url: str,
        pool_max: int,
        lists_max: int = LISTS_MAX,
        list_seconds_max: float = LIST_SECONDS_MAX,
        statement_seconds: float = STATEMENT_SECONDS,
        program_version: int = VERSION,
        listens: bool = True,
    ) -> None:
        """`program_version`: the schema version of this program, for which it holds a lock on the database. `listens`:
        whether processes wake each other, on a further connection as soon as somebody waits to be woken."""
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2] or "a local socket"
        self.name = f"PostgreSQL {parts.path.lstrip('/') or 'database'} at {hosts}"
        self._hosts = Hosts(url)
        self._pool_max = pool_max
        # A pool of two connections or more always has one that no list can take.
        self._list_slots = asyncio.Semaphore(max(1, min(lists_max, pool_max - 1)))
        self._list_seconds_max = list_seconds_max
        self._pool: asyncpg.Pool[Any] | None = None
        self._program_version = program_version
        self._options: dict[str, Any] = {
            "statement_cache_size": STATEMENTS_PREPARED_MAX,
            "command_timeout": statement_seconds,
            "server_settings": {
                "synchronous_commit": "on",
                "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS:.0f}s",
                "application_name": session_name(program_version),
                "jit": "off",
                # PostgreSQL makes a new plan for a few rows each time, which costs more than running it. What runs by
                # itself is looked up by keys, so one plan serves any number of rows; transactions decide as always.
                "plan_cache_mode": "force_generic_plan",
            },
        }
        self._lock = ProgramLock(self.name, program_version, lambda: self._connect(**self._options), self._too_new)
        self._watch = ServerWatch(self.name, self._hosts, self._drop_connections, self._reopen)
        self.wakeups = PostgresWakeups(self.name, self._connect_wakeups, listens)

    async def __aenter__(self) -> PostgresDatabase:
        try:
            await self._lock.take()
        except (*_GONE, *_READ_ONLY) as error:
            raise DatabaseUnavailable(f"{self.name} cannot be used: {_said(error)}") from error
        self._lock.keep()
        await self._open_pool()
        self._watch.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.wakeups.close()
        await self._watch.stop()
        await self._close_pool()
        await self._lock.release()

    async def _connect(self, *args: Any, **options: Any) -> Any:
        try:
            return await self._hosts.connect(*args, **options)
        except ServerMoved as error:
            self._watch.lose(_said(error))
            raise

    async def _connect_wakeups(self) -> Any:
        settings = self._options["server_settings"] | {"synchronous_commit": "off"}
        return await self._connect(**(self._options | {"server_settings": settings}))

    async def _too_new(self, connection: Any) -> str | None:
        state = await _drive(connection, read_state(is_shared=True))
        return state.too_new_for(self._program_version)

    async def _open_pool(self) -> None:
        self._pool = await asyncpg.create_pool(
            connect=self._connect,
            reset=_leave,
            min_size=0,
            max_size=self._pool_max,
            max_queries=QUERIES_OF_A_CONNECTION_MAX,
            **self._options,
        )

    async def _reopen(self) -> None:
        await self._lock.take()
        await self._open_pool()

    def _acquire(self) -> Any:
        if self._pool is None:
            raise DatabaseUnavailable(f"{self.name} is closed")
        return self._pool.acquire(timeout=CONNECT_SECONDS)

    def _drop_connections(self) -> None:
        self._lock.drop()
        self.wakeups.drop()
        if self._pool is not None:
            self._pool.terminate()

    async def _close_pool(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), CONNECT_SECONDS)
            except TimeoutError:
                pool.terminate()

    async def write(self, script: Callable[[], Script[T]]) -> T:
        for _ in range(TRIES_MAX):
            try:
                async with self._connected() as connection:
                    return await _write(connection, script())
            except _RACED as error:
                raced = error
        raise DatabaseUnavailable(f"{self.name}: gave up after {TRIES_MAX} races: {raced}") from raced

    async def read(self, script: Callable[[], Script[T]]) -> T:
        """A statement by itself sees one state: only a script that goes on to a second one needs a transaction, and is
        run anew in it."""
        async with self._connected() as connection:
            alone = script()
            try:
                rows = await _run_alone(connection, next(alone))
                _check_writable(connection)
                alone.send(rows)
            except StopIteration as stop:
                result: T = stop.value
                return result
            return await _transact(connection, script(), read_only=True)

    async def scan(self, script: Callable[[], Script[T]]) -> T:
        async with self._list_slots, self._connected() as connection:
            return await _transact(connection, script(), read_only=True, seconds_max=self._list_seconds_max)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        if self._lock.problem is not None:
            raise DatabaseUnavailable(f"{self.name} {self._lock.problem}: upgrade LUCIUS")
        try:
            with self._watch.transaction():
                async with self._acquire() as connection:
                    yield connection
        except _READ_ONLY as error:
            self._watch.lose(_said(error))
            raise DatabaseUnavailable(f"{self.name}: {_said(error)}") from error
        except _GONE as error:
            raise DatabaseUnavailable(f"{self.name}: {type(error).__name__}: {error}") from error


async def _write(connection: Any, script: Script[T]) -> T:
    """The first statement says whether the script needs a transaction."""
    try:
        statement: Fetch | Run | Together = next(script)
        is_alone = isinstance(statement, Fetch | Together) and statement.is_alone
        while isinstance(statement, Fetch | Together) and statement.is_alone:
            statement = script.send(await _run_alone(connection, statement))
    except StopIteration as stop:
        result: T = stop.value
        return result
    if is_alone:
        raise RuntimeError(f"a script that needs no transaction goes on with one that does: {statement}")
    return await _transact(connection, script, read_only=False, first=statement)


@asynccontextmanager
async def _transaction(connection: Any, begin: str) -> AsyncIterator[None]:
    """As the driver's own, which could not set anything in the same round trip."""
    try:
        await connection.execute(begin)
    except BaseException:
        connection.terminate()  # Whether it has begun is not known.
        raise
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


async def _transact(
    connection: Any,
    script: Script[T],
    read_only: bool,
    first: Fetch | Run | Together | None = None,
    seconds_max: float | None = None,
) -> T:
    """`first` is what the script has said already, if it has."""
    async with _transaction(connection, BEGIN_TO_READ if read_only else BEGIN_TO_WRITE):
        _check_writable(connection)
        if seconds_max is not None:
            return await _drive_within(connection, script, seconds_max)
        return await _drive(connection, script, first)


async def _run_alone(connection: Any, statement: Fetch | Run | Together) -> Sequence[Row]:
    """Run a statement outside a transaction."""
    try:
        return await run(connection, statement)
    except (asyncio.CancelledError, TimeoutError):
        # Between preparing and running it, the server is in a transaction that the driver knows nothing of.
        connection.terminate()
        raise


def _check_writable(connection: Any) -> None:
    """What a former primary has may be out of date: "there is no such job" must not come from it."""
    if is_read_only(connection):
        raise ServerReadOnly


async def _leave(connection: Any) -> None:
    """No transaction changes its session, so there is nothing to reset; asking the server to, as the driver does, would
    be a round trip more for every transaction. The driver rolls back what was left open."""


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def _drive_within(connection: Any, script: Script[T], seconds_max: float) -> T:
    """The server is told to stop as well: a statement that nobody waits for any more would go on to its end."""
    try:
        async with asyncio.timeout(seconds_max) as limit:
            return await _drive(connection, script)
    except TimeoutError:
        if not limit.expired():
            raise
        raise query_too_slow(seconds_max) from None


async def _drive(connection: Any, script: Script[T], first: Fetch | Run | Together | None = None) -> T:
    try:
        statement: Fetch | Run | Together = next(script) if first is None else first
        while True:
            statement = script.send(await run(connection, statement))
    except StopIteration as stop:
        result: T = stop.value
        return result
