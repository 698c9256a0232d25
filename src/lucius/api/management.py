"""The management port: health, readiness with every dependency by name, and metrics. Every role serves it.

It is for operators and their monitoring, so it requires no credential; it listens on loopback by default.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lucius.api.endpoint import answer
from lucius.api.serving import bind, plain_config, reachable, running
from lucius.management import Management
from lucius.settings import Settings, SettingsError
from lucius.telemetry import METRICS_CONTENT_TYPE

AUTO, OFF = "auto", "off"
PORT_DEFAULT = 8_001
PORT_MAX = 65_535
CONNECTIONS_MAX = 64
STOP_SECONDS = 1


def create_management(management: Management) -> Starlette:
    async def healthz(request: Request) -> Response:
        return answer({"status": "ok"})

    async def readyz(request: Request) -> Response:
        report = await management.readiness.look()
        return answer({"status": report.status, "checks": report.checks}, 200 if report.is_ready else 503)

    async def metrics(request: Request) -> Response:
        return Response(await management.metrics(), media_type=METRICS_CONTENT_TYPE)

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)])


def listen_for_management(settings: Settings) -> socket.socket | None:
    """None if the port is turned off. Raises `SettingsError` if the port is not available."""
    host, port = settings.management_host, settings.management_port.strip().lower()
    if port == OFF:
        return None
    if port == AUTO:
        try:
            return bind(host, PORT_DEFAULT)
        except OSError:
            port = "0"  # Another role on this machine uses it.
    if not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise SettingsError(
            f"LUCIUS_MANAGEMENT_PORT={settings.management_port!r}: must be {AUTO}, {OFF} or a port from 0 to {PORT_MAX}"
        )
    try:
        return bind(host, int(port))
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host}:{port} for management: {error.strerror}; choose another LUCIUS_MANAGEMENT_PORT,"
            f" {AUTO} for a free one, or {OFF}"
        ) from error


class _Server(uvicorn.Server):
    """The role handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def managed(management: Management, listener: socket.socket | None) -> AsyncIterator[str]:
    """Serves it; yields its address, or `off`."""
    if listener is None:
        yield OFF
        return
    config = plain_config(
        create_management(management),
        http="httptools",
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    host, port = listener.getsockname()[:2]
    async with running(_Server(config), listener):
        yield f"http://{reachable(host)}:{port}"
