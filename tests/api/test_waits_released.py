"""Real connections: whoever hangs up in the middle of a wait or a stream makes room for the next."""

from __future__ import annotations

import json
import re
import socket
import time
from contextlib import ExitStack
from typing import Any

import httpx

CAP = 5
RELEASED_SECONDS_MAX = 20.0


def begin(server: Any, request: str, headers: str = "", body: bytes = b"") -> socket.socket:
    """A request that is not answered soon; its connection."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), 10)
    head = f"{request} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\nContent-Length: {len(body)}\r\n"
    connection.sendall(f"{head}{headers}\r\n".encode() + body)
    return connection


def statuses_of(client: httpx.Client, job_id: str) -> dict[str, int]:
    """How one more call of each kind is answered; a stream is left at once."""
    path = f"/v1/jobs/{job_id}"
    with client.stream("GET", f"{path}/events", headers={"Accept": "text/event-stream"}) as stream:
        found = {"stream": stream.status_code}
    found["wait"] = client.get(path, params={"wait_seconds": 0.1}).status_code
    found["pull"] = client.post("/v1/directives:pull", json={"service": "ocr", "wait_seconds": 0.1}).status_code
    return found


def test_whoever_hangs_up_makes_room(serve: Any) -> None:
    caps = {f"LUCIUS_{kind}_PER_PRINCIPAL_MAX": str(CAP) for kind in ("WAITS", "STREAMS")}
    server = serve("--no-services", **caps)
    pull = json.dumps({"service": "ocr", "wait_seconds": 50}).encode()
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3_600))
    envelope = {
        "tenant_id": "acme", "request_type": "OCR", "input_ref": "https://a.example/in", "payload": {},
        "output_ref": "https://a.example/out", "schema_version": "1", "not_before": moment,
    }  # fmt: skip
    with server.client() as client:
        job_id = client.post("/v1/commands", json=envelope).raise_for_status().json()["jobId"]
        calls = {
            "stream": (f"GET /v1/jobs/{job_id}/events", "Accept: text/event-stream\r\n", b""),
            "wait": (f"GET /v1/jobs/{job_id}?wait_seconds=50", "", b""),
            "pull": ("POST /v1/directives:pull", "Content-Type: application/json\r\n", pull),
        }
        for kind, call in calls.items():
            busy = {"stream": 200, "wait": 200, "pull": 200} | (
                {"stream": 429} if kind == "stream" else {"wait": 429, "pull": 429}
            )
            with ExitStack() as stack:
                for _ in range(CAP):
                    stack.enter_context(begin(server, *call))
                wait_until_held(server, "stream" if kind == "stream" else "wait", CAP)
                assert statuses_of(client, job_id) == busy, kind
            wait_until_held(server, "stream", 0)
            wait_until_held(server, "wait", 0)
            assert statuses_of(client, job_id) == dict.fromkeys(calls, 200), kind
    assert "Traceback" not in server.said
    assert not re.search(r'"level": ?"error"', server.said, re.IGNORECASE), server.said


def wait_until_held(server: Any, kind: str, count: int) -> None:
    """By what the server counts itself: far sooner than the waits themselves would end."""
    metrics = server.wait_for(r"  management  (http://\S+)") + "/metrics"
    end = time.monotonic() + RELEASED_SECONDS_MAX
    while f'lucius_waits_held{{kind="{kind}"}} {count:.1f}' not in httpx.get(metrics).text:
        assert time.monotonic() < end, f"there are not {count} {kind}s"
        time.sleep(0.05)
