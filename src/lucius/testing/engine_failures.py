"""Engine suite, part two: failures, timeouts and retries."""

from __future__ import annotations

from msgspec.structs import replace

from lucius.domain.attempt import Failure
from lucius.domain.effects import Outcome
from lucius.domain.job import Job, JobStatus
from lucius.domain.step import StepStatus
from lucius.ports.ledger import JobFilter
from lucius.testing.engine_harness import QUICK, EngineHarness


def error_code(job: Job) -> str | None:
    """The error of the newest failed attempt, as the job shows it."""
    error = job.error or job.current_step.error
    return error.code if error else None


def _due_after_sent(job: Job) -> int:
    """How many milliseconds after it was sent the current attempt is looked at again; 0 while it is unsent."""
    attempt = job.current_step.attempt
    return 0 if attempt is None or attempt.sent_at is None else (job.current_step.due_at or 0) - attempt.sent_at


class EngineFailures:
    knows_what_is_queued = True
    """Whether the bus supports `still_queued`."""

    async def _codes(self, harness: EngineHarness, job_id: str) -> list[str]:
        attempts = await harness.ledger.attempts(job_id)
        return [attempt.error.code if attempt.error else "" for attempt in attempts["ocr"]]

    async def test_failed_step_is_tried_again_under_a_new_lease(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"])
        first = await harness.take()
        await harness.ack(first)
        harness.expect(await harness.fail(first), Outcome.APPLIED)
        second = await harness.take()
        assert second.body["attempt_no"] == 2
        assert second.body["lease_id"] != first.body["lease_id"]
        assert second.body["lane"] == first.body["lane"]
        await harness.succeed(second)
        job = await harness.until(job_id, JobStatus.SUCCEEDED)
        assert job.attempts_total == 2
        assert await self._codes(harness, job_id) == ["BROKEN", ""]

    async def test_directive_that_the_bus_gave_up_on_is_a_missed_ack_at_once(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"], policy=replace(QUICK, max_attempts=2))
        for attempt_no in (1, 2):
            work = await harness.take()
            assert work.body["attempt_no"] == attempt_no
            await harness.until(job_id, lambda job: job.current_step.status is StepStatus.INITIATED)
            await harness.bus.dead_letter([work.ref], "a receiver could not read it")
        job = await harness.until(job_id, JobStatus.FAILED_FINAL)
        assert job.error is not None
        assert "a receiver could not read it" in job.error.message
        assert await self._codes(harness, job_id) == ["ACK_TIMEOUT", "ACK_TIMEOUT"]

    async def test_backoff_is_waited_for(self, harness: EngineHarness) -> None:
        await harness.start()
        policy = replace(QUICK, execution_backoff_seconds=(60.0,))
        job_id = await harness.submit(policy=policy)
        await harness.fail(await harness.take())
        job = await harness.until(job_id, StepStatus.FAILED_RETRY)
        assert job.wake_at is not None
        assert job.wake_at >= job.updated_at + 60_000
        assert await harness.finds_nothing()

    async def test_last_attempt_that_fails_ends_the_job_as_a_dead_letter(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        for attempt_no in (1, 2, 3):
            work = await harness.take()
            assert work.body["attempt_no"] == attempt_no
            await harness.fail(work)
        job = await harness.until(job_id, JobStatus.FAILED_FINAL)
        assert (job.dead_letter, error_code(job)) == (True, "BROKEN")
        assert [dead.job_id for dead in await harness.ledger.jobs(JobFilter(dead_letter=True), 10, None)] == [job_id]
        assert await harness.finds_nothing()

    async def test_failure_that_cannot_be_retried_ends_the_job(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        await harness.fail(await harness.take(), retryable=False, error=Failure("BAD_INPUT", "not a PDF"))
        job = await harness.until(job_id, JobStatus.FAILED_FINAL)
        assert (job.attempts_total, error_code(job)) == (1, "BAD_INPUT")

    async def test_rate_limited_attempt_waits_and_does_not_count(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"], policy=replace(QUICK, max_attempts=1))
        await harness.fail(await harness.take(), rate_limited_seconds=1.0)
        job = await harness.until(job_id, StepStatus.FAILED_RETRY)
        assert job.current_step.attempts_counted == 0
        work = await harness.take()
        assert work.body["attempt_no"] == 2
        await harness.succeed(work)
        await harness.until(job_id, JobStatus.SUCCEEDED)

    async def test_directive_that_nobody_acknowledges_is_tried_again(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"], policy=replace(QUICK, ack_timeout_seconds=0.1))
        first = await harness.take()
        second = await harness.take()
        assert (first.body["attempt_no"], second.body["attempt_no"]) == (1, 2)
        await harness.succeed(second)
        await harness.until(job_id, JobStatus.SUCCEEDED)
        assert (await self._codes(harness, job_id))[0] == "ACK_TIMEOUT"

    async def test_directive_that_nobody_ever_acknowledges_ends_the_job(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(policy=replace(QUICK, ack_timeout_seconds=0.05))
        for _ in range(3):
            await harness.take()
        job = await harness.until(job_id, JobStatus.FAILED_FINAL)
        assert (error_code(job), job.attempts_total) == ("ACK_TIMEOUT", 3)

    async def test_ack_after_its_deadline_revives_the_attempt(self, harness: EngineHarness) -> None:
        await harness.start()
        policy = replace(QUICK, ack_timeout_seconds=0.05, ack_backoff_seconds=(60.0,))
        job_id = await harness.submit(steps=["ocr"], policy=policy)
        work = await harness.take()
        await harness.until(job_id, StepStatus.FAILED_RETRY)
        harness.expect(await harness.ack(work), Outcome.APPLIED)
        await harness.until(job_id, StepStatus.PROCESSING)
        await harness.succeed(work)
        job = await harness.until(job_id, JobStatus.SUCCEEDED)
        assert job.attempts_total == 1

    async def test_backlog_burns_no_attempts(self, harness: EngineHarness) -> None:
        await harness.start()
        policy = replace(QUICK, ack_timeout_seconds=0.05)
        job_id = await harness.submit(steps=["ocr"], policy=policy)
        if not self.knows_what_is_queued:
            await harness.until_attempt(job_id, 2)
            return
        job = await harness.until(job_id, lambda job: _due_after_sent(job) > 500)
        assert (await harness.types(job_id)).count("STILL_QUEUED") == 1, "STILL_QUEUED is recorded once"
        assert (job.current_step.status, job.current_step.attempt_no) == (StepStatus.INITIATED, 1)

    async def test_backlog_ends_with_the_queue_timeout(self, harness: EngineHarness) -> None:
        await harness.start()
        policy = replace(QUICK, ack_timeout_seconds=0.05, queue_timeout_seconds=0.2)
        job_id = await harness.submit(policy=policy)
        await harness.until_attempt(job_id, 2)
        assert (await self._codes(harness, job_id))[0] == "ACK_TIMEOUT"

    async def test_lease_without_heartbeat_runs_out(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"], policy=replace(QUICK, lease_seconds=0.1))
        first = await harness.take()
        await harness.ack(first)
        second = await harness.take()
        assert second.body["attempt_no"] == 2
        harness.expect(await harness.succeed(first), Outcome.STALE_ATTEMPT)
        await harness.succeed(second)
        await harness.until(job_id, JobStatus.SUCCEEDED)
        assert (await self._codes(harness, job_id))[0] == "LEASE_EXPIRED"

    async def test_heartbeat_extends_the_lease_and_keeps_progress(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        work = await harness.take()
        await harness.ack(work)
        job = await harness.until(job_id, StepStatus.PROCESSING)
        for tenth in (3, 6):
            before = job.current_step.due_at
            assert before is not None
            harness.expect(await harness.heartbeat(work, tenth / 10), Outcome.APPLIED)
            job = await harness.until(job_id, lambda job: job.current_step.progress == tenth / 10)  # noqa: B023
            assert job.current_step.due_at is not None
            assert job.current_step.due_at >= before
            assert job.wake_at == job.current_step.due_at
        assert (await harness.types(job_id)).count("HEARTBEAT") == 2

    async def test_step_ends_with_its_time_whatever_heartbeats_say(self, harness: EngineHarness) -> None:
        await harness.start()
        policy = replace(QUICK, lease_seconds=60.0, max_step_seconds=0.2)
        job_id = await harness.submit(policy=policy)
        work = await harness.take()
        await harness.ack(work)
        await harness.heartbeat(work, 0.1)
        await harness.until_attempt(job_id, 2)
        assert (await self._codes(harness, job_id))[0] == "STEP_TIMEOUT"

    async def test_job_ends_with_its_deadline(self, harness: EngineHarness) -> None:
        await harness.start()
        untouched = await harness.submit(deadline_seconds=0.3)
        paused = await harness.submit(deadline_seconds=0.3)
        await harness.pause(paused)
        for job_id in (untouched, paused):
            job = await harness.until(job_id, JobStatus.FAILED_FINAL)
            assert error_code(job) == "DEADLINE_EXCEEDED"
            assert {step.status for step in job.steps} == {StepStatus.CANCELLED}

    async def test_directive_the_bus_refuses_is_tried_again_and_then_fails(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.refusal_reason = "too large for words"
        job_id = await harness.submit()
        job = await harness.until(job_id, JobStatus.FAILED_FINAL)
        assert (error_code(job), job.attempts_total) == ("PUBLISH_FAILED", 3)
        assert bus.published == 0

    async def test_directive_the_bus_refuses_once_goes_out_under_a_new_attempt(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.refusal_reason = "not now"
        job_id = await harness.submit(steps=["ocr"], policy=replace(QUICK, dispatch_backoff_seconds=(0.3,)))
        await harness.until(job_id, StepStatus.FAILED_RETRY)
        bus.refusal_reason = None
        work = await harness.take()
        assert work.body["attempt_no"] == 2
        await harness.succeed(work)
        await harness.until(job_id, JobStatus.SUCCEEDED)

    async def test_directive_too_large_for_the_bus_fails_its_job(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr", "sis"])
        work = await harness.take()
        await harness.succeed(work, "x" * (harness.bus.message_bytes_max + 1))
        job = await harness.until(job_id, JobStatus.FAILED_FINAL)
        assert error_code(job) == "PUBLISH_FAILED"
