"""Roles: what one process does, from start to a graceful stop.

`lucius up`, `api`, `worker`, `reconciler`, and what looks after the data: `db`, `prune`, `temporal`.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import uvloop
from msgspec.structs import replace

from lucius.api.serving import STOP_SECONDS, listen, reachable, served
from lucius.bootstrap import is_embedded, open_app, open_database, temporal_settings, with_secrets
from lucius.clocks import SystemClock
from lucius.desk import Desk
from lucius.domain.errors import InfrastructureError, LuciusError
from lucius.domain.job import TEMPORAL
from lucius.domain.time import after
from lucius.ledgers.sql import SqlLedger
from lucius.registries.files import RegistryError
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database, DatabaseUnavailable
from lucius.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from lucius.engines.temporal.reconciler import Drift, Reconciler

T = TypeVar("T")

PRUNE_BATCH = 500
HEALTH_SECONDS = 5.0
SICK_SECONDS_MAX = 60.0
"""How long a worker may do without ledger or Temporal before it ends, for whoever runs it to start it anew."""


Sample = Callable[[str, str, Path], Awaitable[object]]
"""Something to run once the server is up: its address, an API key, and a folder to work in."""


def run_up(settings: Settings, services: bool = True, sample: Sample | None = None) -> None:
    """Every role in one process."""
    _run(_up(settings, services, sample), settings)


def run_profile(settings: Settings, **options: Any) -> None:
    """Every role as a process of its own, with the servers that they need."""
    from lucius.profiles.temporal import run_profile

    run_profile(settings, **options)


def run_api(settings: Settings) -> None:
    """The API alone: takes turns for its own callers, or starts workflows; the rest is a reconciler's and workers'."""
    _run(_api(settings), settings)


def run_worker(settings: Settings) -> None:
    """Polls Temporal's task queue: runs the workflows of jobs and writes what they decide to the ledger."""
    _run(_work(settings), settings)


def run_reconciler(settings: Settings) -> None:
    """The sweeper, the dispatcher's second look, drift repair and webhooks."""
    _run(_reconcile(settings), settings)


def run_scheduler(settings: Settings) -> None:
    """Reads data sources and clocks, and tells the orchestrators of runbooks; one of several leads."""
    _run(_keep(settings, "scheduler"), settings)


def run_runbooks(settings: Settings) -> None:
    """An orchestrator of runbooks; any number of them may run."""
    _run(_keep(settings, "runbooks"), settings)


def db_upgrade(settings: Settings) -> str:
    async def work() -> str:
        async with _database(settings) as database:
            count = await schema.upgrade(database)
            return f"{database.name}: {count} migrations made; at version {schema.VERSION}."

    return _run(work(), settings)


def db_verify(settings: Settings) -> str:
    async def work() -> str:
        async with _database(settings) as database:
            await schema.verify(database)
            return f"{database.name} is at version {schema.VERSION}."

    return _run(work(), settings)


def prune(settings: Settings, older_than_seconds: float) -> int:
    """Remove jobs that ended so long ago, a batch at a time, and say how many went."""

    async def work() -> int:
        async with _database(settings) as database:
            await schema.verify(database)
            ledger, removed = SqlLedger(database), 0
            cutoff = after(SystemClock().now(), -older_than_seconds)
            while count := await ledger.prune(cutoff, PRUNE_BATCH):
                removed += count
            return removed

    return _run(work(), settings)


class Compared(NamedTuple):
    drifts: list[Drift]
    has_looked_inside: bool
    """Whether the workflows were asked for their revision, which takes a worker that answers."""


def temporal_drift(settings: Settings, every_job: bool = False) -> Compared:
    """What differs between ledger and Temporal. Without `every_job`, jobs written to just now are taken for alive."""

    async def work() -> Compared:
        async with _open_reconciler(settings, every_job) as reconciler:
            from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
            from temporalio.service import RPCError

            try:
                return Compared([drift async for drift in reconciler.drifts(looks_inside=True)], True)
            except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
                # Nobody answers for the workflows. What Temporal itself knows can be compared all the same.
                return Compared([drift async for drift in reconciler.drifts()], False)

    return _run(work(), settings)


def temporal_heal(settings: Settings, every_job: bool = False) -> int:
    """Mend what differs between ledger and Temporal, and say how much there was."""

    async def work() -> int:
        async with _open_reconciler(settings, every_job) as reconciler:
            return await reconciler.heal()

    return _run(work(), settings)


@asynccontextmanager
async def _open_reconciler(settings: Settings, every_job: bool) -> AsyncIterator[Reconciler]:
    """With the ledger and Temporal as these settings name them, whatever engine new jobs go to."""
    settings = replace(settings, engine=TEMPORAL)
    async with open_app(settings, works=False, reconciles=False) as desk:
        from temporalio.service import RPCError

        from lucius.engines.temporal.client import connect
        from lucius.engines.temporal.engine import TemporalEngine
        from lucius.engines.temporal.reconciler import Reconciler

        assert isinstance(desk.engine, TemporalEngine)
        wanted = temporal_settings(settings)
        if every_job:
            wanted = replace(wanted, overdue_seconds=0.0)
        client = await connect(replace(wanted, metrics_address=""))
        try:
            yield Reconciler(client, desk.ledger, desk.clock, desk.observer, wanted, desk.engine.start)
        except RPCError as error:
            raise InfrastructureError.unavailable(f"Temporal does not answer: {error.message}") from error


