"""A small tenant behind another's flood on the same lane: how long it waits for its jobs, with and without the flood.

Subclass `EngineFlood` in a test module and provide the fixtures `harness` and `workers`, which says how many take
directives; `flood_jobs` says how large the flood is.

There are two waits: from submitting a job until a worker has its directive, and until the step's RESULT is recorded.
Both are held to the bound if there are as many workers as a service on either kit has by default. With few, the first
one is told only: without the flood it is the time that an idle machine takes for a message, a millisecond or two, and
behind it the time until one of the workers has done its work, on which no bus has an influence.

The machine changes speed while it is measured, so each wait behind a flood has a wait without it before and after, and
counts against the shorter one: a slow moment cannot make the flood look harmless. Each flood is cancelled before the
next wait. Every lane has delivered something before the first, so that nothing is being opened any more. The median of
the ratios counts; `ratio_max` is for a machine that does nothing else. Without fairness, a wait behind the flood is as
long as the flood, and that is noticed on any machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from statistics import median
from typing import NamedTuple

from lucius.domain.routing import LANE_COUNT, LANE_TOPICS
from lucius.testing.engine_fairness import FLOOD, lane_of, neighbour_of
from lucius.testing.engine_harness import PATIENCE_SECONDS, EngineHarness, read_work

WORKERS = 16
"""Of a service on either kit, unless it is told otherwise."""
WORK_SECONDS = 0.02
"""On average. Work that always took as long would make all workers end at the same moment, and whoever came just then
would wait for the whole of it: that says nothing about fairness."""
BETWEEN_SECONDS = 0.04
AT_ONCE = 200
END_SECONDS_MAX = 60.0
OVER = "the flood ended first: the small tenant has waited for all of it, or the flood is too small"


class _Times:
    """By job."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = {}
        self.ended: dict[str, float] = {}


class _Wait(NamedTuple):
    """95 % of the jobs wait no longer."""

    taken: float
    ended: float


class EngineFlood:
    flood_jobs = 10_000
    small_jobs = 20
    pairs = 3
    ratio_max = 10.0

    async def test_small_tenant_behind_a_flood_waits_ten_times_as_long_at_most(
        self, harness: EngineHarness, workers: int
    ) -> None:
        await harness.start()
        times = _Times()
        async with _working(harness, times, workers):
            await _use_every_lane(harness, times)
            calm, behind = [await self._wait(harness, times)], []
            for _ in range(self.pairs):
                behind.append(await self._wait_behind_flood(harness, times, workers))
                calm.append(await self._wait(harness, times))
        taken = _compared(workers, "until taken", [one.taken for one in calm], [one.taken for one in behind])
        ended = _compared(workers, "until the end", [one.ended for one in calm], [one.ended for one in behind])
        print(taken.told, ended.told, sep="\n")
        assert ended.ratio <= self.ratio_max, ended.told
        if workers >= WORKERS:
            assert taken.ratio <= self.ratio_max, taken.told

    async def _wait(self, harness: EngineHarness, times: _Times) -> _Wait:
        """The small tenant's p95."""
        return await _waits(harness, [neighbour_of(FLOOD)] * self.small_jobs, times)

    async def _wait_behind_flood(self, harness: EngineHarness, times: _Times, workers: int) -> _Wait:
        before = len(times.taken)
        flood = await self._submit_flood(harness)
        behind = await self._wait(harness, times)
        done = len(times.taken) - before - self.small_jobs
        assert done < self.flood_jobs, OVER
        assert done > workers, "the flood goes on as well"
        await _end(harness, [job_id for job_id in flood if job_id not in times.taken])
        return behind

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


async def _use_every_lane(harness: EngineHarness, times: _Times) -> None:
    """The first directive of a lane waits for its sender and its receiver to be opened, and all others with it: that
    takes the processor."""
    by_lane = {lane_of(name): name for name in (f"warm{place}" for place in range(100 * LANE_COUNT))}
    assert len(by_lane) == LANE_COUNT
    await _waits(harness, list(by_lane.values()), times)


async def _waits(harness: EngineHarness, tenants: Sequence[str], times: _Times) -> _Wait:
    """How long jobs wait, one for each name."""
    loop = asyncio.get_running_loop()
    submitted: dict[str, float] = {}
    for tenant in tenants:
        began = loop.time()
        submitted[await harness.submit(steps=["ocr"], tenant_id=tenant)] = began
        await asyncio.sleep(BETWEEN_SECONDS)
    deadline = loop.time() + PATIENCE_SECONDS
    while not submitted.keys() <= times.ended.keys():
        assert loop.time() < deadline, "some have not ended"
        await asyncio.sleep(BETWEEN_SECONDS)
    return _Wait(
        *(_p95([at[job_id] - began for job_id, began in submitted.items()]) for at in (times.taken, times.ended))
    )


@asynccontextmanager
async def _working(harness: EngineHarness, times: _Times, workers: int) -> AsyncIterator[None]:
    loop, dice = asyncio.get_running_loop(), Random(1)

    async def worker() -> None:
        while True:
            for delivery in await harness.bus.receive(LANE_TOPICS, "ocr", 1, 60.0, 1.0):
                work = read_work(delivery)
                times.taken[work.job_id] = loop.time()
                await harness.ack(work)
                await asyncio.sleep(WORK_SECONDS * dice.uniform(0.5, 1.5))
                await harness.succeed(work)
                times.ended[work.job_id] = loop.time()

    tasks = [asyncio.create_task(worker()) for _ in range(workers)]
    try:
        yield
    finally:
        failures = [task.exception() for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not failures, failures


class _Comparison(NamedTuple):
    ratio: float
    told: str


def _compared(workers: int, what: str, calm: Sequence[float], behind: Sequence[float]) -> _Comparison:
    """The median ratio, and a line that tells it."""
    shorter = [min(both) for both in pairwise(calm)]
    ratio = median(long / short for long, short in zip(behind, shorter, strict=True))
    waits = [f"{seconds * 1000:.1f}" for pair in zip(calm, behind, strict=False) for seconds in pair]
    listed = ", ".join([*waits, f"{calm[-1] * 1000:.1f}"])
    told = (
        f"{workers} workers, p95 in ms {what}, without the flood, behind it, and so on: {listed};"
        f" median ratio {ratio:.1f}"
    )
    return _Comparison(ratio, told)


def _p95(waits: list[float]) -> float:
    return sorted(waits)[round(0.95 * (len(waits) - 1))]
