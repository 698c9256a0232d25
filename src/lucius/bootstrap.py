"""The composition root: from settings to a running application. The only place that knows every adapter.

`open_app` serves every role and every test. One exit stack owns all lifetimes: what was opened last is closed first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lucius.app_context import AppContext
from lucius.auth import Authenticator
from lucius.buses.memory import MemoryBus
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.clocks import DatabaseClock, SystemClock
from lucius.domain.callbacks import TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.envelope import EnvelopeRules, Terms
from lucius.domain.job import OUTBOX, TEMPORAL
from lucius.engines.loops import every
from lucius.engines.outbox import EngineSettings, OutboxEngine
from lucius.kit.identity import Identity
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import SqlLedger
from lucius.ledgers.sql.bulk_operations import SqlBulkOperations
from lucius.ledgers.sql.workers import SqlWorkers
from lucius.local_secrets import callback_keys, data_folder_errors, is_embedded, with_secrets
from lucius.local_tenant_files import LocalTenantFiles
from lucius.management import Management, app_checks, clock_check, manage, runbook_checks
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer, Observers
from lucius.ports.workers import WorkerKind, Workers
from lucius.private_files import make_private_folder
from lucius.registries.files import FileRegistry, Overrides
from lucius.runbooks.bus_source import BusSource
from lucius.runbooks.core.execution_waits import Absent, nobody_absent
from lucius.runbooks.core.job_tokens import JobTokens
from lucius.runbooks.loops.settings import OrchestratorSettings, SchedulerSettings
from lucius.runbooks.opening import Runbooks, open_runbooks
from lucius.runbooks.sources.connections import Connections
from lucius.runbooks.sources.limits import SourceLimits
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database, DatabaseUnavailable
from lucius.sql.server_time import read_server_time
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase
from lucius.telemetry.log_observer import LogObserver
from lucius.telemetry.metrics import MetricsObserver
from lucius.telemetry.traces import Traces, open_traces
from lucius.usecases.accept import Acceptance
from lucius.usecases.bulk_operations import Bulk
from lucius.usecases.bulk_runner import BulkRunner
from lucius.usecases.complete import Completion
from lucius.usecases.fair_slots import FairSlots
from lucius.usecases.operate import Operations
from lucius.usecases.pull import Pulls
from lucius.usecases.query import Queries
from lucius.usecases.sightings import FLUSH_SECONDS, Sightings
from lucius.usecases.submit import limits_for, terms_for
from lucius.usecases.waits import WaitCap, WaitKind, Waits
from lucius.warm_up import warm_up
from lucius.webhooks import WebhookSender

if TYPE_CHECKING:
    from lucius.engines.temporal.settings import TemporalSettings

log = logging.getLogger("lucius.sql")

SQLITE_FILE = "lucius.db"
NATS_SCHEMES = ("nats://", "tls://")
UPGRADE_LOG_SECONDS = 5.0
STREAM_READS_MAX = 2
STREAM_READS_PER_CALLER_MAX = 1
STREAM_READ_SECONDS_MAX = 30.0
"""How long an event stream waits for its turn to read."""
LISTS_WAITING_MAX = 64
"""Lists of one caller that may wait for a slot. They occupy only a connection."""


def open_database(settings: Settings, statement_seconds: float | None = None) -> Database | None:
    """The database of the ledger's address; None for a ledger in memory."""
    address = settings.ledger
    if address == "memory":
        return None
    if address == "sqlite":
        return SqliteDatabase(Path(settings.data) / SQLITE_FILE, settings.lists_max, settings.list_seconds_max)
    if address.startswith("sqlite:///"):
        path = Path(address.removeprefix("sqlite:///"))
        return SqliteDatabase(path, settings.lists_max, settings.list_seconds_max)
    if address.startswith(("postgresql://", "postgres://")):
        from lucius.sql.postgres import STATEMENT_SECONDS, PostgresDatabase

        return PostgresDatabase(
            address,
            settings.postgres_pool_max,
            settings.lists_max,
            settings.list_seconds_max,
            statement_seconds or STATEMENT_SECONDS,
        )
    raise SettingsError(f"LUCIUS_LEDGER={address!r}: must be memory, sqlite, sqlite:///path or postgresql://…")


