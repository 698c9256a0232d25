"""A server, or a tenant whose words it repeats, cannot steer the terminal of whoever uses the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from lucius.cli.main import cli
from lucius.cli.output.printing import show_document

STEERING = "\x1b[2J\x9b31m\u202e\u2066\x07\r\x85\u2028"
JOB = "019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a"
NAMES = (
    "jobId tenant_id request_type status code detail title stepId service note type at by reason id messageId"
    " topic subscription runbook name member phase step kind actor origin advance hold_reason start created_at"
    " current_step_id lease_id correlation_id redrive_of worker_id function outcome description created_by"
)
ITEM = dict.fromkeys(NAMES.split(), STEERING)
ERROR = {"code": STEERING, "message": STEERING}
STEP = ITEM | {"error": ERROR, "attempts": [ITEM | {"error": ERROR}], "artifacts": {STEERING: STEERING}}
WAITS = {"what": STEERING, "sentence": STEERING, "since": STEERING, "until": STEERING}
BODY: dict[str, Any] = ITEM | {
    "error": ERROR, "steps": [STEP], "waiting_on": WAITS, "next": STEERING, "events": [ITEM | {"error": STEERING}],
    "items": [ITEM | {"error": ERROR, "steps": [STEP], "subscriptions": [ITEM | {"ready": 1}], "detail": ITEM}],
    "messages": [ITEM], "errors": [{"code": STEERING, "pointer": STEERING, "detail": STEERING}],
    "inflight": STEERING, "max_inflight": STEERING, "members": {}, "phases": {}, "phase_list": [], "init": [],
    "waiting_for": [STEERING], "versions": [ITEM], "yaml": STEERING,
}  # fmt: skip


class _Hostile(BaseHTTPRequestHandler):
    status = 200

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = json.dumps(BODY).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture(params=[200, 422])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    handler = type("Handler", (_Hostile,), {"status": request.param})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


COMMANDS = [
    ("submit", "FILE"), ("validate", "FILE"), ("get", JOB), ("why", JOB), ("list",), ("events", JOB), ("cancel", JOB),
    ("pause", JOB), ("redrive", JOB), ("protocols",), ("lanes",), ("tenants",), ("dead-letters",), ("runbook", "list"),
    ("runbook", "show", "move"), ("runbook", "events", "move"), ("batch", "list"), ("batch", "show", "1"),
    ("batch", "why", "1"), ("batch", "grid", "1"), ("batch", "events", "1"), ("batch", "cancel", "1", "--yes"),
    ("batch", "advance", "1"),
]  # fmt: skip


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_that_a_server_says_reaches_the_terminal_as_it_is(
    url: str, command: tuple[str, ...], output: str, tmp_path: Path
) -> None:
    file = tmp_path / "command.json"
    file.write_text("{}")
    words = [str(file) if word == "FILE" else word for word in command]
    ran = CliRunner().invoke(cli, ["--url", url, "--api-key", "k", *words, "--output", output])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    assert "No such" not in ran.output, ran.output
    assert all(line.isprintable() for line in ran.output.split("\n")), ascii(ran.output)


def test_a_document_is_printed_as_it_is_into_a_file_and_made_harmless_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(click, "echo", lambda text, nl=True: said.append(text))
    text = f"a: 1\r\nb: {STEERING}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    show_document(text)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    show_document(text)
    assert said[0] == text
    assert all(line.isprintable() for line in said[1].split("\n"))
