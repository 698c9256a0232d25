"""Engine suite, part five: an attempt that has ended leaves no directive behind.

Each test ends an attempt in one way, and then checks what is still on the bus. A worker that has a message is dead: it
never answers.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from lucius.domain.effects import Outcome
from lucius.domain.job import JobStatus
from lucius.domain.routing import LANE_TOPICS
from lucius.domain.step import StepStatus
from lucius.ports.bus import Delivery, Message
from lucius.ports.observer import Observer
from lucius.testing.engine_harness import PATIENCE_SECONDS, QUICK, EngineHarness

SLOW = replace(QUICK, ack_backoff_seconds=(60.0,), execution_backoff_seconds=(60.0,))
"""Retries nothing while a test runs."""


class EnginePastDirectives:
    async def test_message_that_is_no_directive_is_a_dead_letter_and_stops_nobody(
        self, harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Anybody may publish on a broker; in the ledger's own database nobody else does."""
        refused: list[tuple[str, str]] = []
        monkeypatch.setattr(Observer, "message_refused", lambda _, topic, code: refused.append((topic, code)))
        await harness.start()
        if harness.ledger.enlists(harness.bus):
            assert await harness.bus.dead_letters(10) == []
            return
        named: dict[str, Any] = {"service": "ocr", "jobId": "j", "stepId": "s", "attempt_no": 1}
        run = uuid4()  # A broker that other tests have used remembers ids.
        strays: dict[str, tuple[bytes, dict[str, Any]]] = {
            f"no job {run}": (b"{}", {"service": "ocr"}),
            f"no number {run}": (b"{}", {**named, "attempt_no": "1"}),
            f"no JSON {run}": (b"not JSON", named),
            f"another job {run}": (b'{"jobId": "other"}', named),
        }
        sent = [
            Message(id=name, topic=LANE_TOPICS[0], body=body, properties=properties)
            for name, (body, properties) in strays.items()
        ]
        assert await harness.bus.publish(sent) == [None] * len(sent)
        job_id = await harness.submit(steps=["ocr"])
        wanted: list[Delivery] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not wanted or len(await harness.bus.dead_letters(10)) < len(strays):
                taken = await harness.bus.receive(LANE_TOPICS, "ocr", 10, 60.0, 0.5)
                wanted += await harness.engine.drop_past(taken)
        assert [delivery.properties["jobId"] for delivery in wanted] == [job_id]
        letters = {letter.ref.message_id: letter.reason for letter in await harness.bus.dead_letters(10)}
        assert letters.keys() == strays.keys()
        assert all(reason.startswith("MALFORMED: ") for reason in letters.values())
        assert refused == [(LANE_TOPICS[0], "MALFORMED")] * len(strays)

    async def test_ack_timeout_settles_a_directive_though_its_worker_may_still_answer(
        self, harness: EngineHarness
    ) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"], policy=replace(SLOW, ack_timeout_seconds=0.1))
        work = await harness.take()
        await harness.until(job_id, StepStatus.FAILED_RETRY)
        await harness.until_messages_left(0)
        harness.expect(await harness.ack(work), Outcome.APPLIED)
        await harness.succeed(work)
        await harness.until(job_id, JobStatus.SUCCEEDED)

    async def test_queue_timeout_settles_a_directive_that_still_waits(self, harness: EngineHarness) -> None:
        await harness.start()
        policy = replace(SLOW, ack_timeout_seconds=0.05, queue_timeout_seconds=0.2)
        job_id = await harness.submit(steps=["ocr"], policy=policy)
        await harness.until(job_id, StepStatus.FAILED_RETRY)
        await harness.until_messages_left(0)

    async def test_new_attempt_has_the_only_directive(self, harness: EngineHarness) -> None:
        await harness.start()
        job_id = await harness.submit(steps=["ocr"], policy=replace(QUICK, ack_timeout_seconds=0.3))
        await harness.take()
        await harness.until_attempt(job_id, 2)
        await harness.until_messages_left(1)
        second = await harness.take()
        assert second.body["attempt_no"] == 2
        await harness.succeed(second)
        await harness.until(job_id, JobStatus.SUCCEEDED)
        await harness.until_messages_left(0)

    async def test_redriven_job_has_the_only_directive(self, harness: EngineHarness) -> None:
        await harness.start()
        failed = await harness.submit(steps=["ocr"], policy=replace(QUICK, max_attempts=1, ack_timeout_seconds=0.1))
        await harness.take()
        await harness.until(failed, JobStatus.FAILED_FINAL)
        again = await harness.submit(steps=["ocr"], redrive_of=failed)
        await harness.until(again, StepStatus.INITIATED)
        await harness.until_messages_left(1)
        assert (await harness.take()).job_id == again

    async def test_work_that_timed_out_leaves_no_directive(self, harness: EngineHarness) -> None:
        await harness.start()
        policies = {"ocr": replace(SLOW, lease_seconds=0.1), "sis": replace(SLOW, max_step_seconds=0.1)}
        for name, policy in policies.items():
            job_id = await harness.submit(steps=[name], policy=policy)
            await harness.ack(await harness.take(name))
            await harness.until(job_id, StepStatus.FAILED_RETRY)
        await harness.until_messages_left(0)

    async def test_job_deadline_settles_its_directive(self, harness: EngineHarness) -> None:
        await harness.start()
        job_ids = [await harness.submit(steps=[name], deadline_seconds=0.5) for name in ("ocr", "sis")]
        await harness.take("sis")
        for job_id in job_ids:
            await harness.until(job_id, JobStatus.FAILED_FINAL)
        await harness.until_messages_left(0)

    async def test_directives_of_the_past_are_not_handed_out_though_settling_them_failed(
        self, harness: EngineHarness
    ) -> None:
        bus = await harness.start_on_faulty_bus()
        bus.loses_settling = True
        timed_out = await harness.submit(steps=["ocr"], policy=replace(SLOW, ack_timeout_seconds=0.1))
        past = [await harness.take()]
        await harness.until(timed_out, StepStatus.FAILED_RETRY)
        done = await harness.submit(steps=["ocr"])
        past.append(await harness.take())
        await harness.succeed(past[1])
        await harness.until(done, JobStatus.SUCCEEDED)
        await harness.until(done, lambda job: len(bus.settled_in_vain) >= len(past))
        current = await harness.submit(steps=["ocr"])
        await harness.until(current, StepStatus.INITIATED)
        await harness.bus.abandon([work.ref for work in past])
        taken = await harness.bus.receive(LANE_TOPICS, "ocr", 10, 60.0, PATIENCE_SECONDS)
        assert len(taken) == 3
        bus.loses_settling = False  # Not before: an engine may settle a directive once more.
        wanted = await harness.engine.drop_past(taken)
        assert [delivery.properties["jobId"] for delivery in wanted] == [current]
        assert await harness.messages_left() == 1