def _log_rows_copied() -> Callable[[int, int], None]:
    logged_at = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= UPGRADE_LOG_SECONDS:
            logged_at = time.monotonic()
            log.warning("the tables are being upgraded: %d of %d rows copied", done, total)

    return report


@asynccontextmanager
async def open_clock(
    settings: Settings, database: Database | None, observer: Observer, machine: Clock | None = None
) -> AsyncIterator[Clock]:
    """The clock to use: that of a shared database, or else that of this machine."""
    machine = machine or SystemClock()
    if database is None or not database.is_shared:
        yield machine
        return
    read = partial(read_server_time, database)
    async with DatabaseClock(read, machine, settings.clock_skew_seconds_max, observer.failed) as clock:
        yield clock


def _open_stores(settings: Settings, database: Database | None, clock: Clock) -> tuple[Ledger, Bus]:
    bus: Bus
    if settings.bus == "memory":
        bus = MemoryBus(clock, dead_seconds=settings.dead_message_seconds)
    elif settings.bus.startswith(NATS_SCHEMES):
        bus = _nats_bus(settings, clock)
    elif settings.bus != "sql":
        raise SettingsError(f"LUCIUS_BUS={settings.bus!r}: must be sql, memory or nats://host:port")
    elif database is None:
        raise SettingsError("LUCIUS_BUS=sql needs a ledger in SQL; with LUCIUS_LEDGER=memory use LUCIUS_BUS=memory")
    else:
        make = SqlBus if database.is_shared else JournaledBus
        sql_bus = make(database, clock, dead_seconds=settings.dead_message_seconds)
        return SqlLedger(database, sql_bus), sql_bus
    return (MemoryLedger() if database is None else SqlLedger(database)), bus


