"""Health: is the process alive, is it ready, and its metrics. Served by a thread, so that it responds even when the
event loop is blocked, and reports that."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lucius.kit.errors import ServiceUnusable

BEAT_SECONDS = 1.0
BEAT_SECONDS_MAX = 15.0
REQUEST_SECONDS_MAX = 5.0
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Health:
    """Written by the event loop, read by the health server's threads; each field is one assignment."""

    def __init__(self, has_store: bool = False) -> None:
        self._beat_at = time.monotonic()
        self._orchestrator: str | None = "no answer yet"
        self._draining = False
        self._has_store = has_store
        self._store: str | None = None

    async def beat_forever(self) -> None:
        """A task of the event loop that shows that the loop is running."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT_SECONDS)

    def beat(self) -> None:
        self._beat_at = time.monotonic()

    def pulled(self) -> None:
        self._orchestrator = None

    def pull_failed(self, reason: str) -> None:
        self._orchestrator = reason

    def store_failed(self, reason: str) -> None:
        self._store = reason

    def store_works(self) -> None:
        self._store = None

    def drains(self) -> None:
        self._draining = True

    def alive(self) -> tuple[bool, dict[str, str]]:
        silent = time.monotonic() - self._beat_at
        is_alive = silent < BEAT_SECONDS_MAX
        return is_alive, {"event_loop": "ok" if is_alive else f"blocked for {silent:.0f} s"}

    def ready(self) -> tuple[bool, dict[str, str]]:
        is_alive, checks = self.alive()
        checks["orchestrator"] = self._orchestrator or "ok"
        if self._has_store:
            checks["store"] = self._store or "ok"
        checks["draining"] = "yes" if self._draining else "no"
        return is_alive and not (self._orchestrator or self._store or self._draining), checks


class HealthServer:
    """`/healthz`, `/readyz` and `/metrics`, for the duration of a `with`."""

    def __init__(
        self, host: str, port: int, health: Health, metrics: Callable[[], bytes], variable: str = "the health port"
    ) -> None:
        """`variable` is the setting to change if the port is not available."""
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(health, metrics))
        except OSError as error:
            raise ServiceUnusable(
                f"cannot listen on {host}:{port} for health: {error.strerror}; set {variable}"
            ) from error
        self._server.daemon_threads = True
        self.port = self._server.server_port

    def __enter__(self) -> HealthServer:
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="lucius-health", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(health: Health, metrics: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS_MAX

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, METRICS_CONTENT_TYPE, metrics())
            elif path in ("/healthz", "/readyz"):
                good, checks = health.alive() if path == "/healthz" else health.ready()
                body = {"status": "ok" if good else "unavailable", "checks": checks}
                self._answer(200 if good else 503, "application/json", json.dumps(body).encode())
            else:
                self._answer(404, "application/json", b'{"status": "available: /healthz, /readyz and /metrics"}')

        def _answer(self, status: int, content_type: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Probes come every few seconds and would fill the log."""

    return Handler
