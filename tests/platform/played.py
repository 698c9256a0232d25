"""An orchestrator that plays what a test tells it to, over real HTTP, and a service that is run against it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lucius.platform import PlatformService, PlatformSettings

SECONDS_MAX = 45.0
"""For what must happen, on a machine that is busy with other things."""
PULL_HOLD_SECONDS = 0.3
API_KEY = "a-key-that-nobody-may-find"

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]
APPLIED: Answer = (200, {"outcome": "APPLIED"})
DUPLICATE: Answer = (200, {"outcome": "DUPLICATE"})
CANCEL: Answer = (200, {"outcome": "APPLIED", "cancel_requested": True})
STALE: Answer = (409, {"code": "STALE_ATTEMPT", "detail": "another attempt is current"})
TERMINAL: Answer = (409, {"code": "JOB_TERMINAL"})
AWAY: Answer = (503, {"code": "UNAVAILABLE"})
HANG_UP: Answer = (0, None)
"""The connection is closed without an answer."""


class Call:
    """One callback as it arrived, alone or in a batch."""

    def __init__(self, kind: str, body: dict[str, Any], token: str, headers: Any, batch: int | None) -> None:
        self.kind, self.body, self.token, self.headers, self.batch = kind, body, token, headers, batch
        self.at = time.monotonic()

    @property
    def job(self) -> str:
        return str(self.body["jobId"])


class PlayedOrchestrator:
    """Hands out `directives`. `faults` are the answers given first, in order, to a kind of call: `PULL`, `ACK`,
    `HEARTBEAT`, `RESULT`, `BATCH`; a kind with an entry in `always` is answered with it every time."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.files = folder / "files" / "acme"
        """Where the tenant's refs lead: the folder is the service's data folder too."""
        self.directives: list[Any] = []
        self.faults: dict[str, list[Answer]] = {}
        self.always: dict[str, Answer] = {}
        self.delays: dict[str, float] = {}
        self.calls: list[Call] = []
        """Those that were answered by the rules, faults included."""
        self.pulls: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.outstanding_max = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> PlayedOrchestrator:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # --- What a test says --------------------------------------------------------------------------------------------

    def directive(self, number: int = 1, **fields: Any) -> dict[str, Any]:
        job = f"job-{number}"
        return {
            "type": "DIRECTIVE",
            "jobId": job,
            "tenant_id": "acme",
            "stepId": "work",
            "step_type": "WORK",
            "service": "played",
            "attempt_no": 1,
            "lease_id": f"lease-{number}",
            "lease_seconds": 900,
            "last_step": True,
            "callback_token": f"secret-token-{number}",
            "payload": {},
            "previous": {},
            "input_ref": (self.files / "input.txt").as_uri(),
            "output_ref": (self.files / f"output-{number}.txt").as_uri(),
            "workspace_ref": (self.folder / "workspace" / "acme" / job / "WORK" / "1").as_uri() + "/",
            **fields,
        }

    def send(self, *directives: Any) -> None:
        with self._lock:
            self.directives.extend(directives)

    # --- What a test asks --------------------------------------------------------------------------------------------

    def of_kind(self, kind: str, job: str | None = None) -> list[Call]:
        with self._lock:
            return [one for one in self.calls if one.kind == kind and job in (None, one.job)]

    def results(self, job: str | None = None) -> list[dict[str, Any]]:
        return [one.body for one in self.of_kind("RESULT", job)]

    def kinds(self, job: str) -> list[str]:
        with self._lock:
            return [one.kind for one in self.calls if one.job == job]

    # --- The server --------------------------------------------------------------------------------------------------

    def answer(self, path: str, body: dict[str, Any], headers: Any) -> Answer:
        self.paths.append(path)
        if path == "/v1/directives:pull":
            self.pulls.append({**body, "authorization": headers["Authorization"]})
            if fault := self._fault("PULL"):
                return fault
            taken, self.directives = self.directives[: body["max"]], self.directives[body["max"] :]
            return 200, {"directives": taken}
        assert headers["Authorization"] is None, "a callback's token is its only credential"
        if path == "/v1/callbacks:batch":
            if fault := self._fault("BATCH"):
                return fault
            items, outcomes = body["callbacks"], []
            for item in items:
                kind, token = item.pop("type"), item.pop("callback_token")
                outcomes.append(self._call_back(Call(kind, item, token, headers, len(items)))[1])
            return 200, {"outcomes": outcomes}
        kind = path.rpartition("/")[2].upper()
        return self._call_back(Call(kind, body, headers["Lucius-Callback-Token"], headers, None))

    def _call_back(self, call: Call) -> Answer:
        assert call.token == call.job.replace("job", "secret-token")
        self.calls.append(call)
        return self._fault(call.kind) or APPLIED

    def _fault(self, kind: str) -> Answer | None:
        if self.faults.get(kind):
            return self.faults[kind].pop(0)
        return self.always.get(kind)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        played = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                kind = "PULL" if self.path.endswith(":pull") else self.path.rpartition("/")[2].upper()
                time.sleep(played.delays.get(kind, 0.0))
                with played._lock:
                    status, content, *more = played.answer(self.path, body, self.headers)
                if content == {"directives": []} and body["wait_seconds"]:
                    time.sleep(PULL_HOLD_SECONDS)
                with contextlib.suppress(ConnectionError):  # A service that stops hangs up in the middle of a pull.
                    self._send(status, content, more[0] if more else {})

            def _send(self, status: int, content: Any, headers: dict[str, str]) -> None:
                if not status:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                text = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def settings_for(played: PlayedOrchestrator, **changes: Any) -> PlatformSettings:
    folders = {"state": str(played.folder / "state"), "data": str(played.folder)}
    values = {"orchestrator_url": played.url, "api_key": API_KEY, **folders}
    return PlatformSettings(**{**values, "store": "memory", "drain_seconds": 10.0, **changes})


async def serve_until(
    service: PlatformService, settings: PlatformSettings, until: Callable[[], Any], seconds_max: float = SECONDS_MAX
) -> None:
    """Serve until the condition holds, then stop in order; fails if it does not hold in time."""
    stop = asyncio.Event()
    serving = asyncio.create_task(service.serve(stop, settings))
    deadline = time.monotonic() + seconds_max
    try:
        while not until():
            assert time.monotonic() < deadline, "what the test waits for did not happen"
            if serving.done():
                await serving
                raise AssertionError("the service ended before the condition held")
            await asyncio.sleep(0.01)
    finally:
        stop.set()
        async with asyncio.timeout(SECONDS_MAX):
            await serving


def service_of(function: Callable[..., Any], *, eager: bool = False, step_type: str = "WORK") -> PlatformService:
    service = PlatformService("played")
    service.step(step_type, eager=eager)(function)
    return service