def _nats_bus(settings: Settings, clock: Clock) -> Bus:
    try:
        from lucius.buses.nats import NatsBus, NatsOptions
        from lucius.buses.nats.options import read_servers
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("nats", "nkeys", "nacl"):
            raise
        raise SettingsError("LUCIUS_BUS=nats://… needs the extra `nats`: install lucius[nats]") from error
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
    return NatsBus(options, clock, dead_seconds=settings.dead_message_seconds)


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    reconciles: bool = True,
    works: bool = True,
    orchestrates: bool = True,
    schedules: bool = True,
    upgrades: bool | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[AppContext]:
    """Everything an application needs, opened and running; closed gracefully in reverse order.

    `reconciles`: whether it sweeps, repairs and sends webhooks. `works`: whether it polls for Temporal's tasks.
    `orchestrates` and `schedules`: whether it runs the orchestrator and the scheduler of runbooks. `clock`: this
    machine's clock; that of a shared database takes precedence.
    """
    settings = with_secrets(settings)
    if settings.engine not in (OUTBOX, TEMPORAL):
        raise SettingsError(f"LUCIUS_ENGINE={settings.engine!r}: must be outbox or temporal")
    registry = _open_registry(settings)
    if settings.ledger == "sqlite":
        with data_folder_errors(settings):
            make_private_folder(Path(settings.data))
    files = LocalTenantFiles(settings)
    async with AsyncExitStack() as stack:
        database = open_database(settings)
        if database is not None:
            await stack.enter_async_context(database)
            if upgrades if upgrades is not None else is_embedded(settings):
                await schema.upgrade(database, report=_log_rows_copied())
            else:
                await schema.verify(database)
        clock = await stack.enter_async_context(open_clock(settings, database, LogObserver(), clock))
        metrics = MetricsObserver(clock, lambda tenant_id: tenant_id in registry.snapshot().tenants)
        observer = Observers(metrics, LogObserver())
        ledger, bus = _open_stores(settings, database, clock)
        await stack.enter_async_context(ledger)
        await stack.enter_async_context(bus)
        traces = await stack.enter_async_context(open_traces(settings))
        signer = TokenSigner(callback_keys(settings))
        urls = CallbackUrls.under(settings.public_url)
        outbox = OutboxEngine(
            ledger, bus, clock, signer, urls, observer, _engine_settings(settings, reconciles), traces.trace
        )
        engine: Engine = outbox
        if settings.engine == TEMPORAL:
            # The outbox engine finishes the jobs that it accepted earlier.
            await stack.enter_async_context(outbox)
            engine = _temporal_engine(
                settings, ledger, bus, clock, signer, urls, observer, traces, works, reconciles, outbox
            )
        rules = EnvelopeRules(
            own_callback_urls=(settings.public_url, *settings.own_callback_urls),
            message_bytes_max=bus.message_bytes_max,
            artifacts_bytes_max=settings.artifacts_bytes_max,
        )
        acceptance = Acceptance(engine, ledger, registry, bus, clock, observer, rules, files)
        await acceptance.declare()
        await stack.enter_async_context(engine)
        if reconciles:
            await stack.enter_async_context(WebhookSender(ledger, registry, clock, settings, observer))
        if database is None:
            # A ledger in memory has no tables, but runbooks and bulk operations need tables: these are in memory too.
            tables: Database = await stack.enter_async_context(VolatileDatabase())
            await schema.upgrade(tables)
        else:
            tables = database
        sightings = await stack.enter_async_context(_keep_sightings(SqlWorkers(tables), clock, observer, reconciles))
        runbooks = await stack.enter_async_context(
            _open_runbooks(settings, tables, bus, clock, observer, orchestrates, schedules, sightings.absent_worker)
        )
        watcher = asyncio.create_task(registry.watch(settings.registry_reload_seconds), name="registry")
        stack.callback(watcher.cancel)
        queries = Queries(ledger, engine)
        authenticator = Authenticator(settings)
        checks = app_checks(ledger, bus, engine, registry, authenticator, runbooks, schedules)
        checks.append(clock_check(clock, settings.clock_skew_seconds_max))
        management = manage(checks, metrics, ledger, bus, runbooks, registry)
        stack.callback(management.readiness.close)

        def terms_of(tenant_id: str) -> Terms:
            return terms_for(registry.snapshot(), files, tenant_id)

        operations = Operations(
            engine, queries, ledger, clock,
            lambda job: limits_for(registry.snapshot(), job.spec.tenant_id, job.spec.routing.resolved_mode),
            lambda tenant_id: terms_of(tenant_id).admitted,
        )  # fmt: skip
        bulk_store = SqlBulkOperations(tables)
        if reconciles:
            runner = BulkRunner(bulk_store, ledger, operations, clock, observer)
            await stack.enter_async_context(_run_operations(runner, settings, observer))
        yield AppContext(
            settings=settings,
            acceptance=acceptance,
            completion=Completion(engine, signer, clock, observer, terms_of),
            operations=operations,
            bulk=Bulk(bulk_store, ledger, clock, settings.operation_jobs_max),
            pulls=Pulls(registry, bus, engine, acceptance),
            sightings=sightings,
            queries=queries,
            runbooks=runbooks,
            engine=engine,
            ledger=ledger,
            bus=bus,
            registry=registry,
            clock=clock,
            authenticator=authenticator,
            observer=observer,
            list_slots=FairSlots(
                settings.lists_max, settings.lists_per_caller_max, LISTS_WAITING_MAX, settings.list_seconds_max
            ),
            stream_slots=FairSlots(
                STREAM_READS_MAX, STREAM_READS_PER_CALLER_MAX, settings.streams_max, STREAM_READ_SECONDS_MAX
            ),
            metrics=metrics,
            traces=traces,
            waits=_waits(settings, observer),
            management=management,
            stopping=asyncio.Event(),
        )  # fmt: skip


