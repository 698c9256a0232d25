"""Clients, services and operators at work while processes are replaced, and what must be true when they are done."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import aiohttp
from tests.cluster.away_load import Load
from tests.crash.audit import check_events, check_nothing_left
from tests.crash.client import Answer, Client, envelope, submit

SERVICES = ("ocr", "embedding", "sis")
WORK_SECONDS_MAX = 2.0
"""A step takes up to this long, so that jobs of three steps live through the replacement of a process."""
SUBMIT_PAUSE_SECONDS = 0.15
OPERATE_EVERY = 10
REPEAT_EVERY = 7
READS = (
    "/v1/jobs?limit=50", "/v1/jobs?status=IN_PROGRESS&limit=20", "/v1/admin/lanes", "/v1/admin/tenants",
    "/v1/admin/workers", "/v1/admin/dead-letters", "/v1/protocols",
)  # fmt: skip


class CountingClient(Client):
    """Writes down every answer that is the server's fault, and every connection that broke."""

    def __init__(self, port: int, rng: random.Random) -> None:
        super().__init__([port], rng)
        self.answers: Counter[int] = Counter()
        self.faults: list[str] = []
        self.broken: list[str] = []

    async def once(self, method: str, path: str, body: Any = None, port: int | None = None, **headers: str) -> Answer:
        try:
            answer = await super().once(method, path, body, port, **headers)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.broken.append(f"{method} {path}: {error!r}")
            raise
        self.answers[answer.status] += 1
        if answer.status >= 500:
            self.faults.append(f"{method} {path}: {answer.status} {answer.body}")
        return answer


class Traffic:
    def __init__(self, client: CountingClient, rng: random.Random) -> None:
        self._client = client
        self._rng = rng
        self._load = Load(client, WORK_SECONDS_MAX, rng.randrange(1 << 32))
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self.accepted: dict[str, set[str]] = {}

    async def __aenter__(self) -> Traffic:
        await self._load.__aenter__()
        self._load.begin(*SERVICES)
        self._tasks = [asyncio.create_task(self._repeat(act)) for act in (self._submit, self._read)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._load.__aexit__(kind, error, trace)

    async def in_flight(self) -> int:
        """How many jobs are not done at this moment."""
        listed = await self._client.read("/v1/jobs?status=IN_PROGRESS&limit=200")
        return len(listed["items"])

    async def until(self, jobs: int) -> None:
        """Until so many commands were accepted."""
        async with asyncio.timeout(120):
            while len(self.accepted) < jobs:
                self.check()
                await asyncio.sleep(0.1)

    def check(self) -> None:
        """Raise what any part of the traffic has died of."""
        self._load.check()
        for task in self._tasks:
            if task.done():
                task.result()

    async def finish(self) -> None:
        """No more commands; wait until everything that was accepted has ended."""
        self._is_over = True
        await asyncio.gather(*self._tasks)
        await self._load.ended([job_id for job_ids in self.accepted.values() for job_id in job_ids])
        await self._load.idle()

    async def _repeat(self, act: Callable[[], Awaitable[None]]) -> None:
        while not self._is_over:
            await act()

    async def _submit(self) -> None:
        number = len(self.accepted)
        key = f"job-{number}"
        payload = {"ocr": {"language": f"x-{number}"}, "embedding": {}, "sis": {"prompt_set": ["Who signed it?"]}}
        command = envelope(key, correlation_id=f"order-{number}", payload=payload)
        job_ids = self.accepted.setdefault(key, set())
        for _ in range(2 if number % REPEAT_EVERY == 0 else 1):
            job_ids.add(await submit(self._client, command))
        if number % OPERATE_EVERY == 0:
            for operation in ("pause", "resume"):
                answer = await self._client.ask("POST", f"/v1/jobs/{next(iter(job_ids))}:{operation}")
                assert answer.status in {200, 202}, answer
        await asyncio.sleep(SUBMIT_PAUSE_SECONDS)

    async def _read(self) -> None:
        await self._client.read(self._rng.choice(READS))
        if self.accepted:
            job_ids = self._rng.choice(list(self.accepted.values()))
            for job_id in list(job_ids):
                await self._client.read(f"/v1/jobs/{job_id}?wait_seconds=1")
                await self._client.read(f"/v1/jobs/{job_id}/events?limit=500")
        await asyncio.sleep(0.05)

    async def audit(self) -> None:
        """0 lost, 0 doubled, no fault of the server."""
        assert not self._client.faults, self._client.faults
        for key, job_ids in self.accepted.items():
            assert len(job_ids) == 1, f"command {key} became the jobs {job_ids}"
        jobs = await self._client.pages("/v1/jobs", "items")
        assert Counter(job["jobId"] for job in jobs) == Counter(one for ids in self.accepted.values() for one in ids)
        for job in jobs:
            assert job["status"] == "SUCCEEDED", job
            events = await self._client.pages(f"/v1/jobs/{job['jobId']}/events", "events")
            check_events(job, events)
            results = [event for event in events if event["type"] == "RESULT"]
            assert [one["outcome"] for one in results] == ["APPLIED"] * len(SERVICES), f"{job['jobId']}: {results}"
        doubled = {attempt: some for attempt, some in self._load.deliveries.items() if len(some) > 1}
        assert doubled == {}, "delivered twice"
        steps = Counter((job_id, step_id) for job_id, step_id, _ in self._load.deliveries)
        assert set(steps.values()) == {1}, f"tried again: {[step for step, count in steps.items() if count > 1]}"
        assert len(steps) == len(jobs) * len(SERVICES)
        await check_nothing_left(self._client)
