"""Engine suite, part one: a command becomes a job, goes through its steps and ends."""

from __future__ import annotations

import asyncio

import msgspec

from lucius.domain.effects import Outcome
from lucius.domain.inputs import Acked
from lucius.domain.job import JobStatus
from lucius.domain.routing import LANE_TOPICS
from lucius.domain.step import StepStatus
from lucius.domain.time import after
from lucius.ports.engine import Started
from lucius.ports.ledger import Duplicate, Saturated
from lucius.testing.engine_stand import PATIENCE_SECONDS, EngineStand, Work
from lucius.testing.samples import STEP_IDS, global_limit, tenant_limit


class EngineRunning:
    async def test_submitted_job_is_in_the_ledger(self, stand: EngineStand) -> None:
        engine = await stand.start()
        new = stand.new(key="one")
        answer = await engine.submit(new)
        assert isinstance(answer, Started)
        assert answer.job_id == new.fact.spec.job_id
        job = await stand.job(answer.job_id)
        assert job.spec == new.fact.spec
        assert (await stand.ledger.inflight())["tenant:acme"] == 1

    async def test_job_goes_through_its_steps_and_succeeds(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit()
        handed_on: dict[str, object] = {}
        for service in STEP_IDS:
            work = await stand.take(service)
            body = work.body
            assert (body["jobId"], body["stepId"], body["attempt_no"]) == (job_id, service, 1)
            assert body["previous"] == handed_on
            stand.expect(await stand.ack(work), Outcome.APPLIED)
            await stand.until(job_id, StepStatus.PROCESSING)
            stand.expect(await stand.succeed(work, {"of": service}), Outcome.APPLIED)
            handed_on[service] = {"of": service}
        job = await stand.until(job_id, JobStatus.SUCCEEDED)
        assert [step.status for step in job.steps] == [StepStatus.SUCCEEDED] * 3
        assert [msgspec.json.decode(step.artifacts) for step in job.steps] == list(handed_on.values())
        assert job.attempts_total == 3
        assert not {scope for scope, count in (await stand.ledger.inflight()).items() if count}

    async def test_trail_tells_the_whole_story(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit(steps=["ocr"])
        await stand.until(job_id, StepStatus.INITIATED)
        work = await stand.take()
        await stand.ack(work)
        await stand.succeed(work)
        await stand.until(job_id, JobStatus.SUCCEEDED)
        story = ["ACCEPTED", "ATTEMPT_CREATED", "PUBLISHED", "ACK", "RESULT", "JOB_SUCCEEDED"]
        assert await stand.types(job_id) == story

    async def test_many_jobs_run_at_once(self, stand: EngineStand) -> None:
        await stand.start()
        job_ids = await asyncio.gather(*(stand.submit(key=f"job {place}") for place in range(40)))
        ended: set[str] = set()

        async def worker(service: str) -> None:
            while len(ended) < len(job_ids):
                taken = await stand.bus.receive(LANE_TOPICS, service, 8, 60.0, 0.2)
                for delivery in taken:
                    work = Work(delivery.ref, msgspec.json.decode(delivery.body))
                    await asyncio.gather(stand.ack(work), stand.succeed(work))
                    if service == STEP_IDS[-1]:
                        ended.add(work.job_id)

        async with asyncio.timeout(8 * PATIENCE_SECONDS):
            await asyncio.gather(*(worker(service) for service in STEP_IDS for _ in range(2)))
        assert ended == set(job_ids)
        for job_id in job_ids:
            job = await stand.until(job_id, JobStatus.SUCCEEDED)
            assert job.attempts_total == 3

    async def test_directive_that_reached_a_service_is_not_delivered_again(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit()
        work = await stand.take()
        await stand.ack(work)
        await stand.until(job_id, StepStatus.PROCESSING)
        for _ in range(100):
            if await stand.bus.renew([work.ref], 60.0) != [True]:
                break
            await asyncio.sleep(0.02)
        await stand.bus.abandon([work.ref])
        assert await stand.finds_nothing()

    async def test_job_waits_for_its_start_time(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit(not_before=after(stand.clock.now(), 0.5), steps=["ocr"])
        assert await stand.finds_nothing()
        assert (await stand.job(job_id)).status is JobStatus.QUEUED
        await stand.finish(job_id)

    async def test_job_that_ends_owes_its_webhook(self, stand: EngineStand) -> None:
        await stand.start()
        url = "https://client.example/done"
        job_id = await stand.submit(steps=["ocr"], callback_urls={"completed": url})
        await stand.finish(job_id)
        now = stand.clock.now()
        [webhook] = await stand.ledger.webhooks_due(after(now, 1), 10, after(now, 60))
        assert (webhook.job_id, webhook.url, webhook.tenant_id) == (job_id, url, "acme")

    # --- Idempotency and limits --------------------------------------------------------------------------------------

    async def test_same_command_again_finds_the_same_job(self, stand: EngineStand) -> None:
        engine = await stand.start()
        first = stand.new(key="one", steps=["ocr"])
        await engine.submit(first)
        again = await engine.submit(stand.new(key="one", steps=["ocr"]))
        assert isinstance(again, Duplicate)
        assert (again.job_id, again.hash) == (first.fact.spec.job_id, first.fact.spec.idempotency_hash)
        await stand.finish(again.job_id)
        later = await engine.submit(stand.new(key="one"))
        assert isinstance(later, Duplicate)
        assert later.status == JobStatus.SUCCEEDED
        assert await stand.finds_nothing()

    async def test_many_equal_commands_at_once_make_one_job(self, stand: EngineStand) -> None:
        engine = await stand.start()
        answers = await asyncio.gather(*(engine.submit(stand.new(key="one")) for _ in range(30)))
        started = [answer for answer in answers if isinstance(answer, Started)]
        others = [answer for answer in answers if isinstance(answer, Duplicate)]
        assert (len(started), len(others)) == (1, 29)
        assert {answer.job_id for answer in others} == {started[0].job_id}
        work = await stand.take()
        assert work.job_id == started[0].job_id
        assert await stand.finds_nothing()

    async def test_limits_hold_exactly_and_leave_no_trace_of_the_refused(self, stand: EngineStand) -> None:
        engine = await stand.start()
        limit = tenant_limit(10)
        wishes = [stand.new(key=f"job {place}", limits=(limit, global_limit(100))) for place in range(30)]
        answers = await asyncio.gather(*(engine.submit(new) for new in wishes))
        assert sum(isinstance(answer, Started) for answer in answers) == 10
        assert answers.count(Saturated(limit)) == 20
        assert len(await stand.ledger.load([new.fact.spec.job_id for new in wishes])) == 10

    async def test_job_that_ends_makes_room(self, stand: EngineStand) -> None:
        engine = await stand.start()
        limits = (tenant_limit(1),)
        job_id = await stand.submit(steps=["ocr"], limits=limits)
        refused = stand.new(key="later", limits=limits)
        assert await engine.submit(refused) == Saturated(limits[0])
        await stand.finish(job_id)
        assert isinstance(await engine.submit(stand.new(key="later", limits=limits)), Started)

    # --- Callbacks ---------------------------------------------------------------------------------------------------

    async def test_callbacks_sent_twice_are_duplicates(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit()
        work = await stand.take()
        await stand.ack(work)
        await stand.until(job_id, StepStatus.PROCESSING)
        stand.expect(await stand.ack(work), Outcome.DUPLICATE)
        await stand.succeed(work)
        await stand.until(job_id, lambda job: job.current_index == 1)
        stand.expect(await stand.succeed(work), Outcome.DUPLICATE)
        job = await stand.job(job_id)
        assert job.current_index == 1

    async def test_callbacks_in_one_turn_are_told_apart(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit()
        work = await stand.take()
        told = await asyncio.gather(stand.ack(work), stand.ack(work), stand.succeed(work), stand.succeed(work))
        expected = [Outcome.APPLIED, Outcome.DUPLICATE, Outcome.APPLIED, Outcome.DUPLICATE]
        for each, outcome in zip(told, expected, strict=True):
            stand.expect(each, outcome)
        await stand.until(job_id, lambda job: job.current_index == 1)

    async def test_result_counts_without_its_ack(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit(steps=["ocr"])
        stand.expect(await stand.succeed(await stand.take()), Outcome.APPLIED)
        await stand.until(job_id, JobStatus.SUCCEEDED)

    async def test_callback_of_an_older_attempt_is_stale_and_recorded(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit()
        old = await stand.take()
        await stand.fail(old)
        await stand.until_attempt(job_id, 2)
        for told in (await stand.ack(old), await stand.heartbeat(old, 0.5), await stand.succeed(old)):
            stand.expect(told, Outcome.STALE_ATTEMPT)
        work = await stand.take()
        assert work.body["attempt_no"] == 2
        await stand.ack(work)
        job = await stand.until(job_id, StepStatus.PROCESSING)
        assert job.current_index == 0
        stale = [event for event in await stand.trail(job_id) if event.data.get("outcome") == "STALE_ATTEMPT"]
        assert [event.type for event in stale] == ["ACK", "HEARTBEAT", "RESULT"]

    async def test_callback_of_a_lease_that_was_never_given_is_stale(self, stand: EngineStand) -> None:
        engine = await stand.start()
        job_id = await stand.submit()
        await stand.until(job_id, StepStatus.INITIATED)
        told = await engine.tell(job_id, "acme", Acked("ocr", 1, "made up"))
        assert told is not None
        stand.expect(told, Outcome.STALE_ATTEMPT)
        assert (await stand.job(job_id)).current_step.status is StepStatus.INITIATED

    async def test_callback_of_an_unknown_step_is_not_found(self, stand: EngineStand) -> None:
        engine = await stand.start()
        told = await engine.tell(await stand.submit(), "acme", Acked("nothing", 1, "lease"))
        assert told is not None
        stand.expect(told, Outcome.STEP_NOT_FOUND)

    async def test_callbacks_after_the_end_are_late_and_recorded(self, stand: EngineStand) -> None:
        await stand.start()
        job_id = await stand.submit()
        work = await stand.take()
        await stand.ack(work)
        await stand.cancel(job_id)
        await stand.fail(work)
        await stand.until(job_id, JobStatus.CANCELLED)
        stand.expect(await stand.succeed(work), Outcome.LATE)
        stand.expect(await stand.heartbeat(work), Outcome.JOB_TERMINAL)
        assert (await stand.job(job_id)).status is JobStatus.CANCELLED
        outcomes = [event.data.get("outcome") for event in await stand.trail(job_id)]
        assert outcomes[-2:] == ["LATE", "JOB_TERMINAL"]

    async def test_nothing_is_told_to_a_job_of_another_tenant(self, stand: EngineStand) -> None:
        engine = await stand.start()
        job_id = await stand.submit()
        work = await stand.take()
        assert await engine.tell(job_id, "globex", Acked(*work.about)) is None
        assert await engine.tell(stand.clock.job_id(), None, Acked(*work.about)) is None
        told = await engine.tell(job_id, None, Acked(*work.about))
        assert told is not None
        stand.expect(told, Outcome.APPLIED)

    async def test_waiting_for_a_change_ends_with_one(self, stand: EngineStand) -> None:
        engine = await stand.start()
        job_id = await stand.submit()
        work = await stand.take()
        await stand.until(job_id, StepStatus.INITIATED)
        assert await engine.wait_for_change(stand.clock.job_id(), 0.05) is False
        waiting = asyncio.create_task(engine.wait_for_change(job_id, PATIENCE_SECONDS))
        await asyncio.sleep(0.02)
        await stand.ack(work)
        assert await waiting is True

    async def test_health_answers(self, stand: EngineStand) -> None:
        engine = await stand.start()
        assert await engine.health()
