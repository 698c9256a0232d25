"""Roles that scale alone, each a process of its own on a shared ledger."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lucius.api.serving import listen, served
from lucius.bootstrap import open_app, open_bus, open_runbooks_alone
from lucius.desk import Desk
from lucius.domain.errors import LuciusError
from lucius.domain.job import TEMPORAL
from lucius.roles.running import first_of, needs_shared_ledger, run, signalled, until_signal
from lucius.runbooks.bus_source import BusSource
from lucius.settings import Settings, SettingsError

if TYPE_CHECKING:
    from lucius.functions import FunctionWorker, WorkerSettings

HEALTH_SECONDS = 5.0
SICK_SECONDS_MAX = 60.0
"""How long a worker may do without ledger or Temporal before it ends, for whoever runs it to start it anew."""


def run_api(settings: Settings) -> None:
    """The API alone: takes turns for its own callers, or starts workflows; the rest is a reconciler's and workers'."""
    run(_api(settings), settings)


def run_worker(settings: Settings) -> None:
    """Polls Temporal's task queue: runs the workflows of jobs and writes what they decide to the ledger."""
    run(_work(settings), settings)


def run_reconciler(settings: Settings) -> None:
    """The sweeper, the dispatcher's second look, drift repair and webhooks."""
    run(_reconcile(settings), settings)


def run_scheduler(settings: Settings) -> None:
    """Reads data sources and clocks, and tells the orchestrators of runbooks; one of several leads."""
    run(_keep(settings, "scheduler"), settings)


def run_runbooks(settings: Settings) -> None:
    """An orchestrator of runbooks; any number of them may run."""
    run(_keep(settings, "runbooks"), settings)


def run_bus_worker(settings: Settings, worker: FunctionWorker, own: WorkerSettings | None = None) -> None:
    """A function worker that takes its jobs from the bus itself."""
    run(_work_on_bus(settings, worker, own), settings)


async def _api(settings: Settings) -> None:
    needs_shared_ledger(settings, "api", "on one machine use 'lucius up'")
    listener = listen(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    app = open_app(settings, reconciles=False, works=False, orchestrates=False, schedules=False)
    async with app as desk, served(desk, listener) as server:
        print(f"LUCIUS API at {desk.settings.public_url}", file=sys.stderr, flush=True)
        await server.until_stopped()
        desk.stopping.set()


async def _work(settings: Settings) -> None:
    if settings.engine != TEMPORAL:
        raise SettingsError(
            f"'lucius worker' polls Temporal, and LUCIUS_ENGINE is {settings.engine}: set it to temporal, or do without"
            " workers"
        )
    needs_shared_ledger(settings, "worker", "'lucius up' has its own")
    async with open_app(settings, reconciles=False, orchestrates=False, schedules=False) as desk:
        queue, url = settings.temporal_task_queue, desk.settings.public_url
        print(f"LUCIUS worker is running: task queue {queue}, callbacks to {url}", file=sys.stderr, flush=True)
        health = asyncio.create_task(_until_sick(desk))
        await first_of(until_signal(), health)
        if not health.cancel():
            await health  # It has ended first, with what kept the worker from working.


async def _until_sick(desk: Desk) -> None:
    """Ends with the failure of a worker that could not work for long: nobody else would see it."""
    loop = asyncio.get_running_loop()
    well_at = loop.time()
    while True:
        await asyncio.sleep(HEALTH_SECONDS)
        try:
            await desk.engine.health()
            well_at = loop.time()
        except LuciusError as error:
            desk.observer.failed("the worker's health", error)
            if loop.time() - well_at > SICK_SECONDS_MAX:
                raise


async def _reconcile(settings: Settings) -> None:
    needs_shared_ledger(settings, "reconciler", "'lucius up' has its own")
    async with open_app(settings, works=False, orchestrates=False, schedules=False):
        print("LUCIUS reconciler is running", file=sys.stderr, flush=True)
        await until_signal()


async def _work_on_bus(settings: Settings, worker: FunctionWorker, own: WorkerSettings | None) -> None:
    async with open_bus(settings) as bus, BusSource(worker.worker_id, bus, settings.worker_lock_seconds) as source:
        print(f"LUCIUS function worker {worker.worker_id} is running", file=sys.stderr, flush=True)
        await worker.serve(signalled(), own, source=source)


async def _keep(settings: Settings, role: str) -> None:
    needs_shared_ledger(settings, role, "'lucius up' has its own")
    schedules = role == "scheduler"
    async with open_runbooks_alone(settings, orchestrates=not schedules, schedules=schedules):
        print(f"LUCIUS {role} is running", file=sys.stderr, flush=True)
        await until_signal()
