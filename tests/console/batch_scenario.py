"""A runbook, a batch and its worker, for the pages of batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.console.console_server import Server

HOSTILE = "<img src=x onerror=alert(1)>'é"
"""A member's key that must be shown as text."""
LONG = "l" * 240
JOBS_SECONDS_MAX = 30.0


def worker_of(name: str) -> str:
    """Each runbook has a worker of its own: what one test leaves undone is not in the way of others."""
    return f"worker-{name.replace(' ', '-')}"


def runbook(name: str, phases: dict[str, Sequence[str]], **more: Any) -> str:
    lines = [f"name: {name}", "data_source: {type: manual, primary_key: Upn}"]
    lines += [f"{key}: {value}" for key, value in more.items()] + ["phases:"]
    for phase, steps in phases.items():
        lines += [f"  - name: {phase}", "    offset: T-0", "    steps:"]
        lines += [
            f'      - {{name: {step}, worker_id: {worker_of(name)}, function: Do, params: {{Upn: "{{{{Upn}}}}"}}}}'
            for step in steps
        ]
    return "\n".join(lines) + "\n"


class Batch:
    """A batch whose phases are begun by hand, and the worker that does its jobs."""

    def __init__(
        self, server: Server, name: str, members: Sequence[str], phases: dict[str, Sequence[str]], **more: Any
    ) -> None:
        self.server = server
        self.worker = worker_of(name)
        self.call("POST", "/v1/runbooks", {"yaml": runbook(name, phases, **more)})
        self._create(name, members)

    @classmethod
    def of_published(cls, server: Server, name: str, members: Sequence[str], **more: Any) -> Batch:
        """Of a runbook that is published already, whose worker is that of its name."""
        batch = cls.__new__(cls)
        batch.server, batch.worker = server, worker_of(name)
        batch._create(name, members, **more)
        return batch

    def _create(self, name: str, members: Sequence[str], **more: Any) -> None:
        csv = "Upn\n" + "".join(f"{member}\n" for member in members)
        made = self.call("POST", "/v1/batches", {"runbook": name, "csv": csv, "advance": "manual", **more})
        self.id: int = made["batch_id"]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.server.client.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def act(self, verb: str, body: Any = None) -> Any:
        return self.call("POST", f"/v1/batches/{self.id}:{verb}", body or {})

    @property
    def shown(self) -> dict[str, Any]:
        return dict(self.call("GET", f"/v1/batches/{self.id}"))

    def events(self, kind: str) -> list[dict[str, Any]]:
        found = self.call("GET", f"/v1/batches/{self.id}/events")["items"]
        return [event for event in found if event["kind"] == kind]

    def jobs(self, count: int) -> list[dict[str, Any]]:
        """Take this many jobs."""
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + JOBS_SECONDS_MAX
        while len(found) < count and time.monotonic() < deadline:
            body = {"workerId": self.worker, "max": min(256, count - len(found)), "wait_seconds": 5}
            found += self.call("POST", "/v1/worker-jobs:pull", body)["jobs"]
        assert len(found) == count
        return found

    def answer(self, jobs: Sequence[dict[str, Any]], fails: Callable[[str], str | None] = lambda member: None) -> None:
        """Answer jobs; `fails` returns the error of a member's."""
        results = []
        for job in jobs:
            error = fails(job["parameters"]["Upn"])
            ending = {"status": "Success", "result": {"upn": job["parameters"]["Upn"]}}
            if error is not None:
                ending = {"status": "Failure", "error": {"message": error}}
            results.append({"jobId": job["jobId"], "correlationData": job["correlationData"], **ending})
        outcomes = self.call("POST", "/v1/worker-results", {"results": results})["outcomes"]
        assert {one["outcome"] for one in outcomes} == {"APPLIED"}
