"""Roles: what one process does, from start to a graceful stop. `lucius up`, `api`, `reconciler`, `db`, `prune`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
import uvloop
from msgspec.structs import replace

from lucius.api.app import create_front
from lucius.bootstrap import is_embedded, open_app, open_database, with_secrets
from lucius.clocks import SystemClock
from lucius.desk import Desk
from lucius.domain.errors import InfrastructureError
from lucius.domain.time import after
from lucius.ledgers.sql import SqlLedger
from lucius.registries.files import RegistryError
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database, DatabaseUnavailable
from lucius.telemetry.logs import configure_logs

T = TypeVar("T")

PRUNE_BATCH = 500
STOP_SECONDS = 10
BACKLOG = 2_048


Sample = Callable[[str, str, Path], Awaitable[object]]
"""Something to run once the server is up: its address, an API key, and a folder to work in."""


def run_up(settings: Settings, services: bool = True, sample: Sample | None = None) -> None:
    """Every role in one process."""
    _run(_up(settings, services, sample), settings)


def run_api(settings: Settings) -> None:
    """The API alone: takes turns for its own callers, and leaves sweeping and repair to a reconciler."""
    _run(_api(settings), settings)


def run_reconciler(settings: Settings) -> None:
    """The sweeper, the dispatcher's second look, drift repair and webhooks."""
    _run(_reconcile(settings), settings)


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
    listener = _listen(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    folder = Path(settings.data).resolve() / "sample"  # noqa: ASYNC240 - before anything is served
    async with open_app(settings) as desk, _served(desk, listener) as server:
        print(_greeting(desk.settings, services), file=sys.stderr, flush=True)
        stop = asyncio.Event()
        helpers: list[asyncio.Task[object]] = []
        if services:
            from lucius.reference.serving import run_services

            url = f"http://{_reachable(settings.host)}:{settings.port}"
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
    if is_embedded(settings):
        raise SettingsError(
            "'lucius api' needs a shared ledger (LUCIUS_LEDGER=postgresql://…); on one machine use 'lucius up'"
        )
    listener = _listen(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    async with open_app(settings, reconciles=False) as desk, _served(desk, listener) as server:
        print(f"LUCIUS API at {desk.settings.public_url}", file=sys.stderr, flush=True)
        await server.until_stopped()
        desk.stopping.set()


async def _reconcile(settings: Settings) -> None:
    if is_embedded(settings):
        raise SettingsError(
            "'lucius reconciler' needs a shared ledger (LUCIUS_LEDGER=postgresql://…); 'lucius up' has its own"
        )
    async with open_app(settings):
        print("LUCIUS reconciler is running", file=sys.stderr, flush=True)
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        await stopped.wait()


class _Server(uvicorn.Server):
    """uvicorn, started and stopped by us: signals only say that it is time."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopped.set)
        yield

    async def until_stopped(self) -> None:
        await self._stopped.wait()


@asynccontextmanager
async def _served(desk: Desk, listener: socket.socket) -> AsyncIterator[_Server]:
    config = uvicorn.Config(
        create_front(desk),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        limit_concurrency=desk.settings.connections_max,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=65_536,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started:
            if serving.done():
                await serving
            await asyncio.sleep(0.005)
        yield server
    finally:
        server.should_exit = True
        await serving


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another --port"
        ) from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)  # noqa: S104


def _greeting(settings: Settings, services: bool) -> str:
    lines = [
        f"LUCIUS is up at {settings.public_url}",
        f"  API key   {settings.api_key or 'as configured'}",
        f"  ledger    {settings.ledger} in {Path(settings.data).resolve()}",
        f"  services  {'ocr, embedding, sis' if services else 'none here: bring your own'}",
    ]
    return "\n".join(lines)
