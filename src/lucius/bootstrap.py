"""The composition root: from settings to a running application. The only place that knows every adapter.

`open_app` serves every role and every test. Lifetimes hang on one exit stack: what was opened last is closed first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lucius.auth import Authenticator
from lucius.buses.memory import MemoryBus
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.clocks import SystemClock
from lucius.desk import Desk
from lucius.domain.callbacks import TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.envelope import EnvelopeRules
from lucius.domain.job import OUTBOX, TEMPORAL
from lucius.engines.outbox import EngineSettings, OutboxEngine
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer, Observers
from lucius.registries.files import FileRegistry, Overrides
from lucius.runbooks.opening import Runbooks, open_runbooks
from lucius.runbooks.orchestrator.orchestrator import OrchestratorSettings
from lucius.runbooks.scheduler.scheduler import SchedulerSettings
from lucius.runbooks.sources.limits import SourceLimits
from lucius.secrets_kept import callback_keys, is_embedded, with_secrets
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase
from lucius.telemetry.log_observer import LogObserver
from lucius.telemetry.metrics import MetricsObserver
from lucius.telemetry.traces import Traces, open_traces
from lucius.usecases.accept import Acceptance
from lucius.usecases.complete import Completion
from lucius.usecases.operate import Operations
from lucius.usecases.query import Queries
from lucius.usecases.submit import limits_for
from lucius.webhooks import WebhookSender

if TYPE_CHECKING:
    from lucius.engines.temporal.settings import TemporalSettings

SQLITE_FILE = "lucius.db"


def open_database(settings: Settings) -> Database | None:
    """The database that the ledger's address names; None for a ledger in memory."""
    address = settings.ledger
    if address == "memory":
        return None
    if address == "sqlite":
        return SqliteDatabase(Path(settings.data) / SQLITE_FILE)
    if address.startswith("sqlite:///"):
        return SqliteDatabase(Path(address.removeprefix("sqlite:///")))
    if address.startswith(("postgresql://", "postgres://")):
        from lucius.sql.postgres import PostgresDatabase

        return PostgresDatabase(address, settings.postgres_pool_max)
    raise SettingsError(f"LUCIUS_LEDGER={address!r}: it is memory, sqlite, sqlite:///path or postgresql://…")


def _open_stores(settings: Settings, database: Database | None, clock: Clock) -> tuple[Ledger, Bus]:
    bus: Bus
    if settings.bus == "memory":
        bus = MemoryBus(clock)
    elif settings.bus != "sql":
        raise SettingsError(f"LUCIUS_BUS={settings.bus!r}: it is sql or memory")
    elif database is None:
        raise SettingsError("LUCIUS_BUS=sql needs a ledger in SQL; with LUCIUS_LEDGER=memory use LUCIUS_BUS=memory")
    else:
        sql_bus = SqlBus(database, clock) if database.is_shared else JournaledBus(database, clock)
        return SqlLedger(database, sql_bus), sql_bus
    return (MemoryLedger() if database is None else SqlLedger(database)), bus


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
) -> AsyncIterator[Desk]:
    """Everything an application needs, opened and running; closed in reverse, gracefully.

    `reconciles`: whether it sweeps, repairs and sends webhooks. `works`: whether it polls for Temporal's tasks.
    `orchestrates` and `schedules`: whether it runs the orchestrator and the scheduler of runbooks.
    """
    clock = clock or SystemClock()
    settings = with_secrets(settings)
    if settings.engine not in (OUTBOX, TEMPORAL):
        raise SettingsError(f"LUCIUS_ENGINE={settings.engine!r}: it is outbox or temporal")
    registry = _open_registry(settings)
    async with AsyncExitStack() as stack:
        database = open_database(settings)
        if database is not None:
            await stack.enter_async_context(database)
            if upgrades if upgrades is not None else is_embedded(settings):
                await schema.upgrade(database)
            else:
                await schema.verify(database)
        ledger, bus = _open_stores(settings, database, clock)
        await stack.enter_async_context(ledger)
        await stack.enter_async_context(bus)
        metrics = MetricsObserver(clock)
        observer = Observers(metrics, LogObserver())
        traces = await stack.enter_async_context(open_traces(settings))
        signer = TokenSigner(callback_keys(settings))
        urls = CallbackUrls.under(settings.public_url)
        outbox = OutboxEngine(
            ledger, bus, clock, signer, urls, observer, _engine_settings(settings, reconciles), traces.trace
        )
        engine: Engine = outbox
        if settings.engine == TEMPORAL:
            # Jobs that the outbox engine accepted before are its own to finish.
            await stack.enter_async_context(outbox)
            engine = _temporal_engine(
                settings, ledger, bus, clock, signer, urls, observer, traces, works, reconciles, outbox
            )
        rules = EnvelopeRules(
            own_callback_urls=(settings.public_url, *settings.own_callback_urls),
            message_bytes_max=bus.message_bytes_max,
            artifacts_bytes_max=settings.artifacts_bytes_max,
        )
        acceptance = Acceptance(engine, ledger, registry, bus, clock, observer, rules, _workspace_root(settings))
        await acceptance.declare()
        await stack.enter_async_context(engine)
        if reconciles:
            await stack.enter_async_context(WebhookSender(ledger, registry, clock, settings, observer))
        runbooks = await stack.enter_async_context(
            _open_runbooks(settings, database, bus, clock, observer, orchestrates, schedules)
        )
        watcher = asyncio.create_task(registry.watch(settings.registry_reload_seconds), name="registry")
        stack.callback(watcher.cancel)
        queries = Queries(ledger, engine)
        yield Desk(
            settings=settings,
            acceptance=acceptance,
            completion=Completion(engine, signer, clock, observer, settings.artifacts_bytes_max),
            operations=Operations(
                engine, queries, ledger, clock,
                lambda job: limits_for(registry.snapshot(), job.spec.tenant_id, job.spec.routing.resolved_mode),
            ),
            queries=queries,
            runbooks=runbooks,
            engine=engine,
            ledger=ledger,
            bus=bus,
            registry=registry,
            clock=clock,
            authenticator=Authenticator(settings),
            observer=observer,
            metrics=metrics,
            traces=traces,
            stopping=asyncio.Event(),
        )  # fmt: skip


