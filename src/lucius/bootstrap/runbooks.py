"""Runbooks: as a part of the application, and alone."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from lucius.bootstrap.registry import open_registry, registry_interval
from lucius.bootstrap.runbook_grants import grants_in
from lucius.bootstrap.runbooks_database import opened_for_runbooks
from lucius.bootstrap.secrets import Secrets, open_secrets
from lucius.bootstrap.stores import open_clock, open_database, open_identity, open_stores, skew_seconds_max
from lucius.local_secrets import callback_keys, with_secrets
from lucius.management import Management, clock_check, manage, registry_check, runbook_checks, wakeup_checks
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.observer import Observer, Observers
from lucius.ports.registry import Registry
from lucius.runbooks.core.execution_waits import Absent, nobody_absent
from lucius.runbooks.core.job_tokens import JobTokens
from lucius.runbooks.loops.settings import OrchestratorSettings, SchedulerSettings
from lucius.runbooks.opening import Runbooks, RunbooksOff, open_runbooks
from lucius.runbooks.sources.connections import Connections
from lucius.runbooks.sources.limits import SourceLimits
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.wakeups import wakeups_of
from lucius.telemetry.log_observer import LogObserver
from lucius.telemetry.metrics import MetricsObserver

log = logging.getLogger("lucius.runbooks")


@asynccontextmanager
async def open_configured_runbooks(
    settings: Settings,
    secrets: Secrets,
    of_ledger: Database | None,
    bus: Bus,
    registry: Registry,
    clock: Clock,
    observer: Observer,
    orchestrates: bool,
    schedules: bool,
    absent: Absent = nobody_absent,
    upgrades: bool | None = None,
) -> AsyncIterator[Runbooks | RunbooksOff]:
    """`of_ledger` and `upgrades`: see `opened_for_runbooks`."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened_for_runbooks(settings, of_ledger, upgrades))
        if isinstance(database, RunbooksOff):
            log.warning("%s", database.why)
            yield database
            return
        own_files = tuple(one.path for one in (of_ledger, database) if isinstance(one, SqliteDatabase))
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
                database, bus, clock, observer, orchestrator, scheduler,
                secrets.follow(JobTokens(callback_keys(settings))), connections, own_files,
                orchestrates=orchestrates, schedules=schedules, absent=absent, grants=grants_in(registry),
            )
        )  # fmt: skip


@asynccontextmanager
async def open_runbooks_alone(
    settings: Settings, *, orchestrates: bool, schedules: bool, clock: Clock | None = None
) -> AsyncIterator[Management]:
    """Runbooks and what they depend on, without the engine of jobs and everything around it."""
    settings = with_secrets(settings)
    database = open_database(settings)
    async with AsyncExitStack() as stack:
        identity = await stack.enter_async_context(open_identity(settings))
        secrets = await stack.enter_async_context(open_secrets(settings, identity))
        settings = secrets.settings
        registry = await stack.enter_async_context(open_registry(settings, identity))
        stack.callback(asyncio.create_task(registry.watch(registry_interval(settings)), name="registry").cancel)
        if database is not None:
            await stack.enter_async_context(database)
            await schema.verify(database)
        clock = await stack.enter_async_context(open_clock(settings, database, LogObserver(), clock))
        metrics = MetricsObserver(clock)
        observer = Observers(metrics, LogObserver())
        ledger, bus = open_stores(settings, database, clock, identity, observer)
        await stack.enter_async_context(ledger)
        await stack.enter_async_context(bus)
        runbooks = await stack.enter_async_context(
            open_configured_runbooks(
                settings, secrets, database, bus, registry, clock, observer, orchestrates, schedules
            )
        )
        if isinstance(runbooks, RunbooksOff):
            raise SettingsError(runbooks.why)
        checks = [*runbook_checks(ledger, bus, runbooks, schedules), registry_check(registry)]
        checks.append(clock_check(clock, skew_seconds_max(settings)))
        checks += wakeup_checks(wakeups_of(database))
        checks += secrets.checks()
        management = manage(checks, metrics, ledger, bus, runbooks, wakeups=wakeups_of(database))
        stack.callback(management.readiness.close)
        yield management
