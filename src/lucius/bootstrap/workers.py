"""A function worker on the bus, and who has asked for work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from lucius.bootstrap.stores import broker_of, open_clock, open_database, open_identity
from lucius.buses.sql import SqlBus
from lucius.clocks import SystemClock
from lucius.engines.loops import every
from lucius.functions.bus_source import BusSource
from lucius.kit.bus import KitBus
from lucius.kit.identity import Identity
from lucius.ledgers.sql.workers import SqlWorkers
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.observer import Observer
from lucius.ports.workers import WorkerKind, Workers
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database, DatabaseUnavailable
from lucius.telemetry.log_observer import LogObserver
from lucius.usecases.sightings import FLUSH_SECONDS, Sightings

if TYPE_CHECKING:
    pass


@asynccontextmanager
async def keep_sightings(
    store: Workers, clock: Clock, observer: Observer, forgets: bool = False
) -> AsyncIterator[Sightings]:
    """Written and read every few seconds, and once more at the end."""
    sightings = Sightings(store, clock, observer)

    async def flush() -> None:
        await sightings.flush()
        if forgets:
            await sightings.forget()

    await sightings.flush()
    task = every(FLUSH_SECONDS, "workers", flush, observer)
    try:
        yield sightings
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        try:
            await sightings.flush()
        except DatabaseUnavailable as error:
            observer.failed("writing who has asked for work", error)


@asynccontextmanager
async def open_bus(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Bus]:
    """The bus alone, for a worker that needs nothing else of LUCIUS."""
    async with _open_bus_alone(settings, clock) as (_, _, bus):
        yield bus


@asynccontextmanager
async def _open_bus_alone(settings: Settings, clock: Clock | None) -> AsyncIterator[tuple[Database | None, Clock, Bus]]:
    """With the ledger's database, if the settings name one that is shared: a broker needs none."""
    make = broker_of(settings)
    database = open_database(settings)
    if database is None or not database.is_shared:
        if make is not None:
            time = clock or SystemClock()
            async with open_identity(settings) as identity, make(settings, time, identity) as bus:
                yield None, time, bus
            return
        raise SettingsError(
            "a worker on the bus needs a shared bus (LUCIUS_LEDGER=postgresql://…, LUCIUS_BUS=nats://… or servicebus);"
            " on the embedded default it takes its jobs over HTTP"
        )
    async with database:
        await schema.verify(database)
        async with (
            open_identity(settings) as identity,
            open_clock(settings, database, LogObserver(), clock) as time,
            SqlBus(database, time) if make is None else make(settings, time, identity) as bus,
        ):
            yield database, time, bus


@asynccontextmanager
async def open_bus_worker(settings: Settings, worker_id: str, version: str = "") -> AsyncIterator[BusSource]:
    """Where a function worker on the bus takes its jobs. If it also reaches the ledger's database, the worker is seen
    there like one that takes its jobs over HTTP."""
    identity = Identity(version)
    async with AsyncExitStack() as stack:
        database, clock, bus = await stack.enter_async_context(_open_bus_alone(settings, None))
        source = BusSource(worker_id, KitBus(bus), settings.worker_lock_seconds)
        if database is not None:
            keeping = keep_sightings(SqlWorkers(database), clock, LogObserver())
            sightings = await stack.enter_async_context(keeping)

            def saw(in_work: int) -> None:
                sightings.saw(WorkerKind.WORKER, worker_id, identity.instance, identity.version, in_work)

            source = BusSource(worker_id, KitBus(bus), settings.worker_lock_seconds, saw)
        yield await stack.enter_async_context(source)
