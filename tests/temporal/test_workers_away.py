"""While no worker runs, the API takes what workflows would take, and no directive is worked on twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from tests.temporal.away_harness import AwayHarness

from lucius.domain.effects import Outcome
from lucius.domain.errors import InfrastructureError
from lucius.domain.job import Job, JobStatus
from lucius.domain.step import StepStatus
from lucius.domain.time import after
from lucius.ports.observer import Observer
from lucius.testing.engine_harness import QUICK
from lucius.usecases.operate import Operations
from lucius.usecases.query import Queries

LOCK_SECONDS = 0.2
SEQUENCES = {
    "pause, resume": (["PAUSED", "RESUMED"], JobStatus.IN_PROGRESS),
    "pause, resume, pause": (["PAUSED", "RESUMED", "PAUSED"], JobStatus.PAUSED),
    "pause, resume, pause, resume": (["PAUSED", "RESUMED", "PAUSED", "RESUMED"], JobStatus.IN_PROGRESS),
    "pause, cancel": (["PAUSED", "CANCEL_ASKED"], JobStatus.CANCELLING),
    "pause, resume, cancel": (["PAUSED", "RESUMED", "CANCEL_ASKED"], JobStatus.CANCELLING),
    "cancel, pause, resume": (["CANCEL_ASKED"], JobStatus.CANCELLING),
    "resume": ([], JobStatus.IN_PROGRESS),
}
"""What operations on a job at work leave in its trail, and the status after them."""


@pytest.fixture(params=["bus inside", "bus outside"])
async def harness(
    request: pytest.FixtureRequest, temporal_address: str, postgres_url: str
) -> AsyncIterator[AwayHarness]:
    async with AwayHarness.open(temporal_address, postgres_url, request.param == "bus outside") as harness:
        yield harness


@pytest.fixture
async def inside(temporal_address: str, postgres_url: str) -> AsyncIterator[AwayHarness]:
    async with AwayHarness.open(temporal_address, postgres_url, is_bus_outside=False) as harness:
        yield harness


# --- Operations ------------------------------------------------------------------------------------------------------


async def test_operations_take_effect_in_their_order_when_workers_are_back(inside: AwayHarness) -> None:
    await inside.start_api()
    await inside.start_worker()
    jobs = {}
    for sequence in SEQUENCES:
        jobs[sequence] = await inside.submit(steps=["ocr"])
        await inside.ack(await inside.take())
        await inside.until(jobs[sequence], StepStatus.PROCESSING)
    await inside.stop_worker()

    async def operate(sequence: str) -> None:
        for operation in sequence.split(", "):
            told = await getattr(inside, operation)(jobs[sequence])
            assert told.outcome is Outcome.RECEIVED, f"{operation} of {sequence}: {told}"

    await asyncio.gather(*map(operate, SEQUENCES))
    await inside.start_worker()
    for sequence, (recorded, status) in SEQUENCES.items():
        await inside.until(jobs[sequence], lambda job: job.status is status and _is_decided(job, len(recorded)))  # noqa: B023
        types = [
            event for event in await inside.types(jobs[sequence]) if event in {"PAUSED", "RESUMED", "CANCEL_ASKED"}
        ]
        assert types == recorded, sequence


def _is_decided(job: Job, operations: int) -> bool:
    """Accepted, attempt created, published, acknowledged, and the operations."""
    return job.event_seq >= 4 + operations


async def test_resumed_job_goes_on_when_workers_are_back(inside: AwayHarness) -> None:
    await inside.start_api()
    await inside.start_worker()
    job_id = await inside.submit(steps=["ocr", "sis"])
    work = await inside.take()
    await inside.ack(work)
    await inside.until(job_id, StepStatus.PROCESSING)
    await inside.stop_worker()
    await inside.pause(job_id)
    await inside.resume(job_id)
    await inside.succeed(work)
    await inside.start_worker()
    await inside.succeed(await inside.take("sis"))
    await inside.until(job_id, JobStatus.SUCCEEDED)


async def test_workflow_that_answers_refuses_what_its_state_forbids(inside: AwayHarness) -> None:
    await inside.start_api()
    await inside.start_worker()
    job_id = await inside.submit(steps=["ocr"])
    await inside.ack(await inside.take())
    await inside.until(job_id, StepStatus.PROCESSING)
    assert (await inside.resume(job_id)).outcome is Outcome.CONFLICT
    await inside.cancel(job_id)
    await inside.until(job_id, JobStatus.CANCELLING)
    told = await inside.pause(job_id)
    assert (told.outcome, told.status) == (Outcome.CONFLICT, JobStatus.CANCELLING)


async def test_workflow_that_has_decided_more_than_the_ledger_shows_is_asked(inside: AwayHarness) -> None:
    """Its worker takes a while to write each change."""
    await inside.start_api()
    ledger = await inside.start_worker()
    ledger.delay_seconds = 0.5
    job_id = await inside.submit(not_before=after(inside.clock.now(), 3600.0))
    assert (await inside.pause(job_id)).outcome is Outcome.RECEIVED
    assert (await inside.job(job_id)).status is JobStatus.QUEUED
    assert (await inside.resume(job_id)).outcome is Outcome.RECEIVED
    await inside.until(job_id, lambda job: job.event_seq >= 3)
    assert await inside.types(job_id) == ["ACCEPTED", "PAUSED", "RESUMED"]
    await inside.cancel(job_id)
    assert (await inside.job(job_id)).status is JobStatus.QUEUED
    redriven = await _operations(inside).redrive(job_id, lambda tenant_id: True)
    assert (await inside.job(redriven.job_id)).spec.redrive_of == job_id
    ledger.delay_seconds = 0.0
    await inside.until(job_id, JobStatus.CANCELLED)
    await inside.until(redriven.job_id, StepStatus.INITIATED)


async def test_redrive_of_a_job_whose_end_no_worker_can_tell_is_to_be_asked_again(inside: AwayHarness) -> None:
    await inside.start_api()
    await inside.start_worker()
    job_id = await inside.submit(not_before=after(inside.clock.now(), 3600.0))
    await inside.stop_worker()
    await inside.cancel(job_id)
    operations = _operations(inside)
    with pytest.raises(InfrastructureError, match="no worker answers"):
        await operations.redrive(job_id, lambda tenant_id: True)
    await inside.start_worker()
    await inside.until(job_id, JobStatus.CANCELLED)
    redriven = await operations.redrive(job_id, lambda tenant_id: True)
    assert (await inside.job(redriven.job_id)).spec.redrive_of == job_id


def _operations(harness: AwayHarness) -> Operations:
    queries = Queries(harness.ledger, harness.engine)
    return Operations(harness.engine, queries, harness.ledger, harness.clock, Observer(), lambda job: ())


# --- Directives ------------------------------------------------------------------------------------------------------


async def test_acknowledged_directive_is_not_delivered_again(harness: AwayHarness) -> None:
    first, second = await harness.start_api(), await harness.start_api()
    await harness.start_worker()
    job_id = await harness.submit(steps=["ocr"])
    work = await harness.take(lock_seconds=LOCK_SECONDS)
    await harness.stop_worker()
    assert (await harness.ack_as(work, "one", first)).outcome is Outcome.RECEIVED
    await asyncio.sleep(2 * LOCK_SECONDS)
    assert await harness.finds_nothing()
    assert await harness.messages_left() == 0
    # Another instance that had the directive too is held back, by every process; the same instance may ask again.
    assert (await harness.ack_as(work, "two", second)).outcome is Outcome.STALE_ATTEMPT
    assert (await harness.ack_as(work, "two", first)).outcome is Outcome.STALE_ATTEMPT
    assert (await harness.ack_as(work, "one", second)).outcome is Outcome.RECEIVED
    await harness.start_worker()
    await harness.succeed(work)
    await harness.until(job_id, JobStatus.SUCCEEDED)
    attempt = (await harness.ledger.attempts(job_id))["ocr"][0]
    assert attempt.acked_by == "one"
    trail = [(event.type, event.data.get("outcome")) for event in await harness.trail(job_id)]
    assert [outcome for type_, outcome in trail if type_ == "ACK"] == ["APPLIED", "STALE_ATTEMPT", "DUPLICATE"]


async def test_of_two_instances_that_acknowledge_at_once_one_is_held_back(inside: AwayHarness) -> None:
    first, second = await inside.start_api(), await inside.start_api()
    await inside.start_worker()
    jobs = [await inside.submit(steps=["ocr"]) for _ in range(10)]
    taken = {work.job_id: work for work in [await inside.take() for _ in jobs]}
    await inside.stop_worker()
    winners = {}
    for job_id, work in taken.items():
        told = await asyncio.gather(inside.ack_as(work, "one", first), inside.ack_as(work, "two", second))
        outcomes = [one.outcome for one in told]
        assert sorted(outcomes) == [Outcome.RECEIVED, Outcome.STALE_ATTEMPT]
        winners[job_id] = ("one", "two")[outcomes.index(Outcome.RECEIVED)]
    await inside.start_worker()
    for job_id in jobs:
        job = await inside.until(job_id, StepStatus.PROCESSING)
        assert job.current_step.attempt is not None
        assert job.current_step.attempt.acked_by == winners[job_id]


async def test_directive_whose_result_came_without_an_ack_is_not_delivered_again(harness: AwayHarness) -> None:
    first, second = await harness.start_api(), await harness.start_api()
    await harness.start_worker()
    job_id = await harness.submit(steps=["ocr"])
    work = await harness.take(lock_seconds=LOCK_SECONDS)
    await harness.stop_worker()
    assert (await harness.succeed(work, engine=first)).outcome is Outcome.RECEIVED
    await asyncio.sleep(2 * LOCK_SECONDS)
    assert await harness.finds_nothing()
    assert (await harness.ack_as(work, "two", second)).outcome is Outcome.STALE_ATTEMPT
    await harness.start_worker()
    await harness.until(job_id, JobStatus.SUCCEEDED)
    assert (await harness.ledger.attempts(job_id))["ocr"][0].acked_by is None


async def test_attempt_that_timed_out_while_workers_were_away_is_taken_up_by_its_ack(inside: AwayHarness) -> None:
    """The ACK came in time as far as anybody could tell, and is decided before the deadline."""
    await inside.start_api()
    await inside.start_worker()
    job_id = await inside.submit(steps=["ocr"], policy=replace(QUICK, ack_timeout_seconds=1.0))
    work = await inside.take()
    await inside.stop_worker()
    await inside.ack(work)
    await asyncio.sleep(1.2)
    await inside.start_worker()
    await inside.until(job_id, StepStatus.PROCESSING)
    await inside.succeed(work)
    job = await inside.until(job_id, JobStatus.SUCCEEDED)
    assert job.attempts_total == 1
