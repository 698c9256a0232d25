"""A caller and a worker of runbooks, over HTTP alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx

WORKER = "exchange"
QUICK = {"scheduler_interval": 0.02, "runbook_sweep_interval": 0.02}
DEADLINE_SECONDS = 30.0

YAML = """\
name: move
data_source: {type: manual, primary_key: Upn}
init:
  - {name: check, worker_id: exchange, function: Check, params: {Batch: "{{_batch_id}}"}}
phases:
  - name: prep
    offset: T-1h
    steps:
      - {name: notify, worker_id: exchange, function: Notify, params: {Upn: "{{Upn}}"}, output_params: {Guid: guid}}
      - {name: start, worker_id: exchange, function: Start, params: {Upn: "{{Upn}}", Guid: "{{Guid}}"},
         on_failure: undo}
  - name: cutover
    offset: T-0
    steps:
      - {name: finish, worker_id: exchange, function: Finish, params: {Upn: "{{Upn}}"},
         poll: {interval: 1s, timeout: 1h}}
on_member_removed:
  - {name: forget, worker_id: exchange, function: Forget, params: {Upn: "{{Upn}}"}}
rollbacks:
  undo:
    - {name: undo-start, worker_id: exchange, function: UndoStart, params: {Upn: "{{Upn}}"}}
"""
PLAIN = """\
name: plain
data_source: {type: manual, primary_key: Upn}
phases:
  - name: only
    offset: T-0
    steps:
      - {name: a, worker_id: exchange, function: A, params: {Upn: "{{Upn}}"}}
      - {name: b, worker_id: exchange, function: B, params: {Upn: "{{Upn}}"}}
"""

Answers = Callable[[dict[str, Any]], Any]


def csv_of(*keys: str) -> str:
    return "Upn\n" + "".join(f"{key}\n" for key in keys)


def succeed(job: dict[str, Any]) -> dict[str, Any]:
    result = {"guid": f"g-{job['parameters'].get('Upn')}"}
    return {"jobId": job["jobId"], "status": "Success", "result": result, "correlationData": job["correlationData"]}


def fail(job: dict[str, Any], message: str = "boom") -> dict[str, Any]:
    error = {"message": message}
    return {"jobId": job["jobId"], "status": "Failure", "error": error, "correlationData": job["correlationData"]}


class RunbookCaller:
    def __init__(self, api: Any) -> None:
        self.api = api
        self.client: httpx.AsyncClient = api.client

    async def get(self, path: str, **parameters: Any) -> Any:
        answer = await self.client.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.client.post(path, json={} if body is None else body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def publish(self, yaml: str = YAML, **options: Any) -> dict[str, Any]:
        return dict(await self.post("/v1/runbooks", {"yaml": yaml, **options}, 201))

    async def create(self, *keys: str, runbook: str = "move", **options: Any) -> int:
        body = {"runbook": runbook, "csv": csv_of(*keys), **options}
        return int((await self.post("/v1/batches", body, 201))["batch_id"])

    async def act(self, batch: int, verb: str, body: Any = None) -> Any:
        return await self.post(f"/v1/batches/{batch}:{verb}", body)

    async def batch(self, batch: int) -> dict[str, Any]:
        return dict(await self.get(f"/v1/batches/{batch}"))

    async def members(self, batch: int, **parameters: Any) -> list[dict[str, Any]]:
        return list((await self.get(f"/v1/batches/{batch}/members", **parameters))["items"])

    async def pull(self, max_: int = 64, wait_seconds: float = 0.2) -> list[dict[str, Any]]:
        body = {"workerId": WORKER, "max": max_, "wait_seconds": wait_seconds}
        return list((await self.post("/v1/worker-jobs:pull", body))["jobs"])

    async def jobs(self, count: int) -> list[dict[str, Any]]:
        """So many jobs; they are waited for, and they must come."""
        found: list[dict[str, Any]] = []
        end = time.monotonic() + DEADLINE_SECONDS
        while len(found) < count:
            assert time.monotonic() < end, f"{len(found)} of {count} jobs came: {found}"
            found += await self.pull(count - len(found))
        return found

    async def results(self, *results: Any) -> list[dict[str, Any]]:
        return list((await self.post("/v1/worker-results", {"results": list(results)}))["outcomes"])

    async def work(self, count: int, answers: Answers = succeed) -> list[dict[str, Any]]:
        """Take so many jobs and answer them; each answer must be applied."""
        jobs = await self.jobs(count)
        outcomes = await self.results(*(answers(job) for job in jobs))
        assert [one.get("outcome") for one in outcomes] == ["APPLIED"] * count, outcomes
        return jobs

    async def work_until(self, batch: int, status: str, answers: Answers = succeed) -> dict[str, Any]:
        """Be the worker until the batch has come to this status."""
        end = time.monotonic() + DEADLINE_SECONDS
        while (shown := await self.batch(batch))["status"] != status:
            assert time.monotonic() < end, shown
            jobs = await self.pull()
            if jobs:
                await self.results(*(answers(job) for job in jobs))
        return shown

    async def until_source(self, name: str, state: str) -> dict[str, Any]:
        """Until the last reading of the runbook's source had this outcome."""
        end = time.monotonic() + DEADLINE_SECONDS
        while (shown := (await self.get(f"/v1/runbooks/{name}"))["source"])["state"] != state:
            assert time.monotonic() < end, shown
            await asyncio.sleep(0.02)
        return dict(shown)

    async def until(self, batch: int, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + DEADLINE_SECONDS
        while not is_so(shown := await self.batch(batch)):
            assert time.monotonic() < end, shown
            await asyncio.sleep(0.02)
        return shown
