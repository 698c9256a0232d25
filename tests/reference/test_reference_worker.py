"""The worker against an orchestrator that is made to misbehave, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lucius.reference import worker
from lucius.reference.attempt import Service
from lucius.reference.callbacks import CallbackSender
from lucius.reference.directive import Directive, Outcome, Report
from lucius.reference.files import Workspace
from lucius.reference.orchestrator import Orchestrator, open_client

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 20.0
Answer = tuple[int, dict[str, Any]]


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
    thread = threading.Thread(target=fake.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def run_worker(fake: FakeOrchestrator, until: Any, service: Service | None = None, names: Any = ("ocr",)) -> None:
    """Run until the condition holds (or fail after `SECONDS_MAX`), then stop gracefully."""

    async def run() -> None:
        stop = asyncio.Event()
        async with asyncio.timeout(SECONDS_MAX):
            running = asyncio.create_task(serve(stop))
            while not until() and not running.done():
                await asyncio.sleep(0.01)
            stop.set()
            await running

    async def serve(stop: asyncio.Event) -> None:
        if service is None:
            await worker.run_services(fake.url, "key", names, stop)
            return
        async with open_client(fake.url, "key") as client:
            orchestrator = Orchestrator(client)
            sender = CallbackSender(orchestrator)
            sending = asyncio.create_task(sender.run())
            await worker.ServiceWorker("ocr", service, orchestrator, sender, 2).run(stop)
            sending.cancel()

    asyncio.run(run())


@pytest.fixture
def text(fake: FakeOrchestrator, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "input.txt").write_text("The lanterns are lit at dusk. Nobody sleeps.")
    return {"input_ref": (tmp_path / "input.txt").as_uri(), "workspace_ref": (tmp_path / "work").as_uri()}


def endless(directive: Directive, workspace: Workspace, report: Report) -> Outcome:
    """Works until it is told to stop."""
    for tenth in range(1_000):
        report(min(0.9, tenth / 20), "still at it")
        time.sleep(0.02)
    raise AssertionError("nobody stopped the work")


def test_each_service_acknowledges_and_reports(fake: FakeOrchestrator, text: dict[str, Any]) -> None:
    prompts = {"prompt_set": ["When are the lanterns lit?"]}
    fake.directives = [
        fake.directive(1, "ocr", **text),
        fake.directive(2, "embedding", **text),
        fake.directive(3, "sis", **{**text, "payload": prompts}),
    ]
    run_worker(fake, lambda: len(fake.of_kind("RESULT")) == 3, names=("ocr", "embedding", "sis"))
    assert len(fake.of_kind("ACK")) == 3
    results = {body["stepId"]: body for body in fake.of_kind("RESULT")}
    assert {body["status"] for body in results.values()} == {"SUCCEEDED"}
    assert results["sis"]["artifacts"]["answers"][0]["answer"] == "The lanterns are lit at dusk."
    assert "output_ref" not in results["sis"]
    for job in ("job-1", "job-2", "job-3"):
        assert [kind for kind, body in fake.callbacks if body["jobId"] == job] == ["ACK", "RESULT"]


def test_callbacks_that_wait_together_leave_together(fake: FakeOrchestrator, text: dict[str, Any]) -> None:
    fake.directives = [fake.directive(number, **text) for number in range(4)]
    run_worker(fake, lambda: len(fake.of_kind("RESULT")) == 4)
    assert "/v1/callbacks:batch" in fake.paths


def test_a_callback_alone_leaves_by_itself(fake: FakeOrchestrator, text: dict[str, Any]) -> None:
    fake.directives = [fake.directive(1, **text)]
    run_worker(fake, lambda: fake.of_kind("RESULT"))
    assert "/v1/callbacks:batch" not in fake.paths


@pytest.mark.parametrize("code", ["STALE_ATTEMPT", "JOB_TERMINAL"])
def test_work_does_not_start_when_the_ack_is_refused(fake: FakeOrchestrator, text: dict[str, Any], code: str) -> None:
    fake.faults["ACK"] = [(409, {"code": code})]
    fake.directives = [fake.directive(1, **text), fake.directive(2, **text)]
    run_worker(fake, lambda: fake.of_kind("RESULT"))
    assert len(fake.of_kind("RESULT")) == 1


def test_callbacks_are_sent_again_until_answered(fake: FakeOrchestrator, text: dict[str, Any]) -> None:
    fake.faults = {
        "PULL": [(503, {"code": "UNAVAILABLE"})],
        "ACK": [(503, {"code": "UNAVAILABLE"})],
        "RESULT": [(502, {}), (503, {"code": "UNAVAILABLE"})],
    }
    fake.directives = [fake.directive(1, **text)]
    run_worker(fake, lambda: fake.of_kind("RESULT"))
    assert fake.of_kind("RESULT")[0]["status"] == "SUCCEEDED"


def test_a_result_the_server_will_not_have_becomes_a_failure(fake: FakeOrchestrator, text: dict[str, Any]) -> None:
    fake.faults["RESULT"] = [(413, {"code": "BODY_TOO_LARGE", "detail": "artifacts"})]
    fake.directives = [fake.directive(1, **text)]
    run_worker(fake, lambda: fake.of_kind("RESULT"))
    (result,) = fake.of_kind("RESULT")
    assert (result["status"], result["error"]["code"]) == ("FAILED", "RESULT_REFUSED")


def test_heartbeats_carry_progress_and_a_stale_attempt_stops(fake: FakeOrchestrator, text: dict[str, Any]) -> None:
    fake.directives = [fake.directive(1, **{**text, "lease_seconds": 0.3})]

    def overtaken() -> bool:
        if len(fake.of_kind("HEARTBEAT")) >= 3:
            fake.faults.setdefault("HEARTBEAT", [(409, {"code": "STALE_ATTEMPT"})])
        return fake.faults.get("HEARTBEAT") == []

    run_worker(fake, overtaken, endless)
    beats = fake.of_kind("HEARTBEAT")
    assert beats[-1]["progress"] > 0
    assert beats[-1]["note"] == "still at it"
    assert not fake.of_kind("RESULT")


def test_a_cancelled_job_ends_by_a_result(fake: FakeOrchestrator, text: dict[str, Any]) -> None:
    fake.faults["HEARTBEAT"] = [(200, {"outcome": "APPLIED", "cancel_requested": True})]
    fake.directives = [fake.directive(1, **{**text, "lease_seconds": 0.3})]
    run_worker(fake, lambda: fake.of_kind("RESULT"), endless)
    (result,) = fake.of_kind("RESULT")
    assert (result["failure_class"], result["error"]["code"]) == ("NON_RETRYABLE", "CANCELLED")


def test_a_stopping_worker_gives_its_attempt_back(
    fake: FakeOrchestrator, text: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "DRAIN_SECONDS", 0.1)
    fake.directives = [fake.directive(1, **text)]
    run_worker(fake, lambda: fake.of_kind("ACK"), endless)
    (result,) = fake.of_kind("RESULT")
    assert (result["failure_class"], result["error"]["code"]) == ("RATE_LIMITED", "SERVICE_STOPPING")
    assert result["retry_after"] > 0


def test_a_directive_that_cannot_be_read_harms_nobody(fake: FakeOrchestrator, text: dict[str, Any]) -> None:
    fake.directives = [{"service": "ocr", "jobId": "job-0"}, fake.directive(1, **text)]
    run_worker(fake, lambda: fake.of_kind("RESULT"))
    assert [body["jobId"] for body in fake.of_kind("RESULT")] == ["job-1"]


def test_an_unknown_service_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="telepathy"):
        asyncio.run(worker.run_services("http://127.0.0.1:1", "key", ["telepathy"]))


def run_curl_worker(fake: FakeOrchestrator, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "examples" / "curl-worker.sh"), *arguments],
        env={**os.environ, "LUCIUS_URL": fake.url, "LUCIUS_API_KEY": "key", "PULLS_MAX": "2"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_curl_worker_finishes_directives(fake: FakeOrchestrator) -> None:
    fake.directives = [fake.directive(number, "ocr") for number in (1, 2)]
    ended = run_curl_worker(fake, "ocr", "2")
    assert ended.returncode == 0, ended.stderr
    assert [body["status"] for body in fake.of_kind("RESULT")] == ["SUCCEEDED"] * 2
    assert len(fake.of_kind("ACK")) == 2
    assert "job-2 ocr attempt 1" in ended.stdout


def test_the_curl_worker_leaves_a_stale_attempt_and_gives_up(fake: FakeOrchestrator) -> None:
    fake.faults["ACK"] = [(409, {"code": "STALE_ATTEMPT"})]
    fake.directives = [fake.directive(1, "ocr")]
    ended = run_curl_worker(fake, "ocr", "1")
    assert ended.returncode == 1
    assert not fake.of_kind("RESULT")
    assert "gave up" in ended.stderr
