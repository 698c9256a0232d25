"""Engine suite, part four: what the engine stands on fails, the engine dies, two engines share a ledger."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec.structs import replace

from lucius.domain.effects import Outcome
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import Acked, CancelAsked, PauseAsked, ResumeAsked
from lucius.domain.job import RULES_VERSION, JobStatus
from lucius.domain.routing import LANE_TOPICS
from lucius.domain.step import StepStatus
from lucius.ports.engine import Started
from lucius.ports.ledger import Duplicate
from lucius.testing.engine_stand import PATIENCE_SECONDS, QUICK, EngineStand, Work
from lucius.testing.faults import FaultyBus
from lucius.testing.samples import ManualClock
from lucius.testing.scribe import Scribe


async def is_unavailable(answer: object) -> bool:
    """Whether this call fails because something LUCIUS stands on is away."""
    try:
        await answer  # type: ignore[misc]
    except InfrastructureError as error:
        return error.code == "UNAVAILABLE"
    return False


class EngineRecovery:
    # --- The bus -----------------------------------------------------------------------------------------------------

    async def test_bus_that_is_away_uses_up_no_attempt(self, stand: EngineStand) -> None:
        bus = await stand.start_on_faulty_bus()
        bus.is_down = True
        job_ids = [await stand.submit(steps=["ocr"], key=f"job {place}") for place in range(3)]
        await asyncio.sleep(1.0)
        for job_id in job_ids:
            step = (await stand.job(job_id)).current_step
            assert (step.status, step.attempt_no, step.attempts_counted) == (StepStatus.DISPATCHING, 1, 1)
        bus.is_down = False
        for _ in job_ids:
            work = await stand.take()
            assert work.body["attempt_no"] == 1
            await stand.succeed(work)
        for job_id in job_ids:
            await stand.until(job_id, JobStatus.SUCCEEDED)

    async def test_bus_that_goes_away_in_the_middle_stops_no_callback(self, stand: EngineStand) -> None:
        bus = await stand.start_on_faulty_bus()
        job_id = await stand.submit(steps=["ocr", "sis"])
        work = await stand.take()
        bus.is_down = True
        stand.expect(await stand.ack(work), Outcome.APPLIED)
        stand.expect(await stand.succeed(work), Outcome.APPLIED)
        await stand.until(job_id, lambda job: job.current_index == 1)
        await asyncio.sleep(0.3)
        bus.is_down = False
        job = await stand.finish(job_id)
        assert job.attempts_total == 2

    async def test_bus_that_is_slow_is_treated_as_away(self, stand: EngineStand) -> None:
        bus = await stand.start_on_faulty_bus()
        bus.delay_seconds = 1.0
        job_id = await stand.submit(steps=["ocr"])
        await asyncio.sleep(0.6)
        assert (await stand.job(job_id)).current_step.attempt_no == 1
        bus.delay_seconds = 0.0
        assert (await stand.finish(job_id)).attempts_total == 1

    async def test_publish_whose_answer_was_lost_is_delivered_once(self, stand: EngineStand) -> None:
        bus = await stand.start_on_faulty_bus()
        bus.lost_answers = 2
        job_id = await stand.submit(steps=["ocr"])
        work = await stand.take()
        await stand.until(job_id, StepStatus.INITIATED)
        assert await stand.finds_nothing()
        await stand.succeed(work)
        assert (await stand.until(job_id, JobStatus.SUCCEEDED)).attempts_total == 1

    async def test_message_the_bus_lost_is_sent_under_a_new_attempt(self, stand: EngineStand) -> None:
        bus = await stand.start_on_faulty_bus()
        bus.lost_messages = 1
        job_id = await stand.submit(steps=["ocr"], policy=replace(QUICK, ack_timeout_seconds=0.2))
        work = await stand.take()
        assert work.body["attempt_no"] == 2
        await stand.succeed(work)
        await stand.until(job_id, JobStatus.SUCCEEDED)

    async def test_directive_delivered_twice_is_done_once(self, stand: EngineStand) -> None:
        bus = FaultyBus(stand.bus)
        bus.doubles_deliveries = True
        await stand.start(bus=bus)
        job_id = await stand.submit(steps=["ocr"])
        taken = await bus.receive(LANE_TOPICS, "ocr", 1, 60.0, PATIENCE_SECONDS)
        first, second = (Work(each.ref, msgspec.json.decode(each.body)) for each in taken)
        stand.expect(await stand.ack(first), Outcome.APPLIED)
        stand.expect(await stand.ack(second), Outcome.DUPLICATE)
        stand.expect(await stand.succeed(second), Outcome.APPLIED)
        stand.expect(await stand.succeed(first), Outcome.DUPLICATE)
        await stand.until(job_id, JobStatus.SUCCEEDED)

    async def test_outbox_can_be_made_due_at_once(self, stand: EngineStand) -> None:
        bus = await stand.start_on_faulty_bus()
        bus.is_down = True
        job_id = await stand.submit(steps=["ocr"])
        await stand.until(job_id, StepStatus.DISPATCHING)
        bus.is_down = False
        assert await stand.engine.retry_outbox() in (0, 1)
        await stand.finish(job_id)
        assert await stand.engine.retry_outbox() == 0

    # --- The ledger --------------------------------------------------------------------------------------------------

    async def test_ledger_that_is_away_accepts_nothing(self, stand: EngineStand) -> None:
        ledger = await stand.start_on_faulty_ledger()
        job_id = await stand.submit(steps=["ocr"])
        work = await stand.take()
        before = await stand.until(job_id, StepStatus.INITIATED)
        ledger.is_down = True
        new = stand.new(key="refused")
        assert await is_unavailable(stand.engine.submit(new))
        assert await is_unavailable(stand.engine.tell(job_id, "acme", Acked(*work.about)))
        ledger.is_down = False
        assert await stand.ledger.load([new.fact.spec.job_id]) == {}
        assert await stand.job(job_id) == before
        assert isinstance(await stand.engine.submit(stand.new(key="refused", steps=["sis"])), Started)
        stand.expect(await stand.ack(work), Outcome.APPLIED)
        await stand.succeed(work)
        await stand.until(job_id, JobStatus.SUCCEEDED)

    async def test_job_changed_by_somebody_else_is_decided_again(self, stand: EngineStand) -> None:
        ledger = await stand.start_on_faulty_ledger()
        job_id = await stand.submit(steps=["ocr"])
        work = await stand.take()
        await stand.until(job_id, StepStatus.INITIATED)
        ledger.conflicts = 3
        stand.expect(await stand.ack(work), Outcome.APPLIED)
        ledger.conflicts = 3
        stand.expect(await stand.succeed(work), Outcome.APPLIED)
        await stand.until(job_id, JobStatus.SUCCEEDED)

    async def test_command_whose_answer_was_lost_is_found_when_sent_again(self, stand: EngineStand) -> None:
        ledger = await stand.start_on_faulty_ledger()
        ledger.lost_answers = 1
        first = stand.new(key="one", steps=["ocr"])
        assert await is_unavailable(stand.engine.submit(first))
        again = await stand.engine.submit(stand.new(key="one", steps=["ocr"]))
        assert isinstance(again, Duplicate)
        assert again.job_id == first.fact.spec.job_id
        await stand.finish(again.job_id)

    async def test_callback_whose_answer_was_lost_is_a_duplicate_when_sent_again(self, stand: EngineStand) -> None:
        ledger = await stand.start_on_faulty_ledger()
        job_id = await stand.submit(steps=["ocr"])
        work = await stand.take()
        await stand.until(job_id, StepStatus.INITIATED)
        ledger.lost_answers = 1
        answer = stand.engine.tell(job_id, "acme", Acked(*work.about))
        if stand.answers_at_once:
            assert await is_unavailable(answer)
        else:
            await answer  # It is received; whoever writes it meets the lost answer, and tries again.
            await stand.until(job_id, StepStatus.PROCESSING)
        stand.expect(await stand.ack(work), Outcome.DUPLICATE)
        await stand.succeed(work)
        await stand.until(job_id, JobStatus.SUCCEEDED)

    # --- The process -------------------------------------------------------------------------------------------------

    async def test_engine_that_has_stopped_accepts_nothing(self, stand: EngineStand) -> None:
        engine = await stand.start()
        await stand.stop(engine)
        new = stand.new()
        try:
            is_refused = await is_unavailable(engine.submit(new))
        except InfrastructureError:
            is_refused = True
        assert is_refused
        assert await stand.ledger.load([new.fact.spec.job_id]) == {}

    async def test_engine_stops_gracefully_under_load(self, stand: EngineStand) -> None:
        engine = await stand.start()
        answers = [engine.submit(stand.new(key=f"job {place}", steps=["ocr"])) for place in range(50)]
        await stand.stop(engine)
        started = [answer for answer in await asyncio.gather(*answers) if isinstance(answer, Started)]
        assert len(started) == 50
        assert len(await stand.ledger.load([answer.job_id for answer in started])) == 50
        await stand.start()
        for _ in started:
            await stand.succeed(await stand.take())
        for answer in started:
            await stand.until(answer.job_id, JobStatus.SUCCEEDED)

    async def test_engine_that_dies_loses_nothing(self, stand: EngineStand) -> None:
        engine = await stand.start()
        policy = replace(QUICK, execution_backoff_seconds=(0.5,))
        job_ids = [await stand.submit(key=f"job {place}", policy=policy) for place in range(6)]
        working, failed, done = [await stand.take() for _ in range(3)]
        await stand.ack(working)
        await stand.fail(failed)
        await stand.succeed(done)
        await stand.kill(engine)
        await stand.start()
        stand.expect(await stand.ack(working), Outcome.DUPLICATE)
        await stand.succeed(working)
        for _ in range(4):
            await stand.succeed(await stand.take("ocr"))
        for service in ("embedding", "sis"):
            for _ in job_ids:
                await stand.succeed(await stand.take(service))
        for job_id in job_ids:
            job = await stand.until(job_id, JobStatus.SUCCEEDED)
            assert job.attempts_total == (4 if job_id == failed.job_id else 3)

    async def test_engine_that_dies_between_commit_and_publish_loses_nothing(self, stand: EngineStand) -> None:
        bus = await stand.start_on_faulty_bus()
        bus.delay_seconds = 60.0
        job_ids = [await stand.submit(key=f"job {place}", steps=["ocr"]) for place in range(3)]
        await stand.kill(stand.engine)
        await stand.start()
        for _ in job_ids:
            work = await stand.take()
            assert work.body["attempt_no"] == 1
            await stand.succeed(work)
        for job_id in job_ids:
            await stand.until(job_id, JobStatus.SUCCEEDED)

    async def test_engine_that_dies_again_and_again_loses_nothing(self, stand: EngineStand) -> None:
        job_id = ""
        for place, service in enumerate(["ocr", "embedding", "sis"]):
            engine = await stand.start()
            if place == 0:
                job_id = await stand.submit()
            await stand.succeed(await stand.take(service))
            await stand.kill(engine)
        await stand.start()
        job = await stand.until(job_id, JobStatus.SUCCEEDED)
        assert job.attempts_total == 3

    # --- Neighbours --------------------------------------------------------------------------------------------------

    async def test_two_engines_share_the_work_on_one_job(self, stand: EngineStand) -> None:
        engines = [await stand.start(), await stand.start()]
        job_id = await stand.submit()
        for service in ("ocr", "embedding", "sis"):
            work = await stand.take(service)
            stand.expect(await stand.ack(work, engines[0]), Outcome.APPLIED)
            stand.expect(await stand.heartbeat(work, 0.5, engines[1]), Outcome.APPLIED)
            stand.expect(await stand.succeed(work, None, engines[1]), Outcome.APPLIED)
            stand.expect(await stand.succeed(work, None, engines[0]), Outcome.DUPLICATE)
        await stand.until(job_id, JobStatus.SUCCEEDED)

    async def test_engine_wakes_a_job_that_another_has_moved_on(self, stand: EngineStand) -> None:
        """The first engine knows the job as it was; what falls due since then is its to do all the same."""
        survivor = await stand.start()
        policy = replace(QUICK, lease_seconds=600.0, max_step_seconds=600.0, ack_timeout_seconds=0.3)
        new = stand.new(policy=policy, steps=["ocr", "sis"], deadline_seconds=3_600.0)
        assert isinstance(await survivor.submit(new), Started)
        work = await stand.take("ocr")
        await stand.ack(work, survivor)
        other = await stand.start()
        await stand.succeed(work, None, other)
        await stand.kill(other)
        first = await stand.take("sis")
        assert first.body["attempt_no"] == 1
        second = await stand.take("sis")
        assert second.body["attempt_no"] == 2
        await stand.succeed(second)
        await stand.until(new.fact.spec.job_id, JobStatus.SUCCEEDED)

    async def test_operation_is_decided_on_the_job_as_it_is_now(self, stand: EngineStand) -> None:
        first, second = await stand.start(), await stand.start()
        job_id = await stand.submit(steps=["ocr"])
        work = await stand.take()
        await stand.ack(work, first)
        for engine, fact, status in (
            (first, PauseAsked("operator"), JobStatus.PAUSED),
            (second, ResumeAsked("operator"), JobStatus.IN_PROGRESS),
            (first, PauseAsked("operator"), JobStatus.PAUSED),
            (second, CancelAsked("operator"), JobStatus.CANCELLING),
            (first, CancelAsked("operator"), JobStatus.CANCELLING),
        ):
            told = await engine.tell(job_id, "acme", fact)
            assert told is not None
            stand.expect(told, Outcome.APPLIED)
            await stand.until(job_id, status)
        await stand.succeed(work, None, second)
        await stand.until(job_id, JobStatus.CANCELLED)
        told = await first.tell(job_id, "acme", CancelAsked("operator"))
        assert told is not None
        stand.expect(told, Outcome.JOB_TERMINAL)

    async def test_job_that_cannot_be_decided_harms_no_other(self, stand: EngineStand) -> None:
        """A job of a later version's rules, found after a step back to this one."""
        clock = ManualClock(stand.clock.now())
        fact = stand.new(steps=["ocr"], rules_version=RULES_VERSION + 1, deadline_seconds=0.05).fact
        strange = await Scribe(stand.ledger, clock).create(fact=fact)
        engine = await stand.start()
        tells = [engine.tell(strange.job_id, None, PauseAsked("operator")) for _ in range(2)]
        submits = [engine.submit(stand.new(key=f"job {place}", steps=["ocr"])) for place in range(3)]
        answers = await asyncio.gather(*tells, *submits, return_exceptions=True)
        assert [type(answer) for answer in answers[2:]] == [Started] * 3
        for _ in range(3):
            await stand.succeed(await stand.take())

    async def test_caller_that_goes_away_harms_no_other(self, stand: EngineStand) -> None:
        engine = await stand.start()
        gone = [
            asyncio.ensure_future(engine.tell(stand.clock.job_id(), "acme", PauseAsked("operator"))),
            asyncio.ensure_future(engine.submit(stand.new(key="gone"))),
        ]
        for each in gone:
            each.cancel()
        answer = await asyncio.wait_for(engine.submit(stand.new(key="here", steps=["sis"])), PATIENCE_SECONDS)
        assert isinstance(answer, Started)
