"""A proxy that serves a server under a prefix, as an ingress does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

PREFIX = "/lucius"
DROPPED = frozenset({"transfer-encoding", "connection", "content-length", "content-encoding", "keep-alive"})


class Proxy(ThreadingHTTPServer):
    daemon_threads = True
    target = ""
    prefix = PREFIX
    is_cut = False
    """Whether it drops every connection, also those that are open as soon as something comes."""

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away is no error here."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self._forward()

    def do_POST(self) -> None:
        self._forward()

    def _forward(self) -> None:
        assert isinstance(self.server, Proxy)
        if self.server.is_cut:
            return
        if not self.path.startswith(f"{self.server.prefix}/"):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in {"host", *DROPPED}}
        address = f"{self.server.target}{self.path.removeprefix(self.server.prefix)}"
        try:
            with httpx.stream(self.command, address, content=body, headers=headers, timeout=60) as answer:
                self.send_response(answer.status_code)
                for name, value in answer.headers.multi_items():
                    if name.lower() not in DROPPED:
                        self.send_header(name, value)
                self.end_headers()
                for piece in answer.iter_raw():
                    if self.server.is_cut:
                        return
                    self.wfile.write(piece)
        except (httpx.HTTPError, OSError):
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def prefix_proxy(prefix: str = PREFIX) -> Iterator[Proxy]:
    proxy = Proxy(("127.0.0.1", 0), Handler)
    proxy.prefix = prefix
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield proxy
    proxy.shutdown()
    proxy.server_close()
