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
from lucius.testing.engine_harness import PATIENCE_SECONDS, EngineHarness, Work
from lucius.testing.samples import STEP_IDS, global_limit, tenant_limit

START_SECONDS = 2.0
"""Until a job may start: longer than a busy machine needs to accept it and to look for its directive."""


class EngineRunning:
    async def test_submitted_job_is_in_the_ledger(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        new = harness.new(key="one")
        answer = await engine.submit(new)
        assert isinstance(answer, Started)
        assert answer.job_id == new.fact.spec.job_id
        job = await harness.job(answer.job_id)
        assert job.spec == new.fact.spec
        assert (await harness.ledger.inflight())["tenant:acme"] == 1

    async def test_job_goes_through_its_steps_and_succeeds(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        handed_on: dict[str, object] = {}
        for service in STEP_IDS:
            work = await harness.take(service)
            body = work.body
            assert (body["jobId"], body["stepId"], body["attempt_no"]) == (job_id, service, 1)
            assert body["previous"] == handed_on
            harness.expect(await harness.ack(work), Outcome.APPLIED)
            await harness.until(job_id, StepStatus.PROCESSING)
            harness.expect(await harness.succeed(work, {"of": service}), Outcome.APPLIED)
            handed_on[service] = {"of": service}
        job = await harness.until(job_id, JobStatus.SUCCEEDED)
        assert [step.status for step in job.steps] == [StepStatus.SUCCEEDED] * 3
        assert [msgspec.json.decode(step.artifacts) for step in job.steps] == list(handed_on.values())
        assert job.attempts_total == 3
        assert not await harness.scopes_in_use()

    async def test_trail_tells_the_whole_story(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"])
        await harness.until(job_id, StepStatus.INITIATED)
        work = await harness.take()
        await harness.ack(work)
        await harness.succeed(work)
        await harness.until(job_id, JobStatus.SUCCEEDED)
        story = ["ACCEPTED", "ATTEMPT_CREATED", "PUBLISHED", "ACK", "RESULT", "JOB_SUCCEEDED"]
        assert await harness.types(job_id) == story

    async def test_many_jobs_run_at_once(self, harness: EngineHarness) -> None:
        await harness.start()
        job_ids = await asyncio.gather(*(harness.submit(key=f"job {place}") for place in range(40)))
        ended: set[str] = set()

        async def worker(service: str) -> None:
            while len(ended) < len(job_ids):
                taken = await harness.bus.receive(LANE_TOPICS, service, 8, 60.0, 0.2)
                for delivery in taken:
                    work = Work(delivery.ref, msgspec.json.decode(delivery.body))
                    await asyncio.gather(harness.ack(work), harness.succeed(work))
                    if service == STEP_IDS[-1]:
                        ended.add(work.job_id)

        async with asyncio.timeout(8 * PATIENCE_SECONDS):
            await asyncio.gather(*(worker(service) for service in STEP_IDS for _ in range(2)))
        assert ended == set(job_ids)
        for job_id in job_ids:
            job = await harness.until(job_id, JobStatus.SUCCEEDED)
            assert job.attempts_total == 3

    async def test_directive_that_reached_a_service_is_not_delivered_again(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        work = await harness.take()
        await harness.ack(work)
        await harness.until(job_id, StepStatus.PROCESSING)
        for _ in range(100):
            if await harness.bus.renew([work.ref], 60.0) != [True]:
                break
            await asyncio.sleep(0.02)
        await harness.bus.abandon([work.ref])
        assert await harness.finds_nothing()

    async def test_job_waits_for_its_start_time(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(not_before=after(harness.clock.now(), START_SECONDS), steps=["ocr"])
        assert await harness.finds_nothing()
        assert (await harness.job(job_id)).status is JobStatus.QUEUED
        await harness.finish(job_id)

    async def test_job_that_ends_owes_its_webhook(self, harness: EngineHarness) -> None:
        await harness.start()
        url = "https://client.example/done"
        job_id = await harness.submit(steps=["ocr"], callback_urls={"completed": url})
        await harness.finish(job_id)
        now = harness.clock.now()
        [webhook] = await harness.ledger.webhooks_due(after(now, 1), "", 10, 10)
        assert (webhook.job_id, webhook.url, webhook.tenant_id) == (job_id, url, "acme")

    # --- Idempotency and limits --------------------------------------------------------------------------------------

    async def test_same_command_again_finds_the_same_job(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        first = harness.new(key="one", steps=["ocr"])
        await engine.submit(first)
        again = await engine.submit(harness.new(key="one", steps=["ocr"]))
        assert isinstance(again, Duplicate)
        assert (again.job_id, again.hash) == (first.fact.spec.job_id, first.fact.spec.idempotency_hash)
        await harness.finish(again.job_id)
        later = await engine.submit(harness.new(key="one"))
        assert isinstance(later, Duplicate)
        assert later.status == JobStatus.SUCCEEDED
        assert await harness.finds_nothing()

    async def test_many_equal_commands_at_once_make_one_job(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        answers = await asyncio.gather(*(engine.submit(harness.new(key="one")) for _ in range(30)))
        started = [answer for answer in answers if isinstance(answer, Started)]
        others = [answer for answer in answers if isinstance(answer, Duplicate)]
        assert (len(started), len(others)) == (1, 29)
        assert {answer.job_id for answer in others} == {started[0].job_id}
        work = await harness.take()
        assert work.job_id == started[0].job_id
        assert await harness.finds_nothing()

    async def test_limits_hold_exactly_and_leave_no_trace_of_the_refused(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        limit = tenant_limit(10)
        wishes = [harness.new(key=f"job {place}", limits=(limit, global_limit(100))) for place in range(30)]
        answers = await asyncio.gather(*(engine.submit(new) for new in wishes))
        assert sum(isinstance(answer, Started) for answer in answers) == 10
        assert answers.count(Saturated(limit)) == 20
        assert len(await harness.ledger.load([new.fact.spec.job_id for new in wishes])) == 10

    async def test_job_that_ends_makes_room(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        limits = (tenant_limit(1),)
        job_id = await harness.submit(steps=["ocr"], limits=limits)
        refused = harness.new(key="later", limits=limits)
        assert await engine.submit(refused) == Saturated(limits[0])
        await harness.finish(job_id)
        assert isinstance(await engine.submit(harness.new(key="later", limits=limits)), Started)

    # --- Callbacks ---------------------------------------------------------------------------------------------------

    async def test_callbacks_sent_twice_are_duplicates(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        work = await harness.take()
        await harness.ack(work)
        await harness.until(job_id, StepStatus.PROCESSING)
        harness.expect(await harness.ack(work), Outcome.DUPLICATE)
        await harness.succeed(work)
        await harness.until(job_id, lambda job: job.current_index == 1)
        harness.expect(await harness.succeed(work), Outcome.DUPLICATE)
        job = await harness.job(job_id)
        assert job.current_index == 1

    async def test_repeated_callbacks_are_recorded_once_and_write_nothing_more(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"])
        work = await harness.take()
        await harness.ack(work)
        await harness.until(job_id, StepStatus.PROCESSING)
        await harness.ack(work)
        await harness.until(job_id, lambda job: len(job.callbacks_recorded) == 1)
        revision = (await harness.job(job_id)).revision
        for reply in await asyncio.gather(*[harness.ack(work) for _ in range(50)]):
            harness.expect(reply, Outcome.DUPLICATE)
        assert (await harness.job(job_id)).revision == revision
        await harness.succeed(work)
        await harness.until(job_id, JobStatus.SUCCEEDED)
        for reply in await asyncio.gather(*[harness.succeed(work) for _ in range(50)]):
            harness.expect(reply, Outcome.DUPLICATE)
        for reply in await asyncio.gather(*[harness.heartbeat(work, 0.5) for _ in range(50)]):
            harness.expect(reply, Outcome.JOB_TERMINAL)
        trail = [(event.type, event.data.get("outcome")) for event in await harness.trail(job_id)]
        assert [(type_, str(outcome)) for type_, outcome in trail if outcome not in (None, "APPLIED")] == [
            ("ACK", "DUPLICATE"), ("RESULT", "DUPLICATE"), ("HEARTBEAT", "JOB_TERMINAL"),
        ]  # fmt: skip

    async def test_callbacks_in_one_turn_are_told_apart(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        work = await harness.take()
        replies = await asyncio.gather(
            harness.ack(work), harness.ack(work), harness.succeed(work), harness.succeed(work)
        )
        expected = [Outcome.APPLIED, Outcome.DUPLICATE, Outcome.APPLIED, Outcome.DUPLICATE]
        for each, outcome in zip(replies, expected, strict=True):
            harness.expect(each, outcome)
        await harness.until(job_id, lambda job: job.current_index == 1)

    async def test_result_counts_without_its_ack(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"])
        harness.expect(await harness.succeed(await harness.take()), Outcome.APPLIED)
        await harness.until(job_id, JobStatus.SUCCEEDED)

    async def test_callback_of_an_older_attempt_is_stale_and_recorded(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        old = await harness.take()
        await harness.fail(old)
        await harness.until_attempt(job_id, 2)
        for reply in (await harness.ack(old), await harness.heartbeat(old, 0.5), await harness.succeed(old)):
            harness.expect(reply, Outcome.STALE_ATTEMPT)
        work = await harness.take()
        assert work.body["attempt_no"] == 2
        await harness.ack(work)
        job = await harness.until(job_id, StepStatus.PROCESSING)
        assert job.current_index == 0
        stale = [event for event in await harness.trail(job_id) if event.data.get("outcome") == "STALE_ATTEMPT"]
        assert [event.type for event in stale] == ["ACK", "HEARTBEAT", "RESULT"]

    async def test_callback_of_a_lease_that_was_never_given_is_stale(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        job_id = await harness.submit()
        await harness.until(job_id, StepStatus.INITIATED)
        reply = await engine.tell(job_id, "acme", Acked("ocr", 1, "made up"))
        assert reply is not None
        harness.expect(reply, Outcome.STALE_ATTEMPT)
        assert (await harness.job(job_id)).current_step.status is StepStatus.INITIATED

    async def test_callback_of_an_unknown_step_is_not_found(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        reply = await engine.tell(await harness.submit(), "acme", Acked("nothing", 1, "lease"))
        assert reply is not None
        harness.expect(reply, Outcome.STEP_NOT_FOUND)

    async def test_callbacks_after_the_end_are_late_and_recorded(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit()
        work = await harness.take()
        await harness.ack(work)
        await harness.cancel(job_id)
        await harness.fail(work)
        await harness.until(job_id, JobStatus.CANCELLED)
        harness.expect(await harness.succeed(work), Outcome.LATE)
        harness.expect(await harness.heartbeat(work), Outcome.JOB_TERMINAL)
        assert (await harness.job(job_id)).status is JobStatus.CANCELLED
        outcomes = [event.data.get("outcome") for event in await harness.trail(job_id)]
        assert outcomes[-2:] == ["LATE", "JOB_TERMINAL"]

    async def test_nothing_is_told_to_a_job_of_another_tenant(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        job_id = await harness.submit()
        work = await harness.take()
        assert await engine.tell(job_id, "globex", Acked(*work.about)) is None
        assert await engine.tell(harness.clock.job_id(), None, Acked(*work.about)) is None
        reply = await engine.tell(job_id, None, Acked(*work.about))
        assert reply is not None
        harness.expect(reply, Outcome.APPLIED)

    async def test_waiting_for_a_change_ends_with_one(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        job_id = await harness.submit()
        work = await harness.take()
        await harness.until(job_id, StepStatus.INITIATED)
        assert await engine.wait_for_change(harness.clock.job_id(), 0.05) is False
        waiting = engine.wait_for_change(job_id, PATIENCE_SECONDS)
        await asyncio.sleep(0.02)
        await harness.ack(work)
        assert await waiting is True

    async def test_checks_find_nothing_wrong_with_an_engine_that_works(self, harness: EngineHarness) -> None:
        engine = await harness.start()
        assert [check.name for check in engine.checks() if not await check.look()] == []
