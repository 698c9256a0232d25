"""A callback leaves one event, also where Temporal runs a workflow task again whose writes stand already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.temporal.away_harness import AwayHarness

from lucius.domain.attempt import Verdict
from lucius.domain.effects import Event, Outcome
from lucius.domain.inputs import Acked, CancelAsked, DeadlinePassed, HeartbeatSeen, Input, PauseAsked, Resulted
from lucius.domain.job import JobStatus
from lucius.domain.step import StepStatus
from lucius.engines.temporal.already_decided import split_decided

WRITE_SECONDS = 0.4


@pytest.fixture(params=["bus inside", "bus outside"])
async def harness(
    request: pytest.FixtureRequest, temporal_address: str, postgres_url: str
) -> AsyncIterator[AwayHarness]:
    async with AwayHarness.open(temporal_address, postgres_url, request.param == "bus outside") as harness:
        yield harness


async def told_of(harness: AwayHarness, job_id: str) -> list[tuple[str, str | None]]:
    """Callbacks and operations in the trail, with what came of the callbacks."""
    kinds = {"ACK", "HEARTBEAT", "RESULT", "PAUSED", "RESUMED", "CANCEL_ASKED"}
    return [(event.type, event.data.get("outcome")) for event in await harness.trail(job_id) if event.type in kinds]


async def test_callback_whose_write_lost_its_answer_leaves_one_event(harness: AwayHarness) -> None:
    await harness.start_api()
    ledger = await harness.start_worker()
    job_id = await harness.submit(steps=["ocr"])
    work = await harness.take()
    await harness.until(job_id, StepStatus.INITIATED)
    ledger.lost_answers = 1
    await harness.ack(work)
    await harness.until(job_id, StepStatus.PROCESSING)
    ledger.lost_answers = 1
    await harness.succeed(work)
    await harness.until(job_id, JobStatus.SUCCEEDED)
    await over(harness, job_id)
    assert await told_of(harness, job_id) == [("ACK", "APPLIED"), ("RESULT", "APPLIED")]


async def test_result_leaves_one_event_when_a_signal_comes_in_at_the_end(harness: AwayHarness) -> None:
    """Temporal does not let a workflow end that has not heard a signal: it runs the last task again."""
    await harness.start_api()
    ledger = await harness.start_worker()
    job_id = await harness.submit(steps=["ocr"])
    work = await harness.take()
    await harness.ack(work)
    await harness.until(job_id, StepStatus.PROCESSING)
    ledger.delay_seconds = WRITE_SECONDS
    await harness.succeed(work)
    await asyncio.sleep(WRITE_SECONDS / 2)  # The RESULT is being written.
    await harness.heartbeat(work, 0.5)
    await harness.until(job_id, JobStatus.SUCCEEDED)
    await over(harness, job_id)
    told = await told_of(harness, job_id)
    assert told == [("ACK", "APPLIED"), ("RESULT", "APPLIED"), ("HEARTBEAT", "JOB_TERMINAL")]


async def test_operations_whose_write_lost_its_answer_leave_one_event_each(harness: AwayHarness) -> None:
    await harness.start_api()
    await harness.start_worker()
    job_id = await harness.submit(steps=["ocr"])
    await harness.ack(await harness.take())
    await harness.until(job_id, StepStatus.PROCESSING)
    await harness.stop_worker()
    await harness.pause(job_id)
    await harness.resume(job_id)
    (await harness.start_worker()).lost_answers = 1
    await harness.until(job_id, lambda job: job.event_seq >= 6)
    await harness.cancel(job_id)
    await harness.until(job_id, JobStatus.CANCELLING)
    told = await told_of(harness, job_id)
    assert told == [("ACK", "APPLIED"), ("PAUSED", None), ("RESUMED", None), ("CANCEL_ASKED", None)]


async def over(harness: AwayHarness, job_id: str) -> None:
    """Wait for the workflow's end: whatever it writes more is written then."""
    await asyncio.wait_for((await harness.temporal()).get_workflow_handle(job_id).result(), 15.0)


# --- Which facts are decided already ---------------------------------------------------------------------------------

ABOUT = ("ocr", 1, "lease")
ACK_APPLIED = Event(5, 0, "ACK", "ocr", 1, {"outcome": Outcome.APPLIED})
RESULT_APPLIED = Event(6, 0, "RESULT", "ocr", 1, {"outcome": "APPLIED", "verdict": "SUCCEEDED"})
SUCCEEDED = Resulted(*ABOUT, verdict=Verdict.SUCCEEDED)
FAILED = Resulted(*ABOUT, verdict=Verdict.FAILED)


@pytest.mark.parametrize(
    ("facts", "events", "undecided"),
    [
        ([Acked(*ABOUT), SUCCEEDED], [ACK_APPLIED, RESULT_APPLIED], []),
        ([Acked(*ABOUT), SUCCEEDED], [ACK_APPLIED], [SUCCEEDED]),
        ([Acked(*ABOUT), Acked(*ABOUT)], [ACK_APPLIED], [Acked(*ABOUT)]),
        ([Acked("ocr", 2, "other")], [ACK_APPLIED], [Acked("ocr", 2, "other")]),
        ([Acked("sis", 1, "other")], [ACK_APPLIED], [Acked("sis", 1, "other")]),
        ([FAILED], [RESULT_APPLIED], [FAILED]),
        ([Acked(*ABOUT, "b", held_by="a"), Acked(*ABOUT, "a")], [ACK_APPLIED], [Acked(*ABOUT, "b", held_by="a")]),
        ([Acked(*ABOUT)], [Event(5, 0, "ACK", "ocr", 1, {"outcome": "STALE_ATTEMPT"})], [Acked(*ABOUT)]),
        ([HeartbeatSeen(*ABOUT)], [ACK_APPLIED], [HeartbeatSeen(*ABOUT)]),
        ([PauseAsked("ann"), PauseAsked("bob")], [Event(5, 0, "PAUSED", data={"by": "bob"})], [PauseAsked("ann")]),
        ([CancelAsked("ann")], [Event(5, 0, "CANCEL_ASKED", data={"by": "ann", "reason": "why"})], []),
        ([DeadlinePassed()], [ACK_APPLIED], [DeadlinePassed()]),
    ],
)
def test_facts_that_the_trail_tells_of_are_left_out(
    facts: list[Input], events: list[Event], undecided: list[Input]
) -> None:
    assert split_decided(facts, events)[0] == undecided
