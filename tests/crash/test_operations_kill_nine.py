"""400 failed jobs in three signatures, redriven by operations whose server is killed in the middle: exact counts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.crash.processes import API_KEY, QUICK, Process, free_port

SIGNATURES = {"SCANNER_DOWN": 200, "OUT_OF_MEMORY": 150, "BAD_FONT": 50}
INFLIGHT_MAX = 40
TERMINAL = ("COMPLETED", "STOPPED", "ABANDONED")
IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id", "callback_token")


class Server:
    """What a client and a worker ask of it. While it is down they ask again."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def ask(self, method: str, path: str, body: Any = None, seconds: float = 30.0, **params: Any) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while True:
            try:
                answer = self._client.request(method, path, json=body, params=params)
                if answer.status_code not in (429, 503):
                    assert answer.is_success, answer.text
                    return dict(answer.json())
            except httpx.TransportError:
                if time.monotonic() > end:
                    raise
            assert time.monotonic() < end, f"{method} {path} was not answered"
            time.sleep(0.05)

    def pages(self, path: str, **params: Any) -> Iterator[dict[str, Any]]:
        cursor = None
        while True:
            page = self.ask("GET", path, **params, limit=500, **({"cursor": cursor} if cursor else {}))
            yield from page["items"]
            cursor = page["next"]
            if cursor is None:
                return

    def work(self, error_code: str | None) -> int:
        """Take what is there and finish it: with success, or with an error that is not retried."""
        pull = {"service": "ocr", "max": 100, "wait_seconds": 0.1}
        directives = self.ask("POST", "/v1/directives:pull", pull)["directives"]
        result: dict[str, Any] = {"type": "RESULT", "status": "SUCCEEDED"}
        if error_code is not None:
            error = {"code": error_code, "message": f"failed after {len(directives)} pages"}
            result = {"type": "RESULT", "status": "FAILED", "failure_class": "NON_RETRYABLE", "error": error}
        callbacks = [{name: one[name] for name in IDS} | result for one in directives]
        if callbacks:
            self.ask("POST", "/v1/callbacks:batch", {"callbacks": callbacks})
        return len(callbacks)

    def operation(self, operation_id: str) -> dict[str, Any]:
        return self.ask("GET", f"/v1/operations/{operation_id}")

    def until(self, operation_id: str, *statuses: str, seconds: float = 60.0, **counts: int) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while True:
            found = self.operation(operation_id)
            if found["status"] in statuses and all(found[name] == count for name, count in counts.items()):
                return found
            assert time.monotonic() < end, found
            time.sleep(0.05)

    def redrive(self, signature: str, **fields: Any) -> str:
        body = {
            "action": "redrive",
            "filter": {"error_signature": signature},
            "reason": "fixed",
            "rate_per_second": 200,
        }
        return str(self.ask("POST", "/v1/operations", body | fields)["operationId"])

    def preview(self, signature: str) -> int:
        wanted = {"action": "redrive", "filter": {"error_signature": signature}}
        return int(self.ask("POST", "/v1/operations:preview", wanted)["count"])

    def inflight(self) -> int:
        return int(self.ask("GET", "/v1/admin/tenants")["inflight"])


@contextmanager
def working(server: Server, error_code: str | None) -> Iterator[list[int]]:
    """A worker beside the test; yields what was in flight whenever it looked."""
    stop, seen, failures = threading.Event(), [0], []

    def run() -> None:
        try:
            while not stop.is_set():
                seen.append(server.inflight())
                server.work(error_code)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join(60)
    assert not failures, failures


def fail_jobs(server: Server) -> dict[str, str]:
    """400 jobs that fail for three reasons; the signature of each reason."""
    number = 0
    for code, count in SIGNATURES.items():
        for first in range(0, count, INFLIGHT_MAX):
            commands = []
            for _ in range(min(INFLIGHT_MAX, count - first)):
                number += 1
                commands.append(
                    {
                        "tenant_id": "acme", "request_type": "OCR", "schema_version": "1", "payload": {},
                        "input_ref": f"https://documents.example/{number}.pdf",
                        "output_ref": f"https://documents.example/{number}.json",
                    }
                )  # fmt: skip
            answers = server.ask("POST", "/v1/commands:batch", {"commands": commands})["results"]
            left = sum("jobId" in answer for answer in answers)
            assert left == len(commands), answers
            while left:
                left -= server.work(code)
    found = Counter(job["error_signature"] for job in server.pages("/v1/jobs", status="FAILED_FINAL"))
    signatures = {code: next(name for name in found if code in name) for code in SIGNATURES}
    assert {code: found[signatures[code]] for code in SIGNATURES} == SIGNATURES
    return signatures


