"""Jobs over a broker that is away, or that no consumer asks: nothing is lost, and no attempt is used up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from lucius.domain.attempt import Verdict
from lucius.domain.inputs import Acked, Resulted
from lucius.domain.job import Job, JobStatus
from lucius.domain.routing import LANE_TOPICS
from lucius.ports.bus import Bus, BusUnavailable, Delivery
from lucius.testing.engine_harness import QUICK, EngineHarness, Work

DAY_SECONDS = 86_400.0
SERVICES = ("ocr", "embedding")
TAKEN_AT_ONCE = 25


class Worker:
    """A service that takes directives in batches, and answers each to the engine."""

    def __init__(self, harness: EngineHarness, bus: Bus, service: str, lock_seconds: float) -> None:
        self._harness = harness
        self._bus = bus
        self._service = service
        self._lock_seconds = lock_seconds

    async def run(self) -> None:
        while True:
            try:
                taken = await self._bus.receive(LANE_TOPICS, self._service, TAKEN_AT_ONCE, self._lock_seconds, 0.5)
                taken = await self._harness.engine.drop_past(taken)
            except BusUnavailable:
                await asyncio.sleep(0.1)
                continue
            await asyncio.gather(*(self._answer(delivery) for delivery in taken))

    async def _answer(self, delivery: Delivery) -> None:
        work = Work(delivery.ref, msgspec.json.decode(delivery.body))
        result = Resulted(*work.about, verdict=Verdict.SUCCEEDED, artifacts=Raw(b"null"))
        for fact in (Acked(*work.about), result):
            assert await self._harness.engine.tell(work.job_id, None, fact) is not None


async def finished(harness: EngineHarness, job_ids: Sequence[str], seconds_max: float) -> list[Job]:
    deadline = asyncio.get_running_loop().time() + seconds_max
    while True:
        jobs = list((await harness.ledger.load(job_ids)).values())
        if all(job.is_terminal for job in jobs):
            return jobs
        assert asyncio.get_running_loop().time() < deadline, sum(not job.is_terminal for job in jobs)
        await asyncio.sleep(0.5)


async def ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    failures = [task.exception() for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not failures, failures


async def lose_broker_under_load(
    harness: EngineHarness,
    workers_bus: Bus,
    kill: Callable[[], None],
    start: Callable[[], None],
    *,
    jobs: int,
    outage_seconds: float,
    ack_timeout_seconds: float,
    lock_seconds: float,
    seconds_max: float,
) -> None:
    """A third of the jobs comes before the outage, a third during it, and a third after it."""
    policy = replace(QUICK, ack_timeout_seconds=ack_timeout_seconds, queue_timeout_seconds=DAY_SECONDS)
    await harness.start()
    workers = [asyncio.create_task(Worker(harness, workers_bus, name, lock_seconds).run()) for name in SERVICES]
    job_ids = []
    killed_at, back_at = jobs // 3, 2 * jobs // 3
    for number in range(jobs):
        job_ids.append(await harness.submit(steps=list(SERVICES), policy=policy, tenant_id=f"t{number % 8}"))
        if number == killed_at:
            await asyncio.to_thread(kill)
        elif killed_at < number <= back_at:
            await asyncio.sleep(outage_seconds / (back_at - killed_at))
            if number == back_at:
                await asyncio.to_thread(start)
    found = await finished(harness, job_ids, seconds_max)
    # What could not be settled during the outage is delivered once more, and dropped.
    await harness.until_messages_left(0, seconds_max)
    await ended(workers)
    assert {job.status for job in found} == {JobStatus.SUCCEEDED}
    assert {step.attempt_no for job in found for step in job.steps} == {1}


async def leave_directives_queued(
    harness: EngineHarness,
    workers_bus: Bus,
    *,
    queued: int,
    ack_timeout_seconds: float,
    lock_seconds: float,
    seconds_max: float,
) -> None:
    """A consumer works, stops for three ack timeouts, and works again."""
    policy = replace(QUICK, ack_timeout_seconds=ack_timeout_seconds, queue_timeout_seconds=DAY_SECONDS)
    await harness.start()
    worker = Worker(harness, workers_bus, "ocr", lock_seconds)
    working = asyncio.create_task(worker.run())
    first = await harness.submit(steps=["ocr"], policy=policy)
    await harness.until(first, JobStatus.SUCCEEDED)
    await ended([working])

    submitted = await asyncio.gather(
        *(harness.submit(steps=["ocr"], policy=policy, tenant_id=f"t{number % 16}") for number in range(queued))
    )
    await harness.until_messages_left(queued, seconds_max)
    async with asyncio.timeout(seconds_max):
        while "STILL_QUEUED" not in await harness.types(submitted[0]):
            await asyncio.sleep(0.1)
    await asyncio.sleep(2 * ack_timeout_seconds + 0.5)
    assert await harness.messages_left() == queued
    jobs = await harness.ledger.load(submitted)
    assert {job.current_step.attempt_no for job in jobs.values()} == {1}

    working = asyncio.create_task(worker.run())
    found = await finished(harness, submitted, seconds_max)
    await ended([working])
    assert {job.status for job in found} == {JobStatus.SUCCEEDED}
    assert {job.current_step.attempt_no for job in found} == {1}
