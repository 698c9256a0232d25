"""Ledger, schema, clock and bus. The database is opened once for all of them: a SQLite file has one owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from lucius.azure.credential import AzureIdentity
from lucius.bootstrap import bus_differences, open_clock, open_database, open_runbooks_database
from lucius.bootstrap.runbooks_database import why_off
from lucius.bootstrap.stores import SERVICEBUS, broker_of, no_sql_bus, open_stores, skew_seconds_max
from lucius.bootstrap.tables_ledger import is_on_tables, open_tables_ledger, prepare_tables
from lucius.clocks import ComparedClock, SystemClock
from lucius.doctor.part import NotAsked, Part
from lucius.management import clock_check
from lucius.ports.ledger import LedgerUnavailable
from lucius.ports.observer import Observer
from lucius.ports.readiness import NotReady
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database, DatabaseOwned, DatabaseUnavailable
from lucius.sql.sqlite import SqliteDatabase
from lucius.telemetry.log_observer import LogObserver

if TYPE_CHECKING:
    from lucius.ledgers.tables import TablesLedger

DIFFERENCES_SHOWN = 3
MADE_BY_FIRST_START = "is made by the first start"
RUNBOOKS_REMEDY = "See LUCIUS_RUNBOOKS_DATABASE, and run `lucius db upgrade` with this version."
SEE_LEDGER = "not asked: the ledger's database cannot be opened"
SEE_TABLES = "not asked: the ledger does not answer"


class Stores:
    def __init__(self, settings: Settings, identity: AzureIdentity) -> None:
        self._settings = settings
        self._identity = identity
        self._stack = AsyncExitStack()
        self._absence = MADE_BY_FIRST_START
        """Why there is no database to ask."""
        self._opening: asyncio.Task[Database | None] | None = None

    async def __aenter__(self) -> Stores:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await self._stack.aclose()

    def parts(self) -> Sequence[Part]:
        settings = self._settings
        parts = [Part(name="ledger", look=self._ledger, remedy=_ledger_remedy(settings))]
        if settings.ledger != "memory":
            parts.append(Part(name="schema", look=self._schema, remedy="Run `lucius db upgrade` with this version."))
        if settings.runbooks_database or is_on_tables(settings):
            parts.append(Part(name="runbooks", look=self._runbooks, remedy=RUNBOOKS_REMEDY))
        parts.append(Part(name="clock", look=self._clock, remedy="Let this machine follow a time server (NTP)."))
        parts.append(Part(name="bus", look=self._bus, remedy=_bus_remedy(settings)))
        if settings.bus == SERVICEBUS:
            remedy = "Run `lucius bus provision` as somebody with the role Azure Service Bus Data Owner."
            parts.append(Part(name="entities", look=self._entities, remedy=remedy))
        return parts

    async def _ledger(self) -> str:
        if is_on_tables(self._settings):
            async with open_tables_ledger(self._settings, self._identity) as tables:
                return await tables.health()
        database = await self._database()
        if database is None and self._settings.ledger != "memory":
            return self._absence
        ledger, _ = open_stores(self._settings, database, SystemClock(), self._identity)
        async with ledger:
            return await ledger.health()

    async def _schema(self) -> str:
        if is_on_tables(self._settings):
            async with self._tables() as tables:
                await prepare_tables(tables, creates=False)
                return "every table is there, and the container"
        async with self._needed() as database:
            if database is None:
                return self._absence
            await schema.verify(database)
            return f"version {await schema.current_version(database)}"

    async def _runbooks(self) -> str:
        """Where they are not in the ledger's database."""
        database = open_runbooks_database(self._settings)
        if database is None:
            return why_off(self._settings)
        if isinstance(database, SqliteDatabase) and not database.path.exists():
            return MADE_BY_FIRST_START
        try:
            async with database:
                await schema.verify(database)
                return f"{database.name}, version {await schema.current_version(database)}"
        except DatabaseOwned:
            return in_use(database)
        except OSError as error:
            raise DatabaseUnavailable(f"{database.name} cannot be opened: {error}") from error

    async def _clock(self) -> str:
        if is_on_tables(self._settings):
            return await self._clock_and_storage()
        async with self._needed() as database:
            if database is None or not database.is_shared:
                return "this machine's own, which nothing is compared with"
            async with open_clock(self._settings, database, LogObserver()) as clock:
                return f"{await clock_check(clock, self._settings.clock_skew_seconds_max).look()} from the ledger's"

    async def _clock_and_storage(self) -> str:
        async with self._tables() as tables:
            await tables.health()
            clock = ComparedClock(SystemClock())
            clock.compare_with(lambda: tables.store.account.skew_seconds)
            return f"{await clock_check(clock, skew_seconds_max(self._settings)).look()} from Azure Storage's"

    async def _bus(self) -> str:
        make = broker_of(self._settings)
        if make is not None:
            async with make(self._settings, SystemClock(), self._identity, Observer()) as bus:
                return await bus.health()
        if self._settings.bus not in ("sql", "memory"):
            raise SettingsError(f"LUCIUS_BUS={self._settings.bus!r}: must be sql, memory, nats://… or servicebus")
        if self._settings.bus == "sql" and is_on_tables(self._settings):
            raise SettingsError(no_sql_bus(self._settings))
        return "in memory" if self._settings.bus == "memory" else "in the ledger's database"

    async def _entities(self) -> str:
        found = await bus_differences(self._settings)
        if found:
            more = f"; and {len(found) - DIFFERENCES_SHOWN} more" if len(found) > DIFFERENCES_SHOWN else ""
            raise NotReady("; ".join(found[:DIFFERENCES_SHOWN]) + more)
        return "every topic, subscription and filter is as it should be"

    @asynccontextmanager
    async def _needed(self) -> AsyncIterator[Database | None]:
        try:
            database = await self._database()
        except Exception as error:
            raise NotAsked(SEE_LEDGER) from error
        yield database

    @asynccontextmanager
    async def _tables(self) -> AsyncIterator[TablesLedger]:
        """For parts that cannot be asked unless the ledger answers."""
        try:
            ledger = open_tables_ledger(self._settings, self._identity)
        except SettingsError as error:
            raise NotAsked(SEE_TABLES) from error
        async with ledger:
            try:
                yield ledger
            except LedgerUnavailable as error:
                raise NotAsked(SEE_TABLES) from error

    async def _database(self) -> Database | None:
        """None if there is none, not yet, or if a running server has it."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="doctor: database")
        return await asyncio.shield(self._opening)

    async def _open(self) -> Database | None:
        database = open_database(self._settings)
        if database is None or (isinstance(database, SqliteDatabase) and not database.path.exists()):
            return None
        try:
            return await self._stack.enter_async_context(database)
        except DatabaseOwned:
            self._absence = in_use(database)
            return None
        except OSError as error:
            raise DatabaseUnavailable(f"{database.name} cannot be opened: {error}") from error


def in_use(database: Database) -> str:
    return f"{database.name} is in use by a running LUCIUS: its /readyz answers for it"


def _ledger_remedy(settings: Settings) -> str:
    if settings.ledger.startswith("postgres"):
        return "See that PostgreSQL runs, that LUCIUS_LEDGER names it, and that this user may write there."
    if is_on_tables(settings):
        return "See LUCIUS_STORAGE_ACCOUNT or _CONNECTION, and the roles Storage Table and Blob Data Contributor."
    return "See LUCIUS_LEDGER and LUCIUS_DATA, the space on the disk, and who may write to the file."


def _bus_remedy(settings: Settings) -> str:
    if settings.bus == SERVICEBUS:
        return "See LUCIUS_SERVICEBUS_NAMESPACE or _CONNECTION, and the roles Service Bus Data Sender and Receiver."
    if settings.bus.startswith("nats:"):
        return "See that NATS runs with JetStream, and LUCIUS_BUS and LUCIUS_NATS_*."
    return "See LUCIUS_BUS."