@asynccontextmanager
async def _open_runbooks(
    settings: Settings,
    database: Database | None,
    bus: Bus,
    clock: Clock,
    observer: Observer,
    orchestrates: bool,
    schedules: bool,
) -> AsyncIterator[Runbooks]:
    async with AsyncExitStack() as stack:
        own_files = (database.path,) if isinstance(database, SqliteDatabase) else ()
        if database is None:
            # A ledger in memory has no tables, and runbooks are tables: theirs are in memory too.
            database = await stack.enter_async_context(VolatileDatabase())
            await schema.upgrade(database)
        limits = SourceLimits(query_seconds=settings.source_query_seconds, rows_max=settings.source_rows_max)
        scheduler = SchedulerSettings(
            interval=settings.scheduler_interval,
            lease_seconds=settings.scheduler_lease_seconds,
            source_interval=settings.source_interval,
            source_share_min=settings.source_share_min,
            limits=limits,
        )
        orchestrator = OrchestratorSettings(
            lock_seconds=settings.runbook_lock_seconds,
            sweep_interval=settings.runbook_sweep_interval,
            stop_seconds=settings.stop_seconds,
        )
        yield await stack.enter_async_context(
            open_runbooks(
                database, bus, clock, observer, orchestrator, scheduler, os.environ, own_files,
                orchestrates=orchestrates, schedules=schedules,
            )
        )  # fmt: skip


@asynccontextmanager
async def open_runbooks_alone(settings: Settings, *, orchestrates: bool, schedules: bool) -> AsyncIterator[Runbooks]:
    """Runbooks and what they stand on, without the engine of jobs and everything around it."""
    clock = SystemClock()
    database = open_database(settings)
    if database is None:
        raise SettingsError("LUCIUS_LEDGER=memory has no tables")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(database)
        await schema.verify(database)
        _, bus = _open_stores(settings, database, clock)
        await stack.enter_async_context(bus)
        yield await stack.enter_async_context(
            _open_runbooks(settings, database, bus, clock, LogObserver(), orchestrates, schedules)
        )


@asynccontextmanager
async def open_bus(settings: Settings) -> AsyncIterator[Bus]:
    """The bus alone, for a worker that needs nothing else of LUCIUS."""
    database = open_database(settings)
    if database is None or not database.is_shared:
        raise SettingsError(
            "a worker on the bus needs one that processes share (LUCIUS_LEDGER=postgresql://…); on the embedded default"
            " it takes its jobs over HTTP"
        )
    async with database:
        await schema.verify(database)
        async with SqlBus(database, SystemClock()) as bus:
            yield bus


def _open_registry(settings: Settings) -> FileRegistry:
    overrides = Overrides(
        policy=settings.policy,
        max_inflight=settings.max_inflight,
        max_inflight_per_tenant=settings.max_inflight_per_tenant,
        job_deadline_seconds=settings.job_deadline_seconds,
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
        raise SettingsError("LUCIUS_ENGINE=temporal needs the extra `temporal`: install lucius[temporal]") from error
    wanted = temporal_settings(settings)
    return TemporalEngine(
        lambda: connect(wanted, traces.temporal_interceptors()), ledger, bus, clock, signer, urls, observer, wanted,
        traces.trace, works=works, reconciles=reconciles, elsewhere=elsewhere,
    )  # fmt: skip


def temporal_settings(settings: Settings) -> TemporalSettings:
    from lucius.engines.temporal.settings import TemporalSettings

    names = TemporalSettings.__struct_fields__
    given = {name: getattr(settings, f"temporal_{name}") for name in names if hasattr(settings, f"temporal_{name}")}
    shared = {name: getattr(settings, name) for name in ("publish_timeout_seconds", "stop_seconds")}
    return TemporalSettings(**given, **shared)


def _workspace_root(settings: Settings) -> str:
    return settings.workspace_root or (Path(settings.data).resolve() / "workspace").as_uri()
