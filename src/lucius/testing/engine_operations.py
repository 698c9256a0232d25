"""Engine suite, part three: cancel in every phase, pause and resume."""

from __future__ import annotations

from msgspec.structs import replace

from lucius.domain.attempt import DispatchStatus
from lucius.domain.effects import Event, Outcome
from lucius.domain.inputs import CancelAsked, PauseAsked, ResumeAsked
from lucius.domain.job import JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.step import StepStatus
from lucius.domain.time import after
from lucius.testing.engine_harness import QUICK, EngineHarness, Work


async def _cancel_in_a_services_hands(harness: EngineHarness, policy: Policy = QUICK) -> tuple[str, Work]:
    """A job that is being cancelled while a service has its directive."""
    await harness.start()
    job_id = await harness.submit(policy=policy)
    work = await harness.take()
    await harness.until(job_id, StepStatus.INITIATED)
    await harness.cancel(job_id)
    await harness.until(job_id, JobStatus.CANCELLING)
    return job_id, work


class EngineOperations:
    async def test_cancel_before_the_start_ends_the_job_at_once(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(not_before=after(harness.clock.now(), 0.3))
        reply = await harness.cancel(job_id)
        harness.expect(reply, Outcome.APPLIED)
        job = await harness.until(job_id, JobStatus.CANCELLED)
        assert {step.status for step in job.steps} == {StepStatus.CANCELLED}
        assert await harness.finds_nothing()

    async def test_cancel_while_the_bus_is_away_publishes_nothing_ever(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.is_down = True
        job_id = await harness.submit()
        await harness.cancel(job_id)
        job = await harness.until(job_id, JobStatus.CANCELLED)
        assert job.steps[0].attempt is not None
        assert job.steps[0].attempt.dispatch is DispatchStatus.FAILED_FINAL
        bus.is_down = False
        assert await harness.finds_nothing()
        assert bus.published == 0

    async def test_cancel_of_a_directive_nobody_has_taken_ends_the_job_at_once(self, harness: EngineHarness) -> None:
        """Or with its ack timeout, on a bus that cannot withdraw."""
        await harness.start()
        job_id = await harness.submit(policy=harness.cancel_policy)
        await harness.until(job_id, StepStatus.INITIATED)
        reply = await harness.cancel(job_id)
        at_once = JobStatus.CANCELLED if harness.withdraws else JobStatus.CANCELLING
        assert not harness.answers_at_once or reply.status is at_once
        job = await harness.until(job_id, JobStatus.CANCELLED)
        assert {step.status for step in job.steps} == {StepStatus.CANCELLED}
        assert ("DIRECTIVE_WITHDRAWN" in await harness.types(job_id)) is harness.withdraws
        await harness.until_messages_left(0)
        assert await harness.finds_nothing()

    async def test_cancel_of_a_directive_in_a_services_hands_waits_for_its_result(self, harness: EngineHarness) -> None:
        job_id, work = await _cancel_in_a_services_hands(harness)
        reply = await harness.ack(work)
        harness.expect(reply, Outcome.APPLIED)
        assert reply.cancel_requested
        await harness.succeed(work)
        job = await harness.until(job_id, JobStatus.CANCELLED)
        assert [step.status for step in job.steps] == [StepStatus.SUCCEEDED, *[StepStatus.CANCELLED] * 2]
        assert await harness.finds_nothing("embedding")

    async def test_cancel_again_withdraws_what_could_not_be_withdrawn_before(self, harness: EngineHarness) -> None:
        """Or nothing more, on a bus that cannot withdraw: the job ends with its ack timeout."""
        job_id, work = await _cancel_in_a_services_hands(harness, harness.cancel_policy)
        await harness.bus.abandon([work.ref])
        await harness.cancel(job_id)
        await harness.until(job_id, JobStatus.CANCELLED)
        await harness.until_messages_left(0)

    async def test_cancel_ends_with_the_ack_timeout_where_nothing_is_withdrawn(self, harness: EngineHarness) -> None:
        """Because a dead worker has the directive, or because the bus cannot withdraw."""
        bus = await harness.start_on_faulty_bus()
        bus.withdraws_nothing = True
        policy = replace(QUICK, ack_timeout_seconds=0.5)
        taken, queued = [await harness.submit(steps=[name], policy=policy) for name in ("ocr", "sis")]
        await harness.take()
        for job_id in (taken, queued):
            await harness.cancel(job_id)
        for job_id in (taken, queued):
            await harness.until(job_id, JobStatus.CANCELLED)
        await harness.until_messages_left(0)

    async def test_cancel_in_the_middle_of_a_publish_withdraws_what_was_published(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.delay_seconds = 0.15
        job_id = await harness.submit(policy=harness.cancel_policy)
        await harness.cancel(job_id)
        await harness.until(job_id, JobStatus.CANCELLED)
        await harness.until_messages_left(0)

    async def test_cancel_of_work_under_way_lets_it_finish(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        work = await harness.take()
        assert not (await harness.ack(work)).cancel_requested
        await harness.until(job_id, StepStatus.PROCESSING)
        await harness.cancel(job_id)
        await harness.until(job_id, JobStatus.CANCELLING)
        assert (await harness.heartbeat(work, 0.5)).cancel_requested
        harness.expect(await harness.fail(work), Outcome.APPLIED)
        job = await harness.until(job_id, JobStatus.CANCELLED)
        assert job.attempts_total == 1

    async def test_cancel_of_work_that_never_answers_ends_with_its_lease(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(policy=replace(QUICK, lease_seconds=0.3, execution_backoff_seconds=(60.0,)))
        await harness.ack(await harness.take())
        await harness.until(job_id, StepStatus.PROCESSING)
        await harness.cancel(job_id)
        job = await harness.until(job_id, JobStatus.CANCELLED)
        assert job.steps[0].status is StepStatus.CANCELLED

    async def test_cancel_during_backoff_ends_the_job_at_once(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(policy=replace(QUICK, execution_backoff_seconds=(60.0,)))
        await harness.fail(await harness.take())
        await harness.until(job_id, StepStatus.FAILED_RETRY)
        await harness.cancel(job_id)
        await harness.until(job_id, JobStatus.CANCELLED)

    async def test_cancel_of_a_paused_job_ends_it_at_once(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        await harness.pause(job_id)
        await harness.succeed(await harness.take())
        await harness.until(job_id, StepStatus.PENDING)
        await harness.cancel(job_id)
        await harness.until(job_id, JobStatus.CANCELLED)

    async def test_force_cancel_ends_work_under_way_at_once(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        work = await harness.take()
        await harness.ack(work)
        await harness.until(job_id, StepStatus.PROCESSING)
        await harness.cancel(job_id)
        await harness.until(job_id, JobStatus.CANCELLING)
        reply = await harness.force_cancel(job_id)
        harness.expect(reply, Outcome.APPLIED)
        assert reply.status is JobStatus.CANCELLED
        job = await harness.until(job_id, JobStatus.CANCELLED)
        assert [step.status for step in job.steps] == [StepStatus.CANCELLED] * 3
        forced = next(event for event in await harness.trail(job_id) if event.type == "CANCEL_FORCED")
        assert (forced.data["by"], forced.data["reason"]) == ("operator", "it hangs")
        assert (await harness.heartbeat(work, 0.5)).outcome is Outcome.JOB_TERMINAL
        assert (await harness.succeed(work)).outcome is Outcome.LATE
        assert (await harness.force_cancel(job_id)).outcome is Outcome.JOB_TERMINAL
        assert await harness.finds_nothing("embedding")

    async def test_force_cancel_settles_a_directive_in_a_services_hands(self, harness: EngineHarness) -> None:
        """The service has taken it and has not acknowledged it: a cancel would wait for the ack deadline."""
        job_id, work = await _cancel_in_a_services_hands(harness)
        await harness.force_cancel(job_id)
        await harness.until(job_id, JobStatus.CANCELLED)
        await harness.until_messages_left(0)
        assert (await harness.ack(work)).outcome is Outcome.JOB_TERMINAL

    async def test_force_cancel_in_the_middle_of_a_publish_leaves_no_directive(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.delay_seconds = 0.15
        job_id = await harness.submit()
        await harness.force_cancel(job_id)
        await harness.until(job_id, JobStatus.CANCELLED)
        await harness.stop(harness.engine)  # It finishes what it publishes.
        engine = await harness.start()
        assert await engine.drop_past(await harness.receive()) == []
        await harness.until_messages_left(0)

    async def test_operations_that_the_state_forbids_are_refused(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"])
        work = await harness.take()
        await harness.ack(work)
        await harness.until(job_id, StepStatus.PROCESSING)
        harness.expect(await harness.resume(job_id), Outcome.CONFLICT)
        await harness.cancel(job_id)
        await harness.until(job_id, JobStatus.CANCELLING)
        harness.expect(await harness.cancel(job_id), Outcome.APPLIED)
        harness.expect(await harness.pause(job_id), Outcome.CONFLICT)
        await harness.succeed(work)
        await harness.until(job_id, JobStatus.CANCELLED)
        for reply in (await harness.cancel(job_id), await harness.pause(job_id), await harness.resume(job_id)):
            harness.expect(reply, Outcome.JOB_TERMINAL)

    async def test_paused_job_starts_nothing_until_it_is_resumed(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr", "sis"])
        work = await harness.take()
        await harness.ack(work)
        harness.expect(await harness.pause(job_id), Outcome.APPLIED)
        await harness.succeed(work)
        job = await harness.until(job_id, StepStatus.PENDING)
        assert job.status is JobStatus.PAUSED
        assert await harness.finds_nothing("sis")
        harness.expect(await harness.resume(job_id), Outcome.APPLIED)
        await harness.finish(job_id)

    async def test_operations_are_in_the_trail_with_their_keys_and_redrives_with_who_and_why(
        self, harness: EngineHarness
    ) -> None:
        await harness.start()
        new = harness.new(steps=["ocr"], policy=harness.cancel_policy)
        told = {"redrive_key": "redrive", "redriven_by": "operator", "redrive_reason": "why", "has_new_payload": True}
        await harness.engine.submit(replace(new, fact=replace(new.fact, **told)))
        job_id = new.fact.spec.job_id
        await harness.engine.tell(job_id, "acme", PauseAsked("operator", "pause"))
        await harness.until(job_id, JobStatus.PAUSED)
        await harness.engine.tell(job_id, "acme", ResumeAsked("operator", "resume"))
        await harness.until(job_id, lambda job: job.status is not JobStatus.PAUSED)
        await harness.engine.tell(job_id, "acme", CancelAsked("operator", None, "cancel"))
        await harness.until(job_id, JobStatus.CANCELLED)
        keys = {event.type: event.data["idempotency_key"] for event in await harness.trail(job_id) if _has_key(event)}
        assert keys == {"ACCEPTED": "redrive", "PAUSED": "pause", "RESUMED": "resume", "CANCEL_ASKED": "cancel"}
        first = (await harness.trail(job_id))[0].data
        assert (first["by"], first["reason"], first["new_payload"]) == ("operator", "why", True)

    async def test_paused_job_still_retries_nothing(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"])
        work = await harness.take()
        await harness.pause(job_id)
        await harness.fail(work)
        await harness.until(job_id, StepStatus.FAILED_RETRY)
        assert await harness.finds_nothing()
        await harness.resume(job_id)
        await harness.finish(job_id)

    async def test_paused_job_still_succeeds(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"])
        work = await harness.take()
        await harness.pause(job_id)
        await harness.succeed(work)
        await harness.until(job_id, JobStatus.SUCCEEDED)


def _has_key(event: Event) -> bool:
    return "idempotency_key" in event.data
