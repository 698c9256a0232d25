"""What these tests share: directives, an orchestrator and a model endpoint over real HTTP, both made to misbehave."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lucius.platform import Attempt, Directive
from lucius.platform.file_roots import SAMPLES, FileRoot, FileRoots
from lucius.platform.refs import path_of

Answer = tuple[int, dict[str, Any]]


def begin(directive: Directive) -> Attempt:
    """An attempt whose refs may lie anywhere in the test's own folder, and in the samples."""
    folder = path_of(directive.workspace_ref, "workspace_ref").parents[4]
    return Attempt(directive, FileRoots((FileRoot(folder, shared=True), FileRoot(SAMPLES, shared=True, readonly=True))))


@pytest.fixture(autouse=True)
def _no_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    for service in ("EMBEDDING", "SIS"):
        for name in ("URL", "API_KEY", "MODEL"):
            monkeypatch.delenv(f"LUCIUS_{service}_{name}", raising=False)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Directive]:
    def directive(service: str, input_ref: Any, payload: dict[str, Any] | None = None, **fields: Any) -> Directive:
        message = {
            "type": "DIRECTIVE",
            "jobId": "job-1",
            "tenant_id": "demo",
            "stepId": service,
            "step_type": service.upper(),
            "service": service,
            "attempt_no": 1,
            "lease_id": "lease-1",
            "lease_seconds": 900,
            "callback_token": "token",
            "workspace_ref": f"{(tmp_path / 'workspace').as_uri()}/demo/job-1/{service.upper()}/1/",
            "input_ref": input_ref.as_uri() if isinstance(input_ref, Path) else input_ref,
            "output_ref": (tmp_path / "out" / "result").as_uri(),
            "payload": payload or {},
            "previous": {},
        }
        return Directive.read({**message, **fields})

    return directive


@contextlib.contextmanager
def served(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


class FakeOrchestrator:
    """Hands out `directives`; `faults` are answers given first, in order, for a kind of call."""

    def __init__(self) -> None:
        self.directives: list[dict[str, Any]] = []
        self.faults: dict[str, list[Answer]] = {}
        self.callbacks: list[tuple[str, dict[str, Any]]] = []
        self.paths: list[str] = []
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def directive(self, number: int, service: str = "ocr", **fields: Any) -> dict[str, Any]:
        return {
            "type": "DIRECTIVE",
            "jobId": f"job-{number}",
            "tenant_id": "demo",
            "stepId": service,
            "step_type": service.upper(),
            "service": service,
            "attempt_no": 1,
            "lease_id": f"lease-{number}",
            "lease_seconds": 900,
            "callback_token": f"token-{number}",
            "payload": {},
            "previous": {},
            "output_ref": "https://example.com/unwritten",
            "last_step": False,
            **fields,
        }

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        with self.lock:
            return [body for seen, body in self.callbacks if seen == kind]

    def answer(self, path: str, body: dict[str, Any], headers: Any) -> Answer:
        self.paths.append(path)
        if path == "/v1/directives:pull":
            assert headers["Authorization"] == "Bearer key"
            if self.faults.get("PULL"):
                return self.faults["PULL"].pop(0)
            taken = [one for one in self.directives if one["service"] == body["service"]][: body["max"]]
            self.directives = [one for one in self.directives if one not in taken]
            return 200, {"directives": taken}
        if path == "/v1/callbacks:batch":
            outcomes = [self.call_back(one.pop("type"), one, one.pop("callback_token")) for one in body["callbacks"]]
            return 200, {"outcomes": [outcome for _, outcome in outcomes]}
        return self.call_back(path.rpartition("/")[2].upper(), body, headers["Lucius-Callback-Token"])

    def call_back(self, kind: str, body: dict[str, Any], token: str) -> Answer:
        assert token == body["jobId"].replace("job", "token")
        if self.faults.get(kind):
            return self.faults[kind].pop(0)
        self.callbacks.append((kind, body))
        return 200, {"outcome": "APPLIED"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with fake.lock:
                    status, answer = fake.answer(self.path, body, self.headers)
                if answer == {"directives": []}:
                    time.sleep(0.05)
                content = json.dumps(answer).encode()
                with contextlib.suppress(ConnectionError):  # A worker that stops hangs up in the middle of a pull.
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


@pytest.fixture
def fake() -> Iterator[FakeOrchestrator]:
    fake = FakeOrchestrator()
    with served(fake.server):
        yield fake


class FakeEndpoint:
    """Speaks OpenAI's protocol. Its embeddings count letters, so that texts alike lie close.

    `script` holds what is done first, in order: `(status, headers, body)`, seconds of silence, or `"drip"`. After that
    it answers as it should.
    """

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, str], bytes] | float | str] = []
        self.drip_seconds = 20.0
        self.replies: list[str] = []
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/v1/embeddings":
            vectors = [[float(text.lower().count(letter)) for letter in "aehilnrst"] for text in body["input"]]
            data = [{"index": index, "embedding": one} for index, one in enumerate(vectors)]
            return {"data": data[::-1], "model": body["model"]}
        reply = self.replies.pop(0) if self.replies else '{"answer": "At dusk.", "pages": [1]}'
        return {"choices": [{"message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.requests.append((self.path, dict(self.headers), body))
                status, headers, content = 200, {}, b""
                scripted = fake.script.pop(0) if fake.script else None
                if scripted == "drip":
                    self.drip()
                    return
                if isinstance(scripted, tuple):
                    status, headers, content = scripted
                else:
                    time.sleep(scripted or 0.0)
                    content = json.dumps(fake.answer(self.path, body)).encode()
                with contextlib.suppress(ConnectionError):  # Whoever asked may have given up.
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def drip(self) -> None:
                """A byte now and then, so that no single read is late."""
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                self.close_connection = True
                until = time.monotonic() + fake.drip_seconds
                with contextlib.suppress(ConnectionError):
                    while time.monotonic() < until:
                        self.wfile.write(b" ")
                        time.sleep(0.05)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    fake = FakeEndpoint()
    with served(fake.server):
        yield fake
