"""Two instances of each service and one operator at work, over HTTP, while whatever drives jobs is away.

Everything that was delivered and answered is kept, so that a test can say afterwards whether anything was handed out
twice, lost or refused.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from types import TracebackType
from typing import Any

import aiohttp
from msgspec import Struct
from tests.crash.client import Client, envelope, submit

SERVICES = ("ocr", "embedding")
"""Those that are at work all the time. Nobody pulls the directives of `sis` before the operated jobs may go on."""
INSTANCES = ("one", "two")
KEPT_MAX = 6
"""Directives that an instance works on at a time."""
SUBMITS_AT_ONCE = 8
OPERATIONS = (("pause", "resume"), ("pause",), ("cancel",), ("pause", "resume", "cancel"))
IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")
PATIENCE_SECONDS = 120.0

Attempt = tuple[str, str, int]


class Delivered(Struct):
    """A directive that an instance was given, and what it heard of its callbacks."""

    instance: str
    asked_at: float
    acked_at: float = 0.0
    answers: dict[str, str] = {}
    sent: int = 0
    """Callbacks, counting those that had to be sent again because they were not answered."""


class Load:
    def __init__(self, client: Client, work_seconds_max: float, seed: int) -> None:
        self._client = client
        self._work_seconds_max = work_seconds_max
        self._rng = random.Random(seed)
        self._pullers: list[asyncio.Task[None]] = []
        self._work: set[asyncio.Task[None]] = set()
        self.deliveries: dict[Attempt, list[Delivered]] = {}
        self.operations: Counter[str] = Counter()
        """How often each operation was answered how: `pause 202`."""

    async def __aenter__(self) -> Load:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [*self._pullers, *self._work]
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        wrong = [end for end in ends if isinstance(end, Exception)]
        if wrong and error is None:
            raise wrong[0]

    async def submit(self, count: int, request_type: str, payload: dict[str, Any]) -> list[str]:
        at_once = asyncio.Semaphore(SUBMITS_AT_ONCE)

        async def one(place: int) -> str:
            command = envelope(f"{request_type}-{place}", request_type=request_type, payload=payload)
            async with at_once:
                return await submit(self._client, command)

        return list(await asyncio.gather(*(one(place) for place in range(count))))

    def begin(self, *services: str) -> None:
        self._pullers += [
            asyncio.create_task(self._pull(service, instance)) for service in services for instance in INSTANCES
        ]

    async def operate(self, job_ids: list[str]) -> dict[str, tuple[str, ...]]:
        """One of the sequences of operations on each job; which it was."""

        async def one(job_id: str, sequence: tuple[str, ...]) -> None:
            for operation in sequence:
                answer = await self._client.ask("POST", f"/v1/jobs/{job_id}:{operation}")
                self.operations[f"{operation} {answer.status}"] += 1

        plan = {job_id: OPERATIONS[place % len(OPERATIONS)] for place, job_id in enumerate(job_ids)}
        await asyncio.gather(*(one(job_id, sequence) for job_id, sequence in plan.items()))
        return plan

    async def ended(self, job_ids: list[str]) -> list[dict[str, Any]]:
        """The jobs once they have ended; raises what work has died of."""
        jobs = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            for job_id in job_ids:
                while (job := await self._client.read(f"/v1/jobs/{job_id}?wait_seconds=5"))["completed_at"] is None:
                    self.check()
                jobs.append(job)
        return jobs

    def check(self) -> None:
        for task in [*self._pullers, *self._work]:
            if task.done():
                task.result()

    async def idle(self) -> None:
        """Wait until no instance has work left."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self._work:
                self.check()
                await asyncio.sleep(0.05)

    async def _pull(self, service: str, instance: str) -> None:
        body = {"service": service, "max": 2, "wait_seconds": 1.0}
        kept: set[asyncio.Task[None]] = set()
        while True:
            asked_at = time.monotonic()
            answer = await self._client.ask("POST", "/v1/directives:pull", body)
            assert answer.status == 200, answer
            for directive in answer.body["directives"]:
                task = asyncio.create_task(self._do(directive, instance, asked_at))
                for tasks in (kept, self._work):
                    tasks.add(task)
                    task.add_done_callback(lambda done, tasks=tasks: _forget(tasks, done))  # type: ignore[misc]
            while len(kept) >= KEPT_MAX:
                await asyncio.sleep(0.02)

    async def _do(self, directive: dict[str, Any], instance: str, asked_at: float) -> None:
        delivered = Delivered(instance, asked_at)
        attempt = (directive["jobId"], directive["stepId"], directive["attempt_no"])
        self.deliveries.setdefault(attempt, []).append(delivered)
        await self._call_back(delivered, "ack", directive, acked_by=instance)
        delivered.acked_at = time.monotonic()
        if delivered.answers["ack"] not in {"APPLIED", "RECEIVED", "DUPLICATE"}:
            return
        await asyncio.sleep(self._rng.uniform(0.0, self._work_seconds_max))
        await self._call_back(delivered, "result", directive, status="SUCCEEDED")

    async def _call_back(self, delivered: Delivered, kind: str, directive: dict[str, Any], **fields: Any) -> None:
        """Keep the outcome, or the code of the error. What is not answered is sent again, as a service must."""
        body = {name: directive[name] for name in IDS} | fields
        token = directive["callback_token"]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                delivered.sent += 1
                try:
                    path = f"/v1/callbacks/{kind}"
                    answer = await self._client.once("POST", path, body, Lucius_Callback_Token=token)
                except (aiohttp.ClientError, OSError):
                    continue
                if answer.status != 503:
                    break
                await asyncio.sleep(0.1)
        delivered.answers[kind] = str(answer.body["outcome"] if answer.status == 200 else answer.body["code"])


def _forget(tasks: set[asyncio.Task[None]], done: asyncio.Task[None]) -> None:
    if not done.cancelled() and done.exception() is None:
        tasks.discard(done)
