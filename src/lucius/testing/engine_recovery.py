"""Engine suite, part four: bus or ledger fails, the engine dies, two engines share a ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from lucius.domain.effects import Outcome
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import Acked, CancelAsked, PauseAsked, ResumeAsked
from lucius.domain.job import RETRIES_REFUSED_EARLY, RULES_VERSION, JobStatus
from lucius.domain.routing import LANE_TOPICS
from lucius.domain.step import StepStatus
from lucius.ports.engine import OutboxRetry, Started
from lucius.ports.ledger import Duplicate
from lucius.testing.engine_harness import PATIENCE_SECONDS, QUICK, EngineHarness, Work
from lucius.testing.faults import FaultyBus
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import ManualClock


async def is_unavailable(answer: object) -> bool:
    """Whether this call fails because something that LUCIUS depends on is unavailable."""
    try:
        await answer  # type: ignore[misc]
    except InfrastructureError as error:
        return error.code == "UNAVAILABLE"
    return False


async def _succeed_at_first_attempt(harness: EngineHarness, job_ids: Sequence[str]) -> None:
    for _ in job_ids:
        work = await harness.take()
        assert work.body["attempt_no"] == 1
        await harness.succeed(work)
    for job_id in job_ids:
        await harness.until(job_id, JobStatus.SUCCEEDED)


class EngineRecovery:
    # --- The bus -----------------------------------------------------------------------------------------------------

    async def test_bus_that_is_away_uses_up_no_attempt(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.is_down = True
        job_ids = [await harness.submit(steps=["ocr"], key=f"job {place}") for place in range(3)]
        await asyncio.sleep(1.0)
        for job_id in job_ids:
            step = (await harness.job(job_id)).current_step
            assert (step.status, step.attempt_no, step.attempts_counted) == (StepStatus.DISPATCHING, 1, 1)
        bus.is_down = False
        await _succeed_at_first_attempt(harness, job_ids)

    async def test_topic_that_takes_nothing_uses_up_no_attempt(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        new = harness.new(steps=["ocr"])
        job_id, bus.closed_topics = new.fact.spec.job_id, {new.fact.spec.routing.topic}
        await harness.engine.submit(new)
        await asyncio.sleep(1.0)
        step = (await harness.job(job_id)).current_step
        assert (step.status, step.attempt_no, step.attempts_counted) == (StepStatus.DISPATCHING, 1, 1)
        bus.closed_topics = set()
        await _succeed_at_first_attempt(harness, [job_id])

    async def test_bus_that_goes_away_in_the_middle_stops_no_callback(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        job_id = await harness.submit(steps=["ocr", "sis"])
        work = await harness.take()
        bus.is_down = True
        harness.expect(await harness.ack(work), Outcome.APPLIED)
        harness.expect(await harness.succeed(work), Outcome.APPLIED)
        await harness.until(job_id, lambda job: job.current_index == 1)
        await asyncio.sleep(0.3)
        bus.is_down = False
        job = await harness.finish(job_id)
        assert job.attempts_total == 2

    async def test_bus_that_is_slow_is_treated_as_away(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.delay_seconds = 1.0
        job_id = await harness.submit(steps=["ocr"])
        await asyncio.sleep(0.6)
        assert (await harness.job(job_id)).current_step.attempt_no == 1
        bus.delay_seconds = 0.0
        assert (await harness.finish(job_id)).attempts_total == 1

    async def test_publish_whose_answer_was_lost_is_delivered_once(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.lost_answers = 2
        job_id = await harness.submit(steps=["ocr"])
        work = await harness.take()
        await harness.until(job_id, StepStatus.INITIATED)
        assert await harness.finds_nothing()
        await harness.succeed(work)
        assert (await harness.until(job_id, JobStatus.SUCCEEDED)).attempts_total == 1

    async def test_message_the_bus_lost_is_sent_under_a_new_attempt(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.lost_messages = 1
        job_id = await harness.submit(steps=["ocr"], policy=replace(QUICK, ack_timeout_seconds=0.2))
        work = await harness.take()
        assert work.body["attempt_no"] == 2
        await harness.succeed(work)
        await harness.until(job_id, JobStatus.SUCCEEDED)

    async def test_directive_delivered_twice_is_done_once(self, harness: EngineHarness) -> None:
        bus = FaultyBus(harness.bus)
        bus.doubles_deliveries = True
        await harness.start(bus=bus)
        job_id = await harness.submit(steps=["ocr"])
        taken = await bus.receive(LANE_TOPICS, "ocr", 1, 60.0, PATIENCE_SECONDS)
        first, second = (Work(each.ref, msgspec.json.decode(each.body)) for each in taken)
        harness.expect(await harness.ack(first), Outcome.APPLIED)
        harness.expect(await harness.ack(second), Outcome.DUPLICATE)
        harness.expect(await harness.succeed(second), Outcome.APPLIED)
        harness.expect(await harness.succeed(first), Outcome.DUPLICATE)
        await harness.until(job_id, JobStatus.SUCCEEDED)

    async def test_outbox_can_be_made_due_at_once(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.is_down = True
        job_id = await harness.submit(steps=["ocr"])
        await harness.until(job_id, StepStatus.DISPATCHING)
        bus.is_down = False
        assert (await harness.engine.retry_outbox()).retried in (0, 1)
        await harness.finish(job_id)
        assert await harness.engine.retry_outbox() == OutboxRetry(0)

    async def test_directives_that_the_bus_refused_are_made_due_too(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.refusal_reason = "a test refuses it"
        patient = replace(QUICK, dispatch_backoff_seconds=(3_600.0,))
        job_ids = [await harness.submit(steps=["ocr"], policy=patient) for _ in range(3)]
        other = await harness.submit(steps=["ocr"], policy=patient, rules_version=RETRIES_REFUSED_EARLY - 1)
        for job_id in (*job_ids, other):
            await harness.until(job_id, StepStatus.FAILED_RETRY)
        bus.refusal_reason = None
        assert await harness.engine.retry_outbox() == OutboxRetry(3)
        for _ in job_ids:
            await harness.succeed(await harness.take())
        for job_id in job_ids:
            await harness.until(job_id, JobStatus.SUCCEEDED)
        assert await harness.engine.retry_outbox() == OutboxRetry(0)
        assert (await harness.job(other)).current_step.status is StepStatus.FAILED_RETRY

    # --- The ledger --------------------------------------------------------------------------------------------------

    async def test_ledger_that_is_away_accepts_nothing(self, harness: EngineHarness) -> None:
        ledger = await harness.start_on_faulty_ledger()
        job_id = await harness.submit(steps=["ocr"])
        work = await harness.take()
        before = await harness.until(job_id, StepStatus.INITIATED)
        ledger.is_down = True
        new = harness.new(key="refused")
        assert await is_unavailable(harness.engine.submit(new))
        assert await is_unavailable(harness.engine.tell(job_id, "acme", Acked(*work.about)))
        ledger.is_down = False
        assert await harness.ledger.load([new.fact.spec.job_id]) == {}
        assert await harness.job(job_id) == before
        assert isinstance(await harness.engine.submit(harness.new(key="refused", steps=["sis"])), Started)
        harness.expect(await harness.ack(work), Outcome.APPLIED)
        await harness.succeed(work)
        await harness.until(job_id, JobStatus.SUCCEEDED)

    async def test_job_changed_by_somebody_else_is_decided_again(self, harness: EngineHarness) -> None:
        ledger = await harness.start_on_faulty_ledger()
        job_id = await harness.submit(steps=["ocr"])
        work = await harness.take()
        await harness.until(job_id, StepStatus.INITIATED)
        ledger.conflicts = 3
        harness.expect(await harness.ack(work), Outcome.APPLIED)
        ledger.conflicts = 3
        harness.expect(await harness.succeed(work), Outcome.APPLIED)
        await harness.until(job_id, JobStatus.SUCCEEDED)

    async def test_command_whose_answer_was_lost_is_found_when_sent_again(self, harness: EngineHarness) -> None:
        ledger = await harness.start_on_faulty_ledger()
        ledger.lost_answers = 1
        first = harness.new(key="one", steps=["ocr"])
        assert await is_unavailable(harness.engine.submit(first))
        again = await harness.engine.submit(harness.new(key="one", steps=["ocr"]))
        assert isinstance(again, Duplicate)
        assert again.job_id == first.fact.spec.job_id
        await harness.finish(again.job_id)

    async def test_callback_whose_answer_was_lost_is_a_duplicate_when_sent_again(self, harness: EngineHarness) -> None:
        ledger = await harness.start_on_faulty_ledger()
        job_id = await harness.submit(steps=["ocr"])
        work = await harness.take()
        await harness.until(job_id, StepStatus.INITIATED)
        ledger.lost_answers = 1
        answer = harness.engine.tell(job_id, "acme", Acked(*work.about))
        if harness.answers_at_once:
            assert await is_unavailable(answer)
        else:
            await answer  # It is received; the writer does not get its answer, and tries again.
            await harness.until(job_id, StepStatus.PROCESSING)
        harness.expect(await harness.ack(work), Outcome.DUPLICATE)
        await harness.succeed(work)
        await harness.until(job_id, JobStatus.SUCCEEDED)

    # --- The process -------------------------------------------------------------------------------------------------

    async def test_engine_that_has_stopped_accepts_nothing(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        await harness.stop(engine)
        new = harness.new()
        try:
            is_refused = await is_unavailable(engine.submit(new))
        except InfrastructureError:
            is_refused = True
        assert is_refused
        assert await harness.ledger.load([new.fact.spec.job_id]) == {}

    async def test_engine_stops_gracefully_under_load(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        answers = [engine.submit(harness.new(key=f"job {place}", steps=["ocr"])) for place in range(50)]
        await harness.stop(engine)
        started = [answer for answer in await asyncio.gather(*answers) if isinstance(answer, Started)]
        assert len(started) == 50
        assert len(await harness.ledger.load([answer.job_id for answer in started])) == 50
        await harness.start()
        for _ in started:
            await harness.succeed(await harness.take())
        for answer in started:
            await harness.until(answer.job_id, JobStatus.SUCCEEDED)

    async def test_engine_that_dies_loses_nothing(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        policy = replace(QUICK, execution_backoff_seconds=(0.5,))
        job_ids = [await harness.submit(key=f"job {place}", policy=policy) for place in range(6)]
        working, failed, done = [await harness.take() for _ in range(3)]
        await harness.ack(working)
        await harness.fail(failed)
        await harness.succeed(done)
        await harness.kill(engine)
        await harness.start()
        harness.expect(await harness.ack(working), Outcome.DUPLICATE)
        await harness.succeed(working)
        for _ in range(4):
            await harness.succeed(await harness.take("ocr"))
        for service in ("embedding", "sis"):
            for _ in job_ids:
                await harness.succeed(await harness.take(service))
        for job_id in job_ids:
            job = await harness.until(job_id, JobStatus.SUCCEEDED)
            assert job.attempts_total == (4 if job_id == failed.job_id else 3)

    async def test_engine_that_dies_between_commit_and_publish_loses_nothing(self, harness: EngineHarness) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.delay_seconds = 60.0
        job_ids = [await harness.submit(key=f"job {place}", steps=["ocr"]) for place in range(3)]
        await harness.kill(harness.engine)
        await harness.start()
        await _succeed_at_first_attempt(harness, job_ids)

    async def test_engine_that_dies_again_and_again_loses_nothing(self, harness: EngineHarness) -> None:
        job_id = ""
        for place, service in enumerate(["ocr", "embedding", "sis"]):
            engine = await harness.start()
            if place == 0:
                job_id = await harness.submit()
            await harness.succeed(await harness.take(service))
            await harness.kill(engine)
        await harness.start()
        job = await harness.until(job_id, JobStatus.SUCCEEDED)
        assert job.attempts_total == 3

    # --- Neighbours --------------------------------------------------------------------------------------------------

    async def test_two_engines_share_the_work_on_one_job(self, harness: EngineHarness) -> None:
        engines = [await harness.start(), await harness.start()]
        job_id = await harness.submit()
        for service in ("ocr", "embedding", "sis"):
            work = await harness.take(service)
            harness.expect(await harness.ack(work, engines[0]), Outcome.APPLIED)
            harness.expect(await harness.heartbeat(work, 0.5, engines[1]), Outcome.APPLIED)
            harness.expect(await harness.succeed(work, None, engines[1]), Outcome.APPLIED)
            harness.expect(await harness.succeed(work, None, engines[0]), Outcome.DUPLICATE)
        await harness.until(job_id, JobStatus.SUCCEEDED)

    async def test_engine_wakes_a_job_that_another_has_moved_on(self, harness: EngineHarness) -> None:
        """The first engine has an old state of the job, and must still do what becomes due."""
        survivor = await harness.start()
        policy = replace(QUICK, lease_seconds=600.0, max_step_seconds=600.0, ack_timeout_seconds=0.3)
        new = harness.new(policy=policy, steps=["ocr", "sis"], deadline_seconds=3_600.0)
        assert isinstance(await survivor.submit(new), Started)
        work = await harness.take("ocr")
        await harness.ack(work, survivor)
        other = await harness.start()
        await harness.succeed(work, None, other)
        await harness.kill(other)
        first = await harness.take("sis")
        assert first.body["attempt_no"] == 1
        second = await harness.take("sis")
        assert second.body["attempt_no"] == 2
        await harness.succeed(second)
        await harness.until(new.fact.spec.job_id, JobStatus.SUCCEEDED)

    async def test_operation_is_decided_on_the_job_as_it_is_now(self, harness: EngineHarness) -> None:
        first, second = await harness.start(), await harness.start()
        job_id = await harness.submit(steps=["ocr"])
        work = await harness.take()
        await harness.ack(work, first)
        for engine, fact, status in (
            (first, PauseAsked("operator"), JobStatus.PAUSED),
            (second, ResumeAsked("operator"), JobStatus.IN_PROGRESS),
            (first, PauseAsked("operator"), JobStatus.PAUSED),
            (second, CancelAsked("operator"), JobStatus.CANCELLING),
            (first, CancelAsked("operator"), JobStatus.CANCELLING),
        ):
            reply = await engine.tell(job_id, "acme", fact)
            assert reply is not None
            harness.expect(reply, Outcome.APPLIED)
            await harness.until(job_id, status)
        await harness.succeed(work, None, second)
        await harness.until(job_id, JobStatus.CANCELLED)
        reply = await first.tell(job_id, "acme", CancelAsked("operator"))
        assert reply is not None
        harness.expect(reply, Outcome.JOB_TERMINAL)

    async def test_job_that_cannot_be_decided_harms_no_other(self, harness: EngineHarness) -> None:
        """A job with the rules of a later version, found after a downgrade to this one."""
        clock = ManualClock(harness.clock.now())
        fact = harness.new(steps=["ocr"], rules_version=RULES_VERSION + 1, deadline_seconds=0.05).fact
        strange = await LedgerDriver(harness.ledger, clock).create(fact=fact)
        engine = await harness.start()
        tells = [engine.tell(strange.job_id, None, PauseAsked("operator")) for _ in range(2)]
        submits = [engine.submit(harness.new(key=f"job {place}", steps=["ocr"])) for place in range(3)]
        answers = await asyncio.gather(*tells, *submits, return_exceptions=True)
        assert [type(answer) for answer in answers[2:]] == [Started] * 3
        for _ in range(3):
            await harness.succeed(await harness.take())

    async def test_caller_that_goes_away_harms_no_other(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        gone = [
            asyncio.ensure_future(engine.tell(harness.clock.job_id(), "acme", PauseAsked("operator"))),
            asyncio.ensure_future(engine.submit(harness.new(key="gone"))),
        ]
        for each in gone:
            each.cancel()
        answer = await asyncio.wait_for(engine.submit(harness.new(key="here", steps=["sis"])), PATIENCE_SECONDS)
        assert isinstance(answer, Started)
