"""Database, clock, ledger and bus, by their settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lucius.azure.credential import AzureIdentity, credential_fault
from lucius.bootstrap.tables_ledger import is_on_tables, open_tables_ledger
from lucius.buses.memory import MemoryBus
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.clocks import SKEW_SECONDS_MAX, STORAGE_CLOCK, ComparedClock, DatabaseClock, SystemClock, skew_problem
from lucius.domain.errors import InfrastructureError
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.settings import Settings, SettingsError
from lucius.sql.database import Database
from lucius.sql.server_time import read_server_time
from lucius.sql.sqlite import SqliteDatabase
from lucius.warm_up import warm_up

if TYPE_CHECKING:
    from lucius.buses.servicebus import ServiceBusOptions

SQLITE_FILE = "lucius.db"
NATS_SCHEMES = ("nats://", "tls://")
SERVICEBUS = "servicebus"


def open_database(settings: Settings, statement_seconds: float | None = None) -> Database | None:
    """The database of the ledger's address; None for a ledger in memory or on Azure Tables."""
    address = settings.ledger
    if address == "memory" or is_on_tables(settings):
        return None
    if address == "sqlite":
        return SqliteDatabase(Path(settings.data) / SQLITE_FILE, settings.lists_max, settings.list_seconds_max)
    database = open_database_at(address, settings, statement_seconds)
    if database is None:
        raise SettingsError(
            f"LUCIUS_LEDGER={address!r}: must be memory, sqlite, sqlite:///path, postgresql://…,"
            " aztables:ledger or aztables:table"
        )
    return database


def open_database_at(address: str, settings: Settings, statement_seconds: float | None = None) -> Database | None:
    """None for an address of neither SQLite nor PostgreSQL."""
    if address.startswith("sqlite:///"):
        path = Path(address.removeprefix("sqlite:///"))
        return SqliteDatabase(path, settings.lists_max, settings.list_seconds_max)
    if address.startswith(("postgresql://", "postgres://")):
        if settings.postgres_listen not in ("auto", "off"):
            raise SettingsError(f"LUCIUS_POSTGRES_LISTEN={settings.postgres_listen!r}: must be auto or off")
        from lucius.sql.postgres import STATEMENT_SECONDS, PostgresDatabase

        return PostgresDatabase(
            address,
            settings.postgres_pool_max,
            settings.lists_max,
            settings.list_seconds_max,
            statement_seconds or STATEMENT_SECONDS,
            listens=settings.postgres_listen == "auto",
        )
    return None


@asynccontextmanager
async def open_clock(
    settings: Settings, database: Database | None, observer: Observer, machine: Clock | None = None
) -> AsyncIterator[Clock]:
    """The clock to use: that of a shared database, or else that of this machine, which is compared with Azure's if the
    ledger is there."""
    machine = machine or SystemClock()
    if is_on_tables(settings):
        yield ComparedClock(machine)
        return
    if database is None or not database.is_shared:
        yield machine
        return
    read = partial(read_server_time, database)
    async with DatabaseClock(read, machine, settings.clock_skew_seconds_max, observer.failed) as clock:
        yield clock


def check_skew(clock: Clock, settings: Settings) -> None:
    """Raises `InfrastructureError` if this machine's clock is too far from that of the storage account, which has
    answered by now."""
    problem = skew_problem(clock.skew_seconds, skew_seconds_max(settings), STORAGE_CLOCK)
    if problem is not None:
        raise InfrastructureError.unavailable(problem)


def skew_seconds_max(settings: Settings) -> float:
    if is_on_tables(settings):
        return min(settings.clock_skew_seconds_max, SKEW_SECONDS_MAX)
    return settings.clock_skew_seconds_max


def open_identity(settings: Settings) -> AzureIdentity:
    """Who this process is to Azure: one for bus, ledger and registry."""
    if fault := credential_fault(settings.azure_credential):
        raise SettingsError(fault)
    return AzureIdentity(settings.azure_credential, settings.azure_client_id)


def no_sql_bus(settings: Settings) -> str:
    """Why a ledger on Azure Tables needs another bus."""
    return (
        f"LUCIUS_BUS=sql needs a ledger in SQL; with LUCIUS_LEDGER={settings.ledger} use a broker: servicebus or"
        " nats://host:port"
    )


