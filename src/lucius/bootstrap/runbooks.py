"""Runbooks: as a part of the application, and alone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lucius.bootstrap.stores import open_clock, open_database, open_stores
from lucius.local_secrets import callback_keys, with_secrets
from lucius.management import Management, clock_check, manage, runbook_checks
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.observer import Observer, Observers
from lucius.runbooks.core.execution_waits import Absent, nobody_absent
from lucius.runbooks.core.job_tokens import JobTokens
from lucius.runbooks.loops.settings import OrchestratorSettings, SchedulerSettings
from lucius.runbooks.opening import Runbooks, open_runbooks
from lucius.runbooks.sources.connections import Connections
from lucius.runbooks.sources.limits import SourceLimits
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database
from lucius.sql.sqlite import SqliteDatabase
from lucius.telemetry.log_observer import LogObserver
from lucius.telemetry.metrics import MetricsObserver

if TYPE_CHECKING:
    pass


@asynccontextmanager
async def open_configured_runbooks(
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
        ledger, bus = open_stores(settings, database, clock)
        await stack.enter_async_context(bus)
        metrics = MetricsObserver(clock)
        observer = Observers(metrics, LogObserver())
        runbooks = await stack.enter_async_context(
            open_configured_runbooks(settings, database, bus, clock, observer, orchestrates, schedules)
        )
        checks = runbook_checks(ledger, bus, runbooks, schedules)
        checks.append(clock_check(clock, settings.clock_skew_seconds_max))
        management = manage(checks, metrics, ledger, bus, runbooks)
        stack.callback(management.readiness.close)
        yield management
