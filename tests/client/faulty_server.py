"""A server that answers each call with what a test has prepared for it, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """`status` 0 hangs up without an answer. `chunks` are written one by one, and then the connection ends."""

    status: int = 200
    content: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Received:
    call: str
    query: str
    headers: dict[str, str]
    body: Any


class FaultyServer:
    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.received: list[Received] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def on(self, call: str, *answers: Answer) -> None:
        """The answers to a call in order; the last one is given again and again."""
        self.answers.setdefault(call, []).extend(answers)

    def calls(self, call: str) -> list[Received]:
        return [one for one in self.received if one.call == call]

    def next_answer(self, call: str) -> Answer:
        waiting = self.answers.get(call) or [Answer(404, {"code": "NOT_FOUND", "detail": call})]
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    @contextmanager
    def running(self) -> Iterator[FaultyServer]:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()


def _handler(server: FaultyServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30.0

        def answer(self) -> None:
            path, _, query = self.path.partition("?")
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            call = f"{self.command} {path}"
            body = json.loads(content) if content else None
            server.received.append(Received(call, query, dict(self.headers), body))
            given = server.next_answer(call)
            if given.status:
                self.send(given)

        do_GET = do_POST = answer

        def send(self, given: Answer) -> None:
            content = given.content if isinstance(given.content, bytes) else json.dumps(given.content).encode()
            self.send_response(given.status)
            for name, value in given.headers.items():
                self.send_header(name, value)
            if not given.chunks:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            for chunk in given.chunks or (content,):
                self.wfile.write(chunk)
                self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    return Handler
