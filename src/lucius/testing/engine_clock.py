"""Engine suite for engines that use LUCIUS's clock: set an hour ahead and back again, it leaves no job waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from lucius.domain.job import Job, JobStatus
from lucius.domain.step import StepStatus
from lucius.domain.time import Instant, after
from lucius.testing.engine_harness import QUICK, EngineHarness, Work
from lucius.testing.samples import ShiftedClock

HOUR_SECONDS = 3_600.0
WEEK_SECONDS = 7 * 86_400.0


class EngineClock:
    async def test_retry_set_while_the_clock_was_ahead_comes_after_its_backoff(
        self, harness: EngineHarness, clock: ShiftedClock
    ) -> None:
        await harness.start()
        policy = replace(QUICK, execution_backoff_seconds=(1.0,))
        job_id = await harness.submit(steps=["ocr"], policy=policy, deadline_seconds=WEEK_SECONDS)
        work = await harness.take()
        with _ahead(clock):
            await harness.fail(work)
        await harness.succeed(await _take_second(harness))
        await harness.until(job_id, JobStatus.SUCCEEDED)
        assert "CLOCK_CORRECTED" in await harness.types(job_id)

    async def test_lease_set_while_the_clock_was_ahead_ends_in_time(
        self, harness: EngineHarness, clock: ShiftedClock
    ) -> None:
        await harness.start()
        policy = replace(QUICK, lease_seconds=0.5)
        job_id = await harness.submit(steps=["ocr"], policy=policy, deadline_seconds=WEEK_SECONDS)
        work = await harness.take()
        with _ahead(clock):
            await harness.ack(work)
        await harness.until_attempt(job_id, 2)

    async def test_lease_set_before_the_clock_was_ahead_is_left_alone(
        self, harness: EngineHarness, clock: ShiftedClock
    ) -> None:
        """Its heartbeat came while the clock was ahead; the step's time limit was set before."""
        await harness.start()
        policy = replace(QUICK, lease_seconds=7_200.0, max_step_seconds=7_200.0)
        job_id = await harness.submit(steps=["ocr"], policy=policy, deadline_seconds=WEEK_SECONDS)
        work = await harness.take()
        await harness.ack(work)
        before = await harness.until(job_id, StepStatus.PROCESSING)
        with _ahead(clock):
            await harness.heartbeat(work, 0.5)
        job = await harness.until(job_id, lambda job: job.updated_at <= clock.now())
        assert job.current_step.ends_by == before.current_step.ends_by == job.current_step.due_at

    async def test_ack_deadline_set_while_the_clock_was_ahead_ends_in_time(
        self, harness: EngineHarness, clock: ShiftedClock
    ) -> None:
        await harness.start()
        policy = replace(QUICK, ack_timeout_seconds=0.5)
        with _ahead(clock):
            job_id = await harness.submit(steps=["ocr"], policy=policy, deadline_seconds=WEEK_SECONDS)
            await harness.until(job_id, StepStatus.INITIATED)
        await harness.take()  # It is taken, and the worker never answers.
        await harness.until_attempt(job_id, 2)

    async def test_directive_claimed_while_the_clock_was_ahead_is_published(
        self, harness: EngineHarness, clock: ShiftedClock
    ) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.is_down = True
        job_id = await harness.submit(steps=["ocr"], deadline_seconds=WEEK_SECONDS)
        before = after(clock.now(), HOUR_SECONDS / 2)
        with _ahead(clock):
            await harness.until(job_id, lambda job: _is_claimed_after(job, before))
        bus.is_down = False
        assert (await harness.finish(job_id)).attempts_total == 1

    async def test_engine_that_died_while_the_clock_was_ahead_leaves_no_job_waiting(
        self, harness: EngineHarness, clock: ShiftedClock
    ) -> None:
        engine = await harness.start()
        policy = replace(QUICK, execution_backoff_seconds=(1.0,))
        job_id = await harness.submit(steps=["ocr"], policy=policy, deadline_seconds=WEEK_SECONDS)
        work = await harness.take()
        with _ahead(clock):
            await harness.fail(work)
            await harness.kill(engine)
        await harness.start()
        await harness.succeed(await _take_second(harness))
        await harness.until(job_id, JobStatus.SUCCEEDED)


async def _take_second(harness: EngineHarness) -> Work:
    """The directive of the second attempt. That of the first comes again if it was not settled while the clock was
    ahead: its lock has ended."""
    while (work := await harness.take()).about[1] == 1:
        pass
    assert work.about[1] == 2
    return work


@contextmanager
def _ahead(clock: ShiftedClock) -> Iterator[None]:
    clock.shift_seconds = HOUR_SECONDS
    yield
    clock.shift_seconds = 0.0


def _is_claimed_after(job: Job, moment: Instant) -> bool:
    attempt = job.current_step.attempt
    return attempt is not None and attempt.claimed_until > moment
