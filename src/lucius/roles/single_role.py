"""Roles that scale separately, each in its own process on a shared ledger."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lucius.api.management import listen_for_management, managed
from lucius.api.serving import listen, served
from lucius.app_context import AppContext
from lucius.bootstrap import open_app, open_bus, open_bus_worker, open_runbooks_alone
from lucius.console import console_routes
from lucius.domain.errors import InfrastructureError
from lucius.domain.job import TEMPORAL
from lucius.kit.bus import KitBus
from lucius.roles.running import first_of, needs_shared_ledger, run, say_stopped, signalled, until_signal
from lucius.settings import Settings, SettingsError

if TYPE_CHECKING:
    from lucius.functions import FunctionWorker, WorkerSettings
    from lucius.platform import PlatformService, PlatformSettings

HEALTH_SECONDS = 5.0
UNHEALTHY_SECONDS_MAX = 60.0
"""How long a worker may be without ledger or Temporal before it exits, so that its supervisor restarts it."""


def say(line: str, management: str) -> None:
    """Announce that a role has started, and its management address."""
    print(f"{line}\n  management  {management}", file=sys.stderr, flush=True)


def run_api(settings: Settings) -> None:
    """The API alone: runs turns for its own callers, or starts workflows; reconciler and workers do the rest."""
    run(_api(settings), settings)


def run_worker(settings: Settings) -> None:
    """Polls Temporal's task queue: runs the workflows of jobs and writes what they decide to the ledger."""
    run(_work(settings), settings)


def run_reconciler(settings: Settings) -> None:
    """The sweeper, the dispatcher's retries, drift repair and webhooks."""
    run(_reconcile(settings), settings)


def run_scheduler(settings: Settings) -> None:
    """Reads data sources and clocks, and notifies the orchestrators of runbooks; one of several leads."""
    run(_run_runbooks(settings, "scheduler"), settings)


def run_runbooks(settings: Settings) -> None:
    """An orchestrator of runbooks; any number of them may run."""
    run(_run_runbooks(settings, "runbooks"), settings)


def run_bus_worker(settings: Settings, worker: FunctionWorker, worker_settings: WorkerSettings | None = None) -> None:
    """A function worker that takes its jobs directly from the bus."""
    run(_work_on_bus(settings, worker, worker_settings), settings)


def run_bus_service(
    settings: Settings, service: PlatformService, platform_settings: PlatformSettings | None = None
) -> None:
    """A platform service on the server's own bus, which may be in its database."""
    run(_serve_on_bus(settings, service, platform_settings), settings)


async def _api(settings: Settings) -> None:
    needs_shared_ledger(settings, "api", "on one machine use 'lucius up'")
    listener, port = listen(settings), listen_for_management(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    app = open_app(settings, reconciles=False, works=False, orchestrates=False, schedules=False)
    async with (
        app as context,
        managed(context.management, port) as address,
        served(context, listener, console_routes(context)) as server,
    ):
        say(f"LUCIUS API at {context.settings.public_url}", address)
        await server.until_stopped()
        context.stopping.set()
        await server.drain()
    say_stopped("LUCIUS API has stopped.")


async def _work(settings: Settings) -> None:
    if settings.engine != TEMPORAL:
        raise SettingsError(
            f"'lucius worker' polls Temporal, but LUCIUS_ENGINE is {settings.engine}: set it to temporal, or run no"
            " workers"
        )
    needs_shared_ledger(settings, "worker", "'lucius up' has its own")
    port = listen_for_management(settings)
    app = open_app(settings, reconciles=False, orchestrates=False, schedules=False, takes_replies=False)
    async with app as context, managed(context.management, port) as address:
        queue, url = settings.temporal_task_queue, context.settings.public_url
        say(f"LUCIUS worker is running: task queue {queue}, callbacks to {url}", address)
        health = asyncio.create_task(_until_unhealthy(context))
        await first_of(until_signal(), health)
        if not health.cancel():
            await health  # It ended first: raise the failure that stopped the worker.
    say_stopped("LUCIUS worker has stopped.")


async def _until_unhealthy(context: AppContext) -> None:
    """Raises the failure of a worker that has been unhealthy for too long, which nothing else would report."""
    loop = asyncio.get_running_loop()
    healthy_at = loop.time()
    while True:
        await asyncio.sleep(HEALTH_SECONDS)
        report = await context.management.readiness.look()
        if report.is_ready:
            healthy_at = loop.time()
            continue
        failed = {name: finding.detail for name, finding in report.checks.items() if finding.vital and not finding.ok}
        error = InfrastructureError.unavailable("; ".join(f"{name}: {detail}" for name, detail in failed.items()))
        context.observer.failed("the worker's health", error)
        if loop.time() - healthy_at > UNHEALTHY_SECONDS_MAX:
            raise error


async def _reconcile(settings: Settings) -> None:
    needs_shared_ledger(settings, "reconciler", "'lucius up' has its own")
    port = listen_for_management(settings)
    app = open_app(settings, works=False, orchestrates=False, schedules=False, takes_replies=False)
    async with app as context, managed(context.management, port) as address:
        say("LUCIUS reconciler is running", address)
        await until_signal()
    say_stopped("LUCIUS reconciler has stopped.")


async def _work_on_bus(settings: Settings, worker: FunctionWorker, worker_settings: WorkerSettings | None) -> None:
    version = "" if worker_settings is None else worker_settings.version
    async with open_bus_worker(settings, worker.worker_id, version) as source:
        print(f"LUCIUS function worker {worker.worker_id} is running", file=sys.stderr, flush=True)
        await worker.serve(signalled(), worker_settings, source=source)


async def _serve_on_bus(
    settings: Settings, service: PlatformService, platform_settings: PlatformSettings | None
) -> None:
    async with open_bus(settings) as bus:
        await service.serve(signalled(), platform_settings, bus=KitBus(bus, await bus.health()))


async def _run_runbooks(settings: Settings, role: str) -> None:
    needs_shared_ledger(settings, role, "'lucius up' has its own")
    schedules = role == "scheduler"
    port = listen_for_management(settings)
    app = open_runbooks_alone(settings, orchestrates=not schedules, schedules=schedules)
    async with app as management, managed(management, port) as address:
        say(f"LUCIUS {role} is running", address)
        await until_signal()
    say_stopped(f"LUCIUS {role} has stopped.")