def _run(work: Coroutine[Any, Any, T], settings: Settings) -> T:
    configure_logs(settings)
    _spare_the_collector()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except (DatabaseUnavailable, schema.SchemaMismatch) as error:
        raise InfrastructureError.unavailable(str(error)) from error
    except RegistryError as error:
        raise SettingsError(f"the registry cannot be used:\n{error}") from error


def _spare_the_collector() -> None:
    """What is loaded now stays: the cyclic collector need not look through it again and again.

    Jobs, events and messages hold no cycles, so collecting seldom costs little memory; at the default thresholds it
    took a tenth of the server's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[Database]:
    database = open_database(settings)
    if database is None:
        raise SettingsError("LUCIUS_LEDGER=memory has no tables")
    async with database:
        yield database


async def _up(settings: Settings, services: bool, sample: Sample | None) -> None:
    settings = with_secrets(settings)
    configure_logs(settings)  # Again: what was made up just now must not be logged either.
    if services and not settings.api_key:
        raise SettingsError(
            "the reference services log in with LUCIUS_API_KEY: set it, or leave them out (--no-services)"
        )
    listener = listen(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    folder = Path(settings.data).resolve() / "sample"  # noqa: ASYNC240 - before anything is served
    async with open_app(settings) as desk, served(desk, listener) as server:
        print(_greeting(desk.settings, services), file=sys.stderr, flush=True)
        stop = asyncio.Event()
        helpers: list[asyncio.Task[object]] = []
        if services:
            from lucius.reference.serving import run_services

            url = f"http://{reachable(settings.host)}:{settings.port}"
            state = folder.parent / "services"
            store = "memory" if settings.ledger == "memory" else "sqlite"
            helpers.append(asyncio.create_task(run_services(url, desk.settings.api_key, state, stop, store=store)))
            if sample is not None:
                helpers.append(asyncio.create_task(_sample(sample, desk.settings, url, folder)))
        # Services end before they are asked to only if they cannot start, and that must not go unseen.
        await _first_of(server.until_stopped(), *helpers[:1])
        stop.set()
        desk.stopping.set()
        for helper in helpers[1:]:
            helper.cancel()  # Without the services the sample would never end.
        if helpers:
            await asyncio.wait(helpers, timeout=STOP_SECONDS)
        for helper in helpers:
            helper.cancel()
        for task in helpers[:1]:
            _raise_failure(task, settings)


async def _first_of(*waited: Awaitable[object]) -> None:
    futures = [asyncio.ensure_future(one) for one in waited]
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def _raise_failure(services: asyncio.Task[object], settings: Settings) -> None:
    from lucius.platform import ServiceUnusable

    error = services.exception() if services.done() and not services.cancelled() else None
    if isinstance(error, ServiceUnusable):
        advice = f"their state is in {settings.data}/services; --data chooses another folder, --no-services none"
        raise SettingsError(f"the reference services cannot start: {error} ({advice})") from error
    if error is not None:
        raise error


async def _sample(sample: Sample, settings: Settings, url: str, folder: Path) -> None:
    await sample(url, settings.api_key, folder)
    print(f"\nLUCIUS stays up at {url}. Press Ctrl-C to stop it.", file=sys.stderr, flush=True)


async def _api(settings: Settings) -> None:
    _needs_shared_ledger(settings, "api", "on one machine use 'lucius up'")
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
    _needs_shared_ledger(settings, "worker", "'lucius up' has its own")
    async with open_app(settings, reconciles=False, orchestrates=False, schedules=False) as desk:
        queue, url = settings.temporal_task_queue, desk.settings.public_url
        print(f"LUCIUS worker is running: task queue {queue}, callbacks to {url}", file=sys.stderr, flush=True)
        health = asyncio.create_task(_until_sick(desk))
        await _first_of(_until_signal(), health)
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
    _needs_shared_ledger(settings, "reconciler", "'lucius up' has its own")
    async with open_app(settings, works=False, orchestrates=False, schedules=False):
        print("LUCIUS reconciler is running", file=sys.stderr, flush=True)
        await _until_signal()


async def _keep(settings: Settings, role: str) -> None:
    _needs_shared_ledger(settings, role, "'lucius up' has its own")
    schedules = role == "scheduler"
    async with open_app(settings, reconciles=False, works=False, orchestrates=not schedules, schedules=schedules):
        print(f"LUCIUS {role} is running", file=sys.stderr, flush=True)
        await _until_signal()


def _needs_shared_ledger(settings: Settings, role: str, otherwise: str) -> None:
    if is_embedded(settings):
        raise SettingsError(f"'lucius {role}' needs a shared ledger (LUCIUS_LEDGER=postgresql://…); {otherwise}")


async def _until_signal() -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()


def _greeting(settings: Settings, services: bool) -> str:
    lines = [
        f"LUCIUS is up at {settings.public_url}",
        f"  API key   {settings.api_key or 'as configured'}",
        f"  ledger    {settings.ledger} in {Path(settings.data).resolve()}",
        *([f"  Temporal  {settings.temporal_address}"] if settings.engine == TEMPORAL else []),
        f"  services  {'ocr, embedding, sis' if services else 'none here: bring your own'}",
    ]
    return "\n".join(lines)
