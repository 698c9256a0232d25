"""A small tenant behind another's flood on the same lane: how long its directives wait, with and without the flood.

Subclass `EngineFlood` in a test module and provide the fixture `harness`; `flood_jobs` says how large the flood is.

The machine changes speed while it is measured, so waits are measured in pairs: without the flood, then behind it. Each
pair has a flood of its own, which is cancelled before the next. All receivers are open before the first. The median of
the pairs' ratios counts. Where a machine does other things too, a wait of a few milliseconds is its noise as much as
the bus's time: a wait without the flood counts as `calm_seconds_min` at least. Without fairness, a wait behind the
flood is as long as the flood.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

from lucius.domain.routing import LANE_TOPICS
from lucius.testing.engine_fairness import FLOOD, neighbour_of
from lucius.testing.engine_harness import PATIENCE_SECONDS, EngineHarness, read_work

WORKERS = 4
WORK_SECONDS = 0.02
BETWEEN_SECONDS = 0.04
AT_ONCE = 200
END_SECONDS_MAX = 60.0
WARM_UP_JOBS = 4
"""Before anything is measured: the first directive of a lane may wait for its receiver to be opened."""
OVER = "the flood ended first: the small tenant has waited for all of it, or the flood is too small"


class EngineFlood:
    flood_jobs = 10_000
    small_jobs = 20
    pairs = 3
    calm_seconds_min = 0.0
    ratio_max = 10.0

    async def test_small_tenant_behind_a_flood_waits_ten_times_as_long_at_most(self, harness: EngineHarness) -> None:
        await harness.start()
        taken: dict[str, float] = {}
        async with _workers(harness, taken):
            await _waits(harness, neighbour_of(FLOOD), WARM_UP_JOBS, taken)
            pairs = [await self._measure(harness, taken) for _ in range(self.pairs)]
        told = ", ".join(f"{calm * 1000:.1f} -> {behind * 1000:.1f} ms" for calm, behind in pairs)
        ratio = median(behind / max(calm, self.calm_seconds_min) for calm, behind in pairs)
        print(f"p95 without the flood -> behind it: {told}; median ratio {ratio:.1f}")
        assert ratio <= self.ratio_max, told

    async def _measure(self, harness: EngineHarness, taken: dict[str, float]) -> tuple[float, float]:
        """The small tenant's p95 without the flood, and behind it."""
        small, before = neighbour_of(FLOOD), len(taken)
        calm = _p95(await _waits(harness, small, self.small_jobs, taken))
        flood = await self._submit_flood(harness)
        behind = _p95(await _waits(harness, small, self.small_jobs, taken))
        done = len(taken) - before - 2 * self.small_jobs
        assert done < self.flood_jobs, OVER
        assert done > WORKERS, "the flood goes on as well"
        await _end(harness, [job_id for job_id in flood if job_id not in taken])
        return calm, behind

    async def _submit_flood(self, harness: EngineHarness) -> list[str]:
        job_ids = []
        for first in range(0, self.flood_jobs, AT_ONCE):
            count = min(AT_ONCE, self.flood_jobs - first)
            new = [harness.new(steps=["ocr"], tenant_id=FLOOD) for _ in range(count)]
            await asyncio.gather(*(harness.engine.submit(one) for one in new))
            job_ids += [one.fact.spec.job_id for one in new]
        if not harness.bus.takes_turns:
            assert await harness.messages_left() <= self.flood_jobs // 4, "the flood waits in the ledger"
        return job_ids


async def _end(harness: EngineHarness, job_ids: list[str]) -> None:
    """Cancel what nobody has taken, newest first, so that nothing more is published; workers take the rest."""
    for last in range(len(job_ids), 0, -AT_ONCE):
        await asyncio.gather(*(harness.cancel(job_id) for job_id in job_ids[max(0, last - AT_ONCE) : last]))
    await harness.until_messages_left(0, END_SECONDS_MAX)
    await asyncio.sleep(2 * WORK_SECONDS)


async def _waits(harness: EngineHarness, tenant: str, count: int, taken: dict[str, float]) -> list[float]:
    """How long each of some jobs waits until a worker has it."""
    loop = asyncio.get_running_loop()
    submitted: dict[str, float] = {}
    for _ in range(count):
        began = loop.time()
        submitted[await harness.submit(steps=["ocr"], tenant_id=tenant)] = began
        await asyncio.sleep(BETWEEN_SECONDS)
    deadline = loop.time() + PATIENCE_SECONDS
    while not submitted.keys() <= taken.keys():
        assert loop.time() < deadline, "some were never taken"
        await asyncio.sleep(BETWEEN_SECONDS)
    return [taken[job_id] - began for job_id, began in submitted.items()]


@asynccontextmanager
async def _workers(harness: EngineHarness, taken: dict[str, float]) -> AsyncIterator[None]:
    async def worker() -> None:
        while True:
            for delivery in await harness.bus.receive(LANE_TOPICS, "ocr", 1, 60.0, 1.0):
                work = read_work(delivery)
                taken[work.job_id] = asyncio.get_running_loop().time()
                await harness.ack(work)
                await asyncio.sleep(WORK_SECONDS)
                await harness.succeed(work)

    tasks = [asyncio.create_task(worker()) for _ in range(WORKERS)]
    try:
        yield
    finally:
        failures = [task.exception() for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not failures, failures


def _p95(waits: list[float]) -> float:
    return sorted(waits)[round(0.95 * (len(waits) - 1))]
