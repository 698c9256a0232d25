"""LUCIUS as a function worker sees it, over real HTTP: hands out jobs under locks, takes results, and has the faults
that a test gives it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lucius.functions import FunctionWorker, WorkerSettings

SECONDS_MAX = 40.0
"""For what must happen, on a machine that is busy with other things."""
API_KEY = "a-key-that-nobody-may-find"
KINDS = {"/v1/worker-jobs:pull": "PULL", "/v1/worker-jobs:renew": "RENEW", "/v1/worker-results": "RESULTS"}


@dataclass(frozen=True)
class Fault:
    """`status` 0 hangs up. `applied`: the call has its effect, and only the answer is lost."""

    status: int = 0
    applied: bool = False
    delay_seconds: float = 0.0
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class PlayedServer:
    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.faults: dict[str, list[Fault]] = {"PULL": [], "RENEW": [], "RESULTS": []}
        self.always: dict[str, Fault] = {}
        self.verdict: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        """How one result is answered, if not by the rules."""
        self.pulls: list[dict[str, Any]] = []
        self.renewals: list[list[str]] = []
        self.renewal_tokens: list[list[str | None]] = []
        self.batches: list[list[dict[str, Any]]] = []
        """Results as they arrived, whatever became of them."""
        self.applied: dict[str, dict[str, Any]] = {}
        self.keys: set[str] = set()
        self.is_renewed = True
        self.handed_out = 0
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> PlayedServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def send(self, *jobs: Any) -> None:
        with self._lock:
            self.waiting.extend(jobs)

    @property
    def results(self) -> list[dict[str, Any]]:
        return [result for batch in list(self.batches) for result in batch]

    def settings(self, **fields: Any) -> WorkerSettings:
        given = {"url": self.url, "api_key": API_KEY, "wait_seconds": 0.3, "throttle_base_seconds": 0.02} | fields
        return WorkerSettings(**given)

    def answer(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if kind == "RENEW":
                self.renewals.append(body["jobIds"])
                self.renewal_tokens.append(body["tokens"])
                return {"renewed": [self.is_renewed] * len(body["jobIds"])}
            return {"outcomes": [self._outcome(result) for result in body["results"]]}

    def fault(self, kind: str) -> Fault | None:
        with self._lock:
            return self.faults[kind].pop(0) if self.faults[kind] else self.always.get(kind)

    def pull(self, body: dict[str, Any]) -> dict[str, Any]:
        until = time.monotonic() + body["wait_seconds"]
        while not self.waiting and time.monotonic() < until:
            time.sleep(0.01)
        with self._lock:
            given, self.waiting = self.waiting[: body["max"]], self.waiting[body["max"] :]
            self.handed_out += len(given)
            return {"jobs": given}

    def _outcome(self, result: dict[str, Any]) -> dict[str, Any]:
        if self.verdict is not None and (said := self.verdict(result)):
            return said
        is_first = self.applied.setdefault(result["jobId"], result) is result
        return {"jobId": result["jobId"], "outcome": "APPLIED" if is_first else "DUPLICATE"}


def job(number: int = 1, function: str = "Work", **parameters: Any) -> dict[str, Any]:
    correlation = {"kind": "step", "stepExecutionId": number, "isInitStep": False, "runbookName": "r"}
    return {
        "jobId": f"step-{number}-a1",
        "batchId": 7,
        "workerId": "played",
        "functionName": function,
        "parameters": parameters,
        "correlationData": correlation | {"runbookVersion": 3, "token": f"j1.k1.token-of-{number}"},
    }


async def until(condition: Callable[[], Any], seconds_max: float = SECONDS_MAX) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def served(
    worker: FunctionWorker, settings: WorkerSettings, **more: Any
) -> AsyncIterator[asyncio.Task[list[str]]]:
    """The worker at work; it is stopped, and has to end, when the block does."""
    stop = asyncio.Event()
    task = asyncio.create_task(worker.serve(stop, settings, **more))
    try:
        yield task
        stop.set()
        await asyncio.wait_for(asyncio.shield(task), SECONDS_MAX)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _handler(played: PlayedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = SECONDS_MAX

        def do_POST(self) -> None:
            played.keys.add(self.headers.get("Authorization", ""))
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            kind = KINDS[self.path]
            if kind == "PULL":
                played.pulls.append(body)
            elif kind == "RESULTS":
                played.batches.append(body["results"])
            fault = played.fault(kind)
            if fault is not None:
                time.sleep(fault.delay_seconds)
            is_plain = fault is None or (fault.status == 200 and fault.body is None)
            if is_plain or (fault and fault.applied):
                content = played.pull(body) if kind == "PULL" else played.answer(kind, body)
            if fault is None or is_plain:
                self._answer(200, content)
            elif fault.status == 0:
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            else:
                self._answer(fault.status, fault.body or {"code": "PLAYED", "detail": "a fault"}, fault.headers)

        def _answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
            encoded = json.dumps(content).encode()
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    return Handler