def test_400_failed_jobs_are_redriven_with_exact_counts_across_kill_nine(tmp_path: Path) -> None:
    settings = QUICK | {
        "LUCIUS_MAX_INFLIGHT_PER_TENANT": str(INFLIGHT_MAX),
        "LUCIUS_OPERATIONS_INTERVAL": "0.05",
        "LUCIUS_ACK_TIMEOUT_SECONDS": "30",
    }
    port = free_port()
    words = ("up", "--no-services", "--data", str(tmp_path / "data"))
    address, headers = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {API_KEY}"}
    with (
        Process(*words, settings=settings, folder=tmp_path, port=port) as process,
        httpx.Client(base_url=address, headers=headers, timeout=20) as client,
    ):
        server = Server(client)
        signatures = fail_jobs(server)
        scanner = signatures["SCANNER_DOWN"]
        assert server.preview(scanner) == 200

        # A canary that fails: it stops, and the rest is untouched.
        first = server.redrive(scanner, canary=5)
        with working(server, "SCANNER_DOWN"):
            stopped = server.until(first, "STOPPED", failed=5)
        assert (stopped["jobs"], stopped["pending"], stopped["succeeded"]) == (200, 195, 0)
        server.ask("POST", f"/v1/operations/{first}:abandon", {"reason": "not fixed yet"})
        assert server.preview(scanner) == 200, "what was redriven is represented by the job that came of it"

        # A canary that passes, and the rest, within the limit; the server is killed in the middle, twice.
        second = server.redrive(scanner, canary=5)
        with working(server, None) as inflight:
            for kills, done in enumerate((20, 120), start=1):
                while server.operation(second)["succeeded"] < done:
                    time.sleep(0.02)
                process.kill()
                process.start()
                process.wait_ready()
                assert process.lives > kills
            finished = server.until(second, "COMPLETED")
        assert max(inflight) <= INFLIGHT_MAX
        assert {name: finished[name] for name in ("jobs", "succeeded", "failed", "skipped", "pending", "started")} == {
            "jobs": 200, "succeeded": 200, "failed": 0, "skipped": 0, "pending": 0, "started": 0,
        }  # fmt: skip
        assert [event["type"] for event in finished["events"]] == ["CREATED", "CANARY_PASSED", "ENDED"]

        # The other two at once: one for good, one that fails again and stops at its threshold.
        memory = server.redrive(signatures["OUT_OF_MEMORY"])
        with working(server, None):
            server.until(memory, "COMPLETED", succeeded=150, jobs=150)
        font = server.redrive(signatures["BAD_FONT"], max_failures=9, rate_per_second=20)
        with working(server, "BAD_FONT"):
            server.until(font, "STOPPED", started=0)
        fonts = server.operation(font)
        assert fonts["failed"] >= 10
        assert fonts["failed"] + fonts["pending"] == 50

        # Every job has one outcome, every redrive one job, and no job was redriven twice.
        redriven: Counter[str] = Counter()
        new_ids: set[str] = set()
        for operation_id in (first, second, memory, font):
            one = server.operation(operation_id)
            items = list(server.pages(f"/v1/operations/{operation_id}/outcomes"))
            told = Counter(item["status"] for item in items)
            assert {name: one[name.lower()] for name in told} == told
            assert len({item["jobId"] for item in items}) == one["jobs"] == len(items)
            new_ids |= {item["new_jobId"] for item in items if item["new_jobId"]}
        jobs = list(server.pages("/v1/jobs"))
        redriven.update(job["redrive_of"] for job in jobs if job["redrive_of"])
        assert {job["jobId"] for job in jobs if job["redrive_of"]} == new_ids
        assert set(redriven.values()) == {1}
        assert len(jobs) == 400 + 5 + 200 + 150 + fonts["failed"]
        assert server.inflight() == 0
        assert "Traceback" not in process.log, process.log[-3000:]
