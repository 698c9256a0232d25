"""HTTP server of the simulated orchestrator: keep-alive, long polls, and refusing connections on demand."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lucius.contract.exchange import Reply, problem
from lucius.contract.orchestrator import Orchestrator
from lucius.contract.shapes import KitUnusable

BODY_BYTES_MAX = 4 * 1024 * 1024
BACKLOG = 128
IDLE_SECONDS_MAX = 300.0
TRICKLE_PIECES = 6
CALLBACK_PATHS = {"/v1/callbacks/ack": "ACK", "/v1/callbacks/heartbeat": "HEARTBEAT", "/v1/callbacks/result": "RESULT"}


class _BodyRefused(Exception):
    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.reply = Reply(status, problem(status, code, detail))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = BACKLOG

    def __init__(self, address: tuple[str, int], orchestrator: Orchestrator, stopping: threading.Event) -> None:
        self.orchestrator = orchestrator
        self.stopping = stopping
        self.connections: set[socket.socket] = set()
        self.guard = threading.Lock()
        super().__init__(address, _Handler, bind_and_activate=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are the service's fault, and often intended by the case; other errors are bugs."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Listener:
    """Listens from `__init__` until `close`. Keeps its port while it refuses connections."""

    def __init__(self, host: str, port: int, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._stopping = threading.Event()
        self._host = host
        try:
            bound = self._bind(port)
        except OSError as error:
            raise KitUnusable(
                f"cannot listen on {host}:{port}: {error.strerror or error}; choose a free address with --url"
            ) from error
        self.port = int(bound.getsockname()[1])
        self._bound: socket.socket | None = bound
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self.accept_connections()

    @property
    def url(self) -> str:
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self.port}"

    def _bind(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((self._host, port))
        except OSError:
            made.close()
            raise
        return made

    def accept_connections(self) -> None:
        if self._bound is None:
            return
        server = _Server((self._host, self.port), self._orchestrator, self._stopping)
        server.socket.close()
        server.socket, self._bound = self._bound, None
        server.server_activate()
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), daemon=True, name="contract-listener"
        )
        self._thread.start()

    def refuse_connections(self) -> None:
        """Refuse connections from now on. A bound socket that does not listen keeps the port."""
        if self._server is None:
            return
        self._end_server()
        self._bound = self._bind(self.port)

    def hang_up(self) -> None:
        """Close every connection; waiting pulls end."""
        self._orchestrator.release_pulls()
        if self._server is None:
            return
        with self._server.guard:
            open_now = list(self._server.connections)
        for connection in open_now:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._stopping.set()
        self._end_server()
        if self._bound is not None:
            self._bound.close()
            self._bound = None

    def _end_server(self) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self.hang_up()
        self._server.server_close()
        self._server = self._thread = None


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS_MAX
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        with self.server.guard:
            self.server.connections.add(self.connection)

    def finish(self) -> None:
        with self.server.guard:
            self.server.connections.discard(self.connection)
        with contextlib.suppress(OSError, ValueError):  # The client is gone.
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """The kit keeps its own record."""

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._send(Reply(200, {"status": "ok"}))
        else:
            self._send(Reply(404, problem(404, "NOT_FOUND", f"there is nothing at {self.path}")))

    def do_POST(self) -> None:
        orchestrator = self.server.orchestrator
        try:
            body = self._json()
        except _BodyRefused as refused:
            self._send(refused.reply)
            return
        if self.path == "/v1/directives:pull":
            reply = orchestrator.pull(body, self.headers.get("Authorization", ""), self._is_gone)
        elif self.path == "/v1/callbacks:batch":
            reply = orchestrator.call_back_batch(body)
        elif self.path in CALLBACK_PATHS:
            token = self.headers.get("Lucius-Callback-Token") or _token_in(body)
            reply = orchestrator.call_back(CALLBACK_PATHS[self.path], body, token)
        else:
            reply = Reply(404, problem(404, "NOT_FOUND", f"there is nothing at {self.path}"))
        reply.delay_seconds += orchestrator.brake_seconds()
        orchestrator.answered(reply, self._send(reply))

    def _json(self) -> Any:
        content = self._content()
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            detail = f"the body must be application/json, not {kind or 'without a type'}"
            raise _BodyRefused(415, "UNSUPPORTED_MEDIA_TYPE", detail)
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _BodyRefused(400, "MALFORMED_JSON", f"the body is not valid JSON: {error}") from error

    def _content(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._chunks()
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            raise _BodyRefused(413, "BODY_TOO_LARGE", f"the body is larger than {BODY_BYTES_MAX} bytes")
        return self.rfile.read(int(length))

    def _chunks(self) -> bytes:
        content = b""
        while True:
            size_text = self.rfile.readline(1024).partition(b";")[0].strip()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size_text):
                self.close_connection = True
                raise _BodyRefused(400, "MALFORMED_JSON", "the body is incomplete, or a chunk has no size")
            size = int(size_text, 16)
            if len(content) + size > BODY_BYTES_MAX:
                self.close_connection = True
                raise _BodyRefused(413, "BODY_TOO_LARGE", f"the body is larger than {BODY_BYTES_MAX} bytes")
            content += self.rfile.read(size)
            self.rfile.readline(1024)
            if size == 0:
                return content

    def _is_gone(self) -> bool:
        """Whether the client has disconnected while its pull waits."""
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True

    def _send(self, reply: Reply) -> bool:
        """Whether the whole answer was sent."""
        if reply.delay_seconds:
            self.server.stopping.wait(reply.delay_seconds)
        if reply.drop:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return False
        content = json.dumps(reply.content).encode()
        try:
            self.send_response(reply.status)
            kind = "application/json" if reply.status < 400 else "application/problem+json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if reply.retry_after_seconds is not None:
                self.send_header("Retry-After", str(reply.retry_after_seconds))
            self.end_headers()
            self._write(content, reply.trickle_seconds)
        except OSError:
            self.close_connection = True
            return False
        return True

    def _write(self, content: bytes, trickle_seconds: float) -> None:
        step = len(content) if not trickle_seconds else max(1, len(content) // TRICKLE_PIECES)
        for start in range(0, len(content), step):
            if trickle_seconds:
                self.wfile.flush()
                self.server.stopping.wait(trickle_seconds / TRICKLE_PIECES)
            self.wfile.write(content[start : start + step])
        self.wfile.flush()


def _token_in(body: Any) -> str:
    return str(body.get("callback_token") or "") if isinstance(body, dict) else ""
