"""The HTTP server of one process: it listens, serves and stops as its role says."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import uvicorn

from lucius.api.app import create_front
from lucius.desk import Desk
from lucius.settings import Settings, SettingsError

STOP_SECONDS = 10
BACKLOG = 2_048


class Server(uvicorn.Server):
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
async def served(desk: Desk, listener: socket.socket) -> AsyncIterator[Server]:
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
    server = Server(config)
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


def listen(settings: Settings) -> socket.socket:
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


def reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)  # noqa: S104
