"""Engine suite, part seven: on a bus on which tenants do not take turns, one tenant's flood waits in the ledger.

A bus on which they do take turns is used as if they did not, so that every ledger is held to this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from lucius.domain.job import Job, JobStatus
from lucius.domain.routing import LANE_COUNT, Mode, normal_form, route
from lucius.domain.step import StepStatus
from lucius.domain.waiting import waiting_on
from lucius.ports.bus import Bus
from lucius.ports.engine import Engine
from lucius.ports.ledger import Change, CommitOutcome
from lucius.testing.engine_harness import PATIENCE_SECONDS, QUICK, EngineHarness, Work
from lucius.testing.faults import FaultyBus, FaultyLedger

FLOOD = "acme"


class BusWithoutTurns(FaultyBus):
    takes_turns = False


class BusWithTurns(FaultyBus):
    """For which no cap is needed."""

    takes_turns = True


class CountingLedger(FaultyLedger):
    commits: list[int]
    """How many changes each commit had."""

    async def commit(self, changes: Sequence[Change]) -> list[CommitOutcome]:
        self.commits.append(len(changes))
        return await super().commit(changes)


def neighbour_of(tenant: str) -> str:
    """Another tenant on the same lane."""
    lane = lane_of(tenant)
    return next(name for name in (f"small{place}" for place in range(100 * LANE_COUNT)) if lane_of(name) == lane)


def lane_of(tenant: str) -> int:
    return route(normal_form(tenant), None, Mode.DEFAULT, "REQUEST", "").lane  # type: ignore[arg-type]


def burst_lane_of(tenant: str, doc_id: str) -> int:
    return route(tenant, doc_id, Mode.BURST, "REQUEST", "").lane  # type: ignore[arg-type]


def is_held(job: Job) -> bool:
    return job.current_step.attempt is not None and job.current_step.attempt.is_held


class EngineFairness:
    unacknowledged_max = 16
    """The engine's cap."""

    async def _start(self, harness: EngineHarness) -> Engine:
        return await harness.start(bus=self._without_turns(harness.bus))

    def _without_turns(self, bus: Bus) -> Bus:
        return BusWithoutTurns(bus) if bus.takes_turns else bus

    async def _flood(self, harness: EngineHarness, more: int, **wishes: object) -> tuple[list[str], list[str]]:
        """Jobs whose directives are on the bus, and jobs that are held, the oldest first."""
        count = self.unacknowledged_max + more
        job_ids = [await harness.submit(steps=["ocr"], **wishes) for _ in range(count)]
        for job_id in job_ids:
            await harness.until(job_id, lambda job: is_held(job) or job.current_step.status is StepStatus.INITIATED)
        await harness.until_messages_left(self.unacknowledged_max)
        jobs = await harness.ledger.load(job_ids)
        held = sorted(job_id for job_id in job_ids if is_held(jobs[job_id]))
        assert len(held) == more, "the rest waits in the ledger"
        return [job_id for job_id in job_ids if job_id not in held], held

    async def _work_off(self, harness: EngineHarness, job_ids: list[str], engine: Engine | None = None) -> list[Job]:
        for _ in job_ids:
            work = await harness.take()
            await self._answer(harness, work, engine)
        return [await harness.until(job_id, JobStatus.SUCCEEDED) for job_id in job_ids]

    async def _answer(self, harness: EngineHarness, work: Work, engine: Engine | None = None) -> None:
        await harness.ack(work, engine)
        await harness.succeed(work, engine=engine)

    async def test_flood_waits_in_the_ledger_and_another_tenant_does_not(self, harness: EngineHarness) -> None:
        await self._start(harness)
        _, held = await self._flood(harness, 3)
        waits = waiting_on(await harness.job(held[0]))
        assert waits is not None
        assert (waits.what, FLOOD in waits.sentence) == ("TENANT_CAP", True)
        other = await harness.submit(steps=["ocr"], tenant_id=neighbour_of(FLOOD))
        assert not is_held(await harness.until(other, StepStatus.INITIATED))

    async def test_an_ack_lets_the_oldest_of_those_that_wait_go(self, harness: EngineHarness) -> None:
        await self._start(harness)
        _, held = await self._flood(harness, 3)
        await harness.ack(await harness.take())
        await harness.until(held[0], StepStatus.INITIATED)
        assert [is_held(await harness.job(job_id)) for job_id in held] == [False, True, True]
        newest = await harness.submit(steps=["ocr"])
        await harness.until(newest, is_held)  # Nobody overtakes those that wait.
        await harness.ack(await harness.take())
        await harness.until(held[1], StepStatus.INITIATED)

    async def test_everything_that_waits_is_done_in_the_end(self, harness: EngineHarness) -> None:
        await self._start(harness)
        published, held = await self._flood(harness, 2 * self.unacknowledged_max)
        jobs = await self._work_off(harness, published + held)
        assert {job.attempts_total for job in jobs} == {1}

    async def test_burst_is_capped_on_each_lane(self, harness: EngineHarness) -> None:
        """It spreads a tenant's documents over the lanes; those that meet on one lane count together."""
        await self._start(harness)
        lane = burst_lane_of(FLOOD, "d0")
        docs = [f"d{place}" for place in range(LANE_COUNT * 50)]
        meeting = [doc for doc in docs if burst_lane_of(FLOOD, doc) == lane][: self.unacknowledged_max + 2]
        elsewhere = [doc for doc in docs if burst_lane_of(FLOOD, doc) != lane][:2]
        submitted = [await self._burst(harness, doc) for doc in meeting]
        published, (first, second) = submitted[:-2], sorted(submitted[-2:])
        for job_id in published:
            await harness.until(job_id, StepStatus.INITIATED)
        for job_id in (first, second):
            await harness.until(job_id, is_held)
        for doc in elsewhere:
            await harness.until(await self._burst(harness, doc), StepStatus.INITIATED)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (work := await harness.take()).job_id not in published:
                pass
        await harness.ack(work)
        await harness.until(first, StepStatus.INITIATED)
        assert is_held(await harness.job(second))

    async def _burst(self, harness: EngineHarness, doc_id: str) -> str:
        job_id = await harness.submit(steps=["ocr"], mode=Mode.BURST, doc_id=doc_id)
        await harness.until(job_id, lambda job: is_held(job) or job.current_step.status is StepStatus.INITIATED)
        return job_id

    async def test_an_ack_costs_no_commit_more_because_of_the_cap(self, harness: EngineHarness) -> None:
        capped = await self._commits_of_acks(harness, BusWithoutTurns(harness.bus))
        assert capped
        assert capped == await self._commits_of_acks(harness, BusWithTurns(harness.bus))

    async def _commits_of_acks(self, harness: EngineHarness, bus: Bus) -> list[int]:
        """The commits of as many ACKs as a tenant may have directives, one after the other."""
        ledger = CountingLedger(harness.ledger)
        ledger.commits = []
        engine = await harness.start(bus=bus, ledger=ledger)
        job_ids = [await harness.submit(steps=["ocr"]) for _ in range(self.unacknowledged_max)]
        for job_id in job_ids:
            await harness.until(job_id, StepStatus.INITIATED)
        ledger.commits.clear()
        for _ in job_ids:
            work = await harness.take()
            await harness.ack(work)
            await harness.until(work.job_id, StepStatus.PROCESSING)
        await harness.stop(engine)
        return ledger.commits

    async def test_waiting_for_the_cap_uses_up_no_attempt(self, harness: EngineHarness) -> None:
        await self._start(harness)
        policy = replace(QUICK, ack_timeout_seconds=0.15)
        _, held = await self._flood(harness, 2, policy=policy)
        await asyncio.sleep(4 * policy.ack_timeout_seconds)
        for job_id in held:
            job = await harness.job(job_id)
            assert (job.attempts_total, is_held(job)) == (1, True)

    async def test_count_is_taken_from_the_ledger_after_a_crash(self, harness: EngineHarness) -> None:
        engine = await self._start(harness)
        published, held = await self._flood(harness, 2)
        await harness.kill(engine)
        await self._start(harness)
        newest = await harness.submit(steps=["ocr"])
        await harness.until(newest, is_held)
        await self._work_off(harness, [*published, *held, newest])

    async def test_processes_share_the_work_of_a_flood(self, harness: EngineHarness) -> None:
        first, second = await self._start(harness), await self._start(harness)
        new = [harness.new(steps=["ocr"]) for _ in range(3 * self.unacknowledged_max)]
        for place, one in enumerate(new):
            await (first, second)[place % 2].submit(one)
        job_ids = [one.fact.spec.job_id for one in new]
        # What one of them has published is acknowledged by the other.
        await asyncio.wait_for(self._work_off(harness, job_ids, first), 2 * PATIENCE_SECONDS)

    async def test_job_that_waits_for_the_cap_can_be_cancelled(self, harness: EngineHarness) -> None:
        await self._start(harness)
        _, held = await self._flood(harness, 2)
        await harness.cancel(held[0])
        await harness.until(held[0], JobStatus.CANCELLED)
        await harness.ack(await harness.take())
        await harness.until(held[1], StepStatus.INITIATED)
