"""A worker that hangs up in the middle of a long poll takes no directive with it."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.crash.client import envelope
from tests.crash.processes import API_KEY, QUICK, Process, free_port

LOCK_SECONDS = 20.0


def post(port: int, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {API_KEY}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def hang_up(port: int) -> None:
    """Begin a long poll, and go."""
    body = json.dumps({"service": "ocr", "max": 1, "wait_seconds": 10}).encode()
    head = (
        f"POST /v1/directives:pull HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {API_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(head.encode() + body)
        time.sleep(0.3)  # Long enough to be served, far shorter than its wait.


def test_directive_is_not_locked_for_a_worker_that_has_gone(tmp_path: Path) -> None:
    settings = {**QUICK, "LUCIUS_ACK_TIMEOUT_SECONDS": str(3 * LOCK_SECONDS)}
    words = ("up", "--no-services", "--data", str(tmp_path / "data"))
    with Process(*words, settings=settings, folder=tmp_path, port=free_port()) as server:
        assert server.port is not None
        for _ in range(4):
            hang_up(server.port)
        post(server.port, "/v1/commands", envelope("one"))
        began = time.monotonic()
        directives: list[Any] = []
        while not directives and time.monotonic() - began < LOCK_SECONDS:
            answer = post(server.port, "/v1/directives:pull", {"service": "ocr", "max": 1, "wait_seconds": 1})
            directives = answer["directives"]
        assert len(directives) == 1
        assert time.monotonic() - began < LOCK_SECONDS / 2, "it was locked for somebody who had gone"