def open_stores(
    settings: Settings,
    database: Database | None,
    clock: Clock,
    identity: AzureIdentity,
    observer: Observer | None = None,
) -> tuple[Ledger, Bus]:
    bus: Bus
    if settings.bus == "memory":
        bus = MemoryBus(clock, dead_seconds=settings.dead_message_seconds)
    elif (broker := broker_of(settings)) is not None:
        bus = broker(settings, clock, identity, observer or Observer())
    elif settings.bus != "sql":
        raise SettingsError(f"LUCIUS_BUS={settings.bus!r}: must be sql, memory, nats://host:port or servicebus")
    elif is_on_tables(settings):
        raise SettingsError(no_sql_bus(settings))
    elif database is None:
        raise SettingsError("LUCIUS_BUS=sql needs a ledger in SQL; with LUCIUS_LEDGER=memory use LUCIUS_BUS=memory")
    else:
        make = SqlBus if database.is_shared else JournaledBus
        sql_bus = make(database, clock, dead_seconds=settings.dead_message_seconds)
        return SqlLedger(database, sql_bus), sql_bus
    if is_on_tables(settings):
        ledger = open_tables_ledger(settings, identity)
        if isinstance(clock, ComparedClock):
            clock.compare_with(lambda: ledger.store.account.skew_seconds)
        return ledger, bus
    return (MemoryLedger() if database is None else SqlLedger(database)), bus


def broker_of(settings: Settings) -> Callable[[Settings, Clock, AzureIdentity, Observer], Bus] | None:
    """What makes the bus, if it is on a broker."""
    if settings.bus.startswith(NATS_SCHEMES):
        return open_nats_bus
    return open_servicebus if settings.bus == SERVICEBUS else None


def open_nats_bus(settings: Settings, clock: Clock, _identity: AzureIdentity, observer: Observer) -> Bus:
    try:
        from lucius.buses.nats import NatsBus, NatsOptions
        from lucius.buses.nats.options import read_servers
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("nats", "nkeys", "nacl"):
            raise
        raise SettingsError(
            "LUCIUS_BUS=nats://… needs the extra `nats`: pip install '.[nats]' in a clone of LUCIUS"
        ) from error
    warm_up()  # That import added types.
    try:
        servers = read_servers(settings.bus)
    except ValueError as error:
        raise SettingsError(f"LUCIUS_BUS: {error}") from error
    names = [name for name in NatsOptions.__struct_fields__ if hasattr(settings, f"nats_{name}")]
    options = NatsOptions(servers=servers, **{name: getattr(settings, f"nats_{name}") for name in names})
    for variable, path in options.files():
        if not Path(path).is_file():
            raise SettingsError(f"{variable}={path}: there is no such file")
    return NatsBus(options, clock, dead_seconds=settings.dead_message_seconds, observer=observer)


def open_servicebus(settings: Settings, clock: Clock, identity: AzureIdentity, observer: Observer) -> Bus:
    options = servicebus_options(settings)
    from lucius.buses.servicebus import ServiceBus

    warm_up()  # That import added types.
    return ServiceBus(options, clock, dead_seconds=settings.dead_message_seconds, identity=identity, observer=observer)


def servicebus_options(settings: Settings) -> ServiceBusOptions:
    """Raises `SettingsError`, also if the extra is not installed."""
    try:
        from lucius.buses.servicebus import ServiceBusOptions
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("azure", "aiohttp"):
            raise
        raise SettingsError(
            "LUCIUS_BUS=servicebus needs the extra `servicebus`: pip install '.[servicebus]' in a clone of LUCIUS"
        ) from error
    options = ServiceBusOptions(
        connection=settings.servicebus_connection,
        namespace=settings.servicebus_namespace,
        administration=settings.servicebus_administration,
        administration_ca_file=settings.servicebus_administration_ca_file,
        credential=settings.azure_credential,
        client_id=settings.azure_client_id,
    )
    fault = options.fault()
    if fault is not None:
        raise SettingsError(fault)
    return options
