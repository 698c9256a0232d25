"""The whole application. One exit stack owns all lifetimes: what was opened last is closed first."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lucius.app_context import AppContext
from lucius.auth import Authenticator
from lucius.auth.openid import OpenIdConnect
from lucius.domain.callbacks import TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.envelope import EnvelopeRules, Terms
from lucius.domain.job import OUTBOX, TEMPORAL
from lucius.engines.loops import every
from lucius.engines.outbox import OutboxEngine
from lucius.ledgers.sql import SqlLedger
from lucius.ledgers.sql.audit import SqlAudit
from lucius.ledgers.sql.deadlines import LOOK_SECONDS as DEADLINES_SECONDS
from lucius.ledgers.sql.deadlines import JobDeadlines
from lucius.local_secrets import callback_keys, data_folder_errors, is_embedded, with_secrets
from lucius.local_tenant_files import LocalTenantFiles
from lucius.management import app_checks, clock_check, manage, notifications_check, wakeup_checks
from lucius.notifiers import NotificationSender
from lucius.notifiers.operators import Notifications
from lucius.ports.audit import AuditSource
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger, LedgerUnavailable
from lucius.ports.observer import Observer, Observers
from lucius.ports.readiness import Check
from lucius.ports.workers import WorkerKind
from lucius.private_files import make_private_folder
from lucius.runbooks.opening import Runbooks, RunbooksOff
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database, DatabaseUnavailable
from lucius.sql.wakeups import wakeups_of
from lucius.telemetry.log_observer import LogObserver
from lucius.telemetry.metrics import MetricsObserver
from lucius.telemetry.traces import open_traces
from lucius.usecases.accept import Acceptance
from lucius.usecases.audit import Audit
from lucius.usecases.bulk_operations import Bulk
from lucius.usecases.bulk_runner import BulkRunner
from lucius.usecases.changes import Changes
from lucius.usecases.complete import Completion
from lucius.usecases.console_sessions import ConsoleSessions
from lucius.usecases.fair_slots import FairSlots
from lucius.usecases.figures import Figures
from lucius.usecases.job_notices import JobNotices
from lucius.usecases.lane_history import LOOK_SECONDS as LANES_SECONDS
from lucius.usecases.lane_history import LaneHistory
from lucius.usecases.lanes import Lanes
from lucius.usecases.operate import Operations
from lucius.usecases.pull import Pulls
from lucius.usecases.query import Queries
from lucius.usecases.refusals import FLUSH_SECONDS as REFUSALS_SECONDS
from lucius.usecases.refusals import Refusals
from lucius.usecases.replies import Replies
from lucius.usecases.retention import ROUND_SECONDS as RETENTION_SECONDS
from lucius.usecases.retention import Retention
from lucius.usecases.sightings import ServiceFailures
from lucius.usecases.submit import limits_for, terms_for
from lucius.usecases.waits import WaitCap, WaitKind, Waits
from lucius.webhooks import WebhookSender

if TYPE_CHECKING:
    pass

from lucius.bootstrap.archive import open_archive
from lucius.bootstrap.engines import engine_settings, open_temporal_engine
from lucius.bootstrap.operator_stores import OperatorStores, open_operator_stores
from lucius.bootstrap.rate_gate import open_rate_gate
from lucius.bootstrap.registry import open_registry, registry_interval
from lucius.bootstrap.runbooks import open_configured_runbooks
from lucius.bootstrap.secrets import Secrets, open_secrets
from lucius.bootstrap.stores import (
    check_skew,
    open_clock,
    open_database,
    open_identity,
    open_stores,
    skew_seconds_max,
)
from lucius.bootstrap.tables_ledger import is_on_tables, prepare_tables
from lucius.bootstrap.workers import keep_sightings

log = logging.getLogger("lucius.sql")
log_notifications = logging.getLogger("lucius.notifications")

UPGRADE_LOG_SECONDS = 5.0
SECONDS_OF_HOUR = 3_600
CHANGES_ELSEWHERE_SECONDS = 0.7
STREAM_READS_MAX = 2
STREAM_READS_PER_CALLER_MAX = 1
STREAM_READ_SECONDS_MAX = 30.0
"""How long an event stream waits for its turn to read."""
LISTS_WAITING_MAX = 64
"""Lists of one caller that may wait for a slot. They occupy only a connection."""


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    reconciles: bool = True,
    works: bool = True,
    orchestrates: bool = True,
    schedules: bool = True,
    takes_replies: bool = True,
    upgrades: bool | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[AppContext]:
    """Everything an application needs, opened and running; closed gracefully in reverse order.

    `reconciles`: whether it sweeps, repairs and sends webhooks. `works`: whether it polls for Temporal's tasks.
    `orchestrates` and `schedules`: whether it runs the orchestrator and the scheduler of runbooks. `takes_replies`:
    whether it takes callbacks from the bus, if the settings say so. `clock`: this machine's clock; that of a shared
    database takes precedence.
    """
    settings = with_secrets(settings)
    if settings.engine not in (OUTBOX, TEMPORAL):
        raise SettingsError(f"LUCIUS_ENGINE={settings.engine!r}: must be outbox or temporal")
    if settings.retention_days < 0:
        raise SettingsError(f"LUCIUS_RETENTION_DAYS={settings.retention_days:g}: must be 0 or more")
    if settings.ledger == "sqlite":
        with data_folder_errors(settings):
            make_private_folder(Path(settings.data))
    files = LocalTenantFiles(settings)
    async with AsyncExitStack() as stack:
        identity = await stack.enter_async_context(open_identity(settings))
        secrets = await stack.enter_async_context(open_secrets(settings, identity))
        settings = secrets.settings
        registry = await stack.enter_async_context(open_registry(settings, identity))
        database = open_database(settings)
        if database is not None:
            await stack.enter_async_context(database)
            if upgrades if upgrades is not None else is_embedded(settings):
                await schema.upgrade(database, report=_log_rows_copied())
            else:
                await schema.verify(database)
        clock = await stack.enter_async_context(open_clock(settings, database, LogObserver(), clock))
        metrics = MetricsObserver(clock, lambda tenant_id: tenant_id in registry.snapshot().tenants)
        changes, refusals, service_failures = Changes(), Refusals(clock), ServiceFailures()
        observer = Observers(metrics, LogObserver(), changes, refusals, service_failures)
        ledger, bus = open_stores(settings, database, clock, identity)
        await stack.enter_async_context(ledger)
        job_notices = JobNotices(registry)
        if isinstance(ledger, SqlLedger):
            ledger.notices_of = job_notices.of
        if is_on_tables(settings):
            await prepare_tables(ledger, creates=bool(upgrades))
            check_skew(clock, settings)
        await stack.enter_async_context(bus)
        traces = await stack.enter_async_context(open_traces(settings))
        signer = secrets.follow(TokenSigner(callback_keys(settings)))
        urls = CallbackUrls.under(settings.public_url)
        outbox = OutboxEngine(
            ledger, bus, clock, signer, urls, observer, engine_settings(settings, reconciles), traces.trace,
            wakeups_of(database),
        )  # fmt: skip
        engine: Engine = outbox
        if settings.engine == TEMPORAL:
            # The outbox engine finishes the jobs that it accepted earlier.
            await stack.enter_async_context(outbox)
            engine = open_temporal_engine(
                settings, ledger, bus, clock, signer, urls, observer, traces, works, reconciles, outbox
            )
        rules = EnvelopeRules(
            own_callback_urls=(settings.public_url, *settings.own_callback_urls),
            message_bytes_max=bus.message_bytes_max,
            artifacts_bytes_max=settings.artifacts_bytes_max,
        )
        gate = await stack.enter_async_context(open_rate_gate(settings))
        acceptance = Acceptance(engine, ledger, registry, bus, clock, observer, rules, files, gate)
        await acceptance.declare()
        await stack.enter_async_context(engine)
        if reconciles:
            sender = WebhookSender(ledger, registry, clock, settings, observer, read_secret=secrets.read)
            await stack.enter_async_context(sender)
        stores = await open_operator_stores(stack, settings, database, ledger)
        sightings = await stack.enter_async_context(keep_sightings(stores.workers, clock, observer, reconciles))
        service_failures.sightings = sightings
        stack.callback(_note_changes_elsewhere(changes, database, settings, observer).cancel)
        runbooks = await stack.enter_async_context(
            open_configured_runbooks(
                settings, secrets, stores.database, bus, registry, clock, observer, orchestrates, schedules,
                sightings.absent_worker, upgrades,
            )
        )  # fmt: skip
        notifications = Notifications(registry, runbooks, database, clock, settings.ledger.partition(":")[0])
        if notifications.problem is not None:
            log_notifications.warning("%s", notifications.problem)
        if reconciles:
            notifier = NotificationSender(notifications.databases, clock, settings, observer, secrets.read)
            await stack.enter_async_context(notifier)
            if database is not None:
                deadlines = JobDeadlines(database, clock, job_notices)
                stack.callback(every(DEADLINES_SECONDS, "deadlines", deadlines.look, observer).cancel)
        watcher = asyncio.create_task(registry.watch(registry_interval(settings)), name="registry")
        stack.callback(watcher.cancel)
        await stack.enter_async_context(_keep_refusals(refusals, ledger, observer))
        queries = Queries(ledger, engine)
        lanes = LaneHistory(bus, stores.lane_samples, clock)
        if reconciles:
            stack.callback(every(LANES_SECONDS, "lane history", lanes.take, observer).cancel)
        authenticator = Authenticator(settings, key_source=secrets.api_keys())
        checks = app_checks(ledger, bus, engine, registry, authenticator, runbooks, schedules)
        checks.append(clock_check(clock, skew_seconds_max(settings)))
        checks += wakeup_checks(wakeups_of(database))
        checks += secrets.checks()
        checks += acceptance.rates.checks()
        checks.append(notifications_check(notifications))

        def terms_of(tenant_id: str) -> Terms:
            return terms_for(registry.snapshot(), files, tenant_id)

        completion = Completion(engine, signer, clock, observer, terms_of, settings.artifacts_bytes_max)
        if settings.bus_replies and takes_replies:
            saw = partial(sightings.saw, WorkerKind.SERVICE)
            replies = Replies(bus, ledger, completion, observer, settings.artifacts_bytes_max, saw)
            await stack.enter_async_context(replies)
            checks.append(Check(name="replies", look=replies.health, is_vital=False))
        management = manage(checks, metrics, ledger, bus, runbooks, registry, sightings, wakeups_of(database))
        stack.callback(management.readiness.close)

        operations = Operations(
            engine, queries, ledger, clock, observer,
            lambda job: limits_for(registry.snapshot(), job.spec.tenant_id, job.spec.routing.resolved_mode),
            lambda tenant_id: terms_of(tenant_id).admitted,
        )  # fmt: skip
        if reconciles:
            runner = BulkRunner(stores.bulk, ledger, operations, clock, observer)
            await stack.enter_async_context(_run_operations(runner, settings, observer))
        archive = await stack.enter_async_context(open_archive(settings, identity))
        retention = Retention(ledger, stores.bulk, registry, clock, observer, archive, settings.retention_days or None)
        if reconciles:
            stack.callback(every(RETENTION_SECONDS, "retention", retention.round, observer).cancel)
        yield AppContext(
            settings=settings,
            acceptance=acceptance,
            completion=completion,
            operations=operations,
            bulk=Bulk(stores.bulk, ledger, clock, observer, settings.operation_jobs_max),
            audit=Audit(_audit_sources(stores, runbooks)),
            pulls=Pulls(registry, bus, engine, acceptance),
            sightings=sightings,
            lanes=Lanes(bus, ledger, sightings),
            queries=queries,
            figures=Figures(ledger, registry, clock),
            lane_history=lanes,
            notifications=notifications,
            retention=retention,
            opened_runbooks=runbooks,
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
            changes=changes,
            console_sessions=ConsoleSessions(
                stores.console_tokens, clock, settings.console_session_hours * SECONDS_OF_HOUR
            ),
            console_views=stores.console_views,
            openid=_openid(settings, secrets),
            metrics=metrics,
            traces=traces,
            waits=_waits(settings, observer),
            management=management,
            stopping=asyncio.Event(),
        )  # fmt: skip


def _openid(settings: Settings, secrets: Secrets) -> OpenIdConnect | None:
    if not settings.oidc_issuer:
        if settings.oidc_client_id or settings.oidc_client_secret:
            raise SettingsError("LUCIUS_OIDC_CLIENT_ID and LUCIUS_OIDC_CLIENT_SECRET need LUCIUS_OIDC_ISSUER")
        return None
    return OpenIdConnect(settings, settings.openid_return_address, secrets.oidc_client_secret)


def _audit_sources(stores: OperatorStores, runbooks: Runbooks | RunbooksOff) -> list[AuditSource]:
    if isinstance(runbooks, Runbooks) and runbooks.turns.database is not stores.database:
        return [*stores.audit, SqlAudit(runbooks.turns.database)]
    return stores.audit


def _note_changes_elsewhere(
    changes: Changes, database: Database | None, settings: Settings, observer: Observer
) -> asyncio.Task[None]:
    """On a shared ledger, other processes change jobs too: whoever follows looks again."""

    async def note() -> None:
        is_shared = is_on_tables(settings) or (database is not None and database.is_shared)
        if settings.engine == TEMPORAL or is_shared:
            changes.note_all()

    return every(CHANGES_ELSEWHERE_SECONDS, "changes elsewhere", note, observer)


@asynccontextmanager
async def _keep_refusals(refusals: Refusals, ledger: Ledger, observer: Observer) -> AsyncIterator[None]:
    """Written every few seconds, and once more at the end."""
    task = every(REFUSALS_SECONDS, "refusals", partial(refusals.flush, ledger), observer)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        try:
            await refusals.flush(ledger)
        except LedgerUnavailable as error:
            observer.failed("writing how many commands were refused", error)


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


def _log_rows_copied() -> Callable[[int, int], None]:
    logged_at = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= UPGRADE_LOG_SECONDS:
            logged_at = time.monotonic()
            log.warning("the tables are being upgraded: %d of %d rows copied", done, total)

    return report


def _waits(settings: Settings, observer: Observer) -> Waits:
    caps = {
        WaitKind.WAIT: WaitCap(per_principal=settings.waits_per_principal_max, in_all=settings.waits_max),
        WaitKind.STREAM: WaitCap(per_principal=settings.streams_per_principal_max, in_all=settings.streams_max),
    }
    return Waits(caps, settings.connections_max, observer)