@asynccontextmanager
async def _keep_sightings(
    store: Workers, clock: Clock, observer: Observer, forgets: bool = False
) -> AsyncIterator[Sightings]:
    """Written and read every few seconds, and once more at the end."""
    sightings = Sightings(store, clock)

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
async def _run_operations(runner: BulkRunner, settings: Settings, observer: Observer) -> AsyncIterator[None]:
    task = every(settings.operations_interval, "operations", runner.round, observer)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        try:
            async with asyncio.timeout(settings.stop_seconds):
                await runner.stop()
        except (DatabaseUnavailable, TimeoutError) as error:
            observer.failed("releasing the leases of operations; they end by themselves", error)


@asynccontextmanager
async def _open_runbooks(
    settings: Settings,
    database: Database,
    bus: Bus,
    clock: Clock,
    observer: Observer,
    orchestrates: bool,
    schedules: bool,
    absent: Absent = nobody_absent,
) -> AsyncIterator[Runbooks]:
    async with AsyncExitStack() as stack:
        own_files = (database.path,) if isinstance(database, SqliteDatabase) else ()
        if settings.source_still_seconds >= settings.source_query_seconds:
            raise SettingsError(
                f"LUCIUS_SOURCE_STILL_SECONDS={settings.source_still_seconds:g} leaves no time to read a file: it must"
                f" be less than LUCIUS_SOURCE_QUERY_SECONDS={settings.source_query_seconds:g}"
            )
        limits = SourceLimits(
            query_seconds=settings.source_query_seconds,
            rows_max=settings.source_rows_max,
            still_seconds=settings.source_still_seconds,
        )
        scheduler = SchedulerSettings(
            interval=settings.scheduler_interval,
            lease_seconds=settings.scheduler_lease_seconds,
            source_interval=settings.source_interval,
            source_share_min=settings.source_share_min,
            absence_seconds=settings.source_absence_seconds,
            limits=limits,
        )
        orchestrator = OrchestratorSettings(
            lock_seconds=settings.runbook_lock_seconds,
            sweep_interval=settings.runbook_sweep_interval,
            stop_seconds=settings.stop_seconds,
        )
        connections = Connections(os.environ, Path(settings.sources_file) if settings.sources_file else None)
        yield await stack.enter_async_context(
            open_runbooks(
                database, bus, clock, observer, orchestrator, scheduler, JobTokens(callback_keys(settings)),
                connections, own_files,
                orchestrates=orchestrates, schedules=schedules, absent=absent,
            )
        )  # fmt: skip


@asynccontextmanager
async def open_runbooks_alone(
    settings: Settings, *, orchestrates: bool, schedules: bool, clock: Clock | None = None
) -> AsyncIterator[Management]:
    """Runbooks and what they depend on, without the engine of jobs and everything around it."""
    settings = with_secrets(settings)
    database = open_database(settings)
    if database is None:
        raise SettingsError("LUCIUS_LEDGER=memory has no tables")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(database)
        await schema.verify(database)
        clock = await stack.enter_async_context(open_clock(settings, database, LogObserver(), clock))
        ledger, bus = _open_stores(settings, database, clock)
        await stack.enter_async_context(bus)
        metrics = MetricsObserver(clock)
        observer = Observers(metrics, LogObserver())
        runbooks = await stack.enter_async_context(
            _open_runbooks(settings, database, bus, clock, observer, orchestrates, schedules)
        )
        checks = runbook_checks(ledger, bus, runbooks, schedules)
        checks.append(clock_check(clock, settings.clock_skew_seconds_max))
        management = manage(checks, metrics, ledger, bus, runbooks)
        stack.callback(management.readiness.close)
        yield management


@asynccontextmanager
async def open_bus(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Bus]:
    """The bus alone, for a worker that needs nothing else of LUCIUS."""
    async with _open_bus_alone(settings, clock) as (_, _, bus):
        yield bus


