"""A server that answers whatever a test wants, for the command line alone; no test finds a developer's settings."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lucius.cli.main import cli

Answer = tuple[int, Any, dict[str, str]]


class ScriptedServer:
    """Answers each call with the next answer for its method and path; the last one is given again and again."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.calls: list[tuple[str, dict[str, Any] | None, str]] = []
        self.keys: list[str | None] = []
        """The `Idempotency-Key` of each call."""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def on(self, call: str, *answers: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.answers.setdefault(call, []).extend((status, answer, headers or {}) for answer in answers)

    def lucius(self, *arguments: str, **options: Any) -> Result:
        """Run a command against this server."""
        return CliRunner().invoke(cli, ["--url", self.url, *arguments], **options)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer("GET")

            def do_POST(self) -> None:
                self.answer("POST")

            def answer(self, method: str) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                scripted.calls.append((f"{method} {self.path}", body, self.headers.get("Authorization", "")))
                scripted.keys.append(self.headers.get("Idempotency-Key"))
                queue = scripted.answers.get(f"{method} {self.path.partition('?')[0]}")
                status, answer, headers = (404, {"code": "NOT_FOUND"}, {}) if not queue else queue[0]
                if queue and len(queue) > 1:
                    queue.pop(0)
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer()
    thread = threading.Thread(target=scripted.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield scripted
    scripted.server.shutdown()
    scripted.server.server_close()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may find a key or a setting of the developer's."""
    monkeypatch.chdir(tmp_path)
    for name in ("LUCIUS_URL", "LUCIUS_API_KEY", "LUCIUS_DATA", "LUCIUS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
