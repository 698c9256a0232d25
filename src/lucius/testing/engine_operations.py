"""Engine suite, part three: cancel in every phase, pause and resume."""

from __future__ import annotations

from msgspec.structs import replace

from lucius.domain.attempt import DispatchStatus
from lucius.domain.effects import Outcome
from lucius.domain.job import JobStatus
from lucius.domain.step import StepStatus
from lucius.domain.time import after
from lucius.testing.engine_stand import QUICK, EngineStand


class EngineOperations:
    async def test_cancel_before_the_start_ends_the_job_at_once(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit(not_before=after(stand.clock.now(), 0.3))
        told = await stand.cancel(job_id)
        stand.expect(told, Outcome.APPLIED)
        job = await stand.until(job_id, JobStatus.CANCELLED)
        assert {step.status for step in job.steps} == {StepStatus.CANCELLED}
        assert await stand.finds_nothing()

    async def test_cancel_while_the_bus_is_away_publishes_nothing_ever(self, stand: EngineStand) -> None:
        bus = await stand.start_on_faulty_bus()
        bus.is_down = True
        job_id = await stand.submit()
        await stand.cancel(job_id)
        job = await stand.until(job_id, JobStatus.CANCELLED)
        assert job.steps[0].attempt is not None
        assert job.steps[0].attempt.dispatch is DispatchStatus.FAILED_FINAL
        bus.is_down = False
        assert await stand.finds_nothing()
        assert bus.published == 0

    async def test_cancel_of_a_directive_on_the_bus_waits_for_its_result(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit()
        await stand.until(job_id, StepStatus.INITIATED)
        await stand.cancel(job_id)
        await stand.until(job_id, JobStatus.CANCELLING)
        work = await stand.take()
        told = await stand.ack(work)
        stand.expect(told, Outcome.APPLIED)
        assert told.cancel_requested
        await stand.succeed(work)
        job = await stand.until(job_id, JobStatus.CANCELLED)
        assert [step.status for step in job.steps] == [StepStatus.SUCCEEDED, *[StepStatus.CANCELLED] * 2]
        assert await stand.finds_nothing("embedding")

    async def test_cancel_of_work_under_way_lets_it_finish(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit()
        work = await stand.take()
        assert not (await stand.ack(work)).cancel_requested
        await stand.until(job_id, StepStatus.PROCESSING)
        await stand.cancel(job_id)
        await stand.until(job_id, JobStatus.CANCELLING)
        assert (await stand.heartbeat(work, 0.5)).cancel_requested
        stand.expect(await stand.fail(work), Outcome.APPLIED)
        job = await stand.until(job_id, JobStatus.CANCELLED)
        assert job.attempts_total == 1

    async def test_cancel_of_work_that_never_answers_ends_with_its_lease(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit(policy=replace(QUICK, lease_seconds=0.3, execution_backoff_seconds=(60.0,)))
        await stand.ack(await stand.take())
        await stand.until(job_id, StepStatus.PROCESSING)
        await stand.cancel(job_id)
        job = await stand.until(job_id, JobStatus.CANCELLED)
        assert job.steps[0].status is StepStatus.CANCELLED

    async def test_cancel_during_backoff_ends_the_job_at_once(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit(policy=replace(QUICK, execution_backoff_seconds=(60.0,)))
        await stand.fail(await stand.take())
        await stand.until(job_id, StepStatus.FAILED_RETRY)
        await stand.cancel(job_id)
        await stand.until(job_id, JobStatus.CANCELLED)

    async def test_cancel_of_a_paused_job_ends_it_at_once(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit()
        await stand.pause(job_id)
        await stand.succeed(await stand.take())
        await stand.until(job_id, StepStatus.PENDING)
        await stand.cancel(job_id)
        await stand.until(job_id, JobStatus.CANCELLED)

    async def test_operations_that_the_state_forbids_are_refused(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit(steps=["ocr"])
        work = await stand.take()
        await stand.ack(work)
        await stand.until(job_id, StepStatus.PROCESSING)
        stand.expect(await stand.resume(job_id), Outcome.CONFLICT)
        await stand.cancel(job_id)
        await stand.until(job_id, JobStatus.CANCELLING)
        stand.expect(await stand.cancel(job_id), Outcome.APPLIED)
        stand.expect(await stand.pause(job_id), Outcome.CONFLICT)
        await stand.succeed(work)
        await stand.until(job_id, JobStatus.CANCELLED)
        for told in (await stand.cancel(job_id), await stand.pause(job_id), await stand.resume(job_id)):
            stand.expect(told, Outcome.JOB_TERMINAL)

    async def test_paused_job_starts_nothing_until_it_is_resumed(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit(steps=["ocr", "sis"])
        work = await stand.take()
        await stand.ack(work)
        stand.expect(await stand.pause(job_id), Outcome.APPLIED)
        await stand.succeed(work)
        job = await stand.until(job_id, StepStatus.PENDING)
        assert job.status is JobStatus.PAUSED
        assert await stand.finds_nothing("sis")
        stand.expect(await stand.resume(job_id), Outcome.APPLIED)
        await stand.finish(job_id)

    async def test_paused_job_still_retries_nothing(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit(steps=["ocr"])
        work = await stand.take()
        await stand.pause(job_id)
        await stand.fail(work)
        await stand.until(job_id, StepStatus.FAILED_RETRY)
        assert await stand.finds_nothing()
        await stand.resume(job_id)
        await stand.finish(job_id)

    async def test_paused_job_still_succeeds(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit(steps=["ocr"])
        work = await stand.take()
        await stand.pause(job_id)
        await stand.succeed(work)
        await stand.until(job_id, JobStatus.SUCCEEDED)