@asynccontextmanager
async def _open_bus_alone(settings: Settings, clock: Clock | None) -> AsyncIterator[tuple[Database | None, Clock, Bus]]:
    """With the database that it lives in, if it does."""
    if settings.bus.startswith(NATS_SCHEMES):
        time = clock or SystemClock()
        async with _nats_bus(settings, time) as bus:
            yield None, time, bus
        return
    database = open_database(settings)
    if database is None or not database.is_shared:
        raise SettingsError(
            "a worker on the bus needs a shared bus (LUCIUS_LEDGER=postgresql://… or LUCIUS_BUS=nats://…); on the"
            " embedded default it takes its jobs over HTTP"
        )
    async with database:
        await schema.verify(database)
        async with open_clock(settings, database, LogObserver(), clock) as time, SqlBus(database, time) as bus:
            yield database, time, bus


@asynccontextmanager
async def open_bus_worker(settings: Settings, worker_id: str, version: str = "") -> AsyncIterator[BusSource]:
    """Where a function worker on the bus takes its jobs. If the bus is in the database, the worker is seen there like
    one that takes its jobs over HTTP."""
    identity = Identity(version)
    async with AsyncExitStack() as stack:
        database, clock, bus = await stack.enter_async_context(_open_bus_alone(settings, None))
        source = BusSource(worker_id, bus, settings.worker_lock_seconds)
        if database is not None:
            keeping = _keep_sightings(SqlWorkers(database), clock, LogObserver())
            sightings = await stack.enter_async_context(keeping)

            def saw(in_work: int) -> None:
                sightings.saw(WorkerKind.WORKER, worker_id, identity.instance, identity.version, in_work)

            source = BusSource(worker_id, bus, settings.worker_lock_seconds, saw)
        yield await stack.enter_async_context(source)


def _open_registry(settings: Settings) -> FileRegistry:
    overrides = Overrides(
        policy=settings.policy,
        max_inflight=settings.max_inflight,
        max_inflight_per_tenant=settings.max_inflight_per_tenant,
        job_deadline_seconds=settings.job_deadline_seconds,
        unknown_tenants_allowed=False if settings.tenants_registered_only else None,
    )
    folder = Path(settings.registry) if settings.registry else None
    return FileRegistry(folder, overrides, file_scheme_allowed=is_embedded(settings) or settings.file_refs_allowed)


def _engine_settings(settings: Settings, reconciles: bool) -> EngineSettings:
    shared = {name: getattr(settings, name) for name in EngineSettings.__struct_fields__ if hasattr(settings, name)}
    return EngineSettings(**shared, reconciles=reconciles)


def _temporal_engine(
    settings: Settings,
    ledger: Ledger,
    bus: Bus,
    clock: Clock,
    signer: TokenSigner,
    urls: CallbackUrls,
    observer: Observer,
    traces: Traces,
    works: bool,
    reconciles: bool,
    elsewhere: Engine,
) -> Engine:
    try:
        from lucius.engines.temporal.client import connect
        from lucius.engines.temporal.engine import TemporalEngine
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("temporalio"):
            raise
        raise SettingsError(
            "LUCIUS_ENGINE=temporal needs the extra `temporal`: pip install '.[temporal]' in a clone of LUCIUS"
        ) from error
    warm_up()  # That import added types, which the threads of a worker decode.
    options = temporal_settings(settings)
    return TemporalEngine(
        lambda: connect(options, traces.temporal_interceptors()), ledger, bus, clock, signer, urls, observer, options,
        traces.trace, works=works, reconciles=reconciles, elsewhere=elsewhere,
    )  # fmt: skip


def temporal_settings(settings: Settings) -> TemporalSettings:
    from lucius.engines.temporal.settings import TemporalSettings

    names = TemporalSettings.__struct_fields__
    given = {name: getattr(settings, f"temporal_{name}") for name in names if hasattr(settings, f"temporal_{name}")}
    shared = {name: getattr(settings, name) for name in ("publish_timeout_seconds", "stop_seconds")}
    return TemporalSettings(**given, **shared)


def _waits(settings: Settings, observer: Observer) -> Waits:
    caps = {
        WaitKind.WAIT: WaitCap(per_principal=settings.waits_per_principal_max, in_all=settings.waits_max),
        WaitKind.STREAM: WaitCap(per_principal=settings.streams_per_principal_max, in_all=settings.streams_max),
    }
    return Waits(caps, settings.connections_max, observer)
