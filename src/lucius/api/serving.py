"""The HTTP server of one process, started and stopped by its role."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import resource
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio.lowlevel
import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from lucius.api.admission import Admission
from lucius.api.app import Front, create_front
from lucius.api.connection import Connection
from lucius.app_context import AppContext
from lucius.settings import Settings, SettingsError

STOP_SECONDS = 10
DRAIN_SECONDS = 2.0
"""How long clients have to send one more request on a connection that they keep open, when the server stops."""
BACKLOG = 2_048
CHECK_TICKS = 5
"""Connections' deadlines are checked twice a second: uvicorn ticks every 0.1 s."""
SEND_BUFFER_BYTES = 131_072
"""Per connection: by default the system would buffer megabytes for a client that does not read."""
OTHER_DESCRIPTORS = 256
"""File descriptors that a process needs besides its connections: files, databases, outgoing calls."""

log = logging.getLogger("lucius.api")

AnyServer = TypeVar("AnyServer", bound=uvicorn.Server)


class Server(uvicorn.Server):
    """uvicorn, started and stopped by the role: a signal only ends `until_stopped`."""

    def __init__(self, config: uvicorn.Config, admission: Admission) -> None:
        super().__init__(config)
        self.server_state = self._admission = admission
        self._stopped = asyncio.Event()

    async def on_tick(self, counter: int) -> bool:
        if counter % CHECK_TICKS == 0:
            self._admission.check(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopped.set)
        yield

    async def until_stopped(self) -> None:
        await self._stopped.wait()

    async def drain(self) -> None:
        """Have clients close their connections, by telling them so in the next answer.

        A client cannot know whether a request was processed if its connection is closed while it sends one. A gateway
        in front of the server would answer it with 502.
        """
        with contextlib.suppress(TimeoutError):  # Those that are still open then are closed.
            await asyncio.wait_for(self._admission.dismiss(), DRAIN_SECONDS)


@asynccontextmanager
async def served(
    context: AppContext, listener: socket.socket, pages: Sequence[BaseRoute] = ()
) -> AsyncIterator[Server]:
    settings = context.settings
    admission = Admission(settings, context.clock.lease_id, context.authenticator.known)
    allowed = _allow_descriptors(settings.connections_max + settings.connections_reserved + OTHER_DESCRIPTORS)
    admission.limit_connections(max(allowed - OTHER_DESCRIPTORS, allowed // 2))
    context.waits.limit_connections(admission.connections_max)
    config = plain_config(
        create_front(context, pages),
        http=Connection,
        timeout_keep_alive=math.ceil(settings.keep_alive_seconds),
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    await anyio.lowlevel.checkpoint()  # Makes anyio import its backend now, not with the first streamed answer.
    async with running(Server(config, admission), listener) as server:
        yield server


def plain_config(app: Front | Starlette, **more: Any) -> uvicorn.Config:
    """HTTP only: no websockets, no lifespan, none of uvicorn's logs and headers."""
    return uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        **more,
    )


@asynccontextmanager
async def running(server: AnyServer, listener: socket.socket) -> AsyncIterator[AnyServer]:
    """Runs a server for the duration of the context."""
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
    try:
        return bind(settings.host, settings.port)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another --port"
        ) from error


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _allow_descriptors(needed: int) -> int:
    """Raise the process's file limit to what its connections need, if the system allows; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < needed:
        log.warning(
            "this process may open %d files but needs %d, so it allows fewer connections than LUCIUS_CONNECTIONS_MAX:"
            " raise its limit (ulimit -n)",
            hard,
            needed,
        )
        return hard
    return needed


def reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)  # noqa: S104
