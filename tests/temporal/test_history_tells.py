"""What happened to a job is seen in Temporal as it is in the ledger: in history, state and search attributes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from tests.temporal.shapes import (
    CONTINUES_AT_EVENTS,
    TemporalHarness,
    ack_timeout,
    cancel_in_work,
    lease_expired,
    pause_and_resume,
    retries,
)

from lucius.domain.attempt import Verdict
from lucius.domain.effects import Event
from lucius.domain.inputs import Resulted
from lucius.domain.job import Job, JobStatus
from lucius.domain.step import StepStatus
from lucius.engines.temporal.messages import WORKFLOW
from lucius.testing.engine_harness import PATIENCE_SECONDS

TOLD_AS = {
    "step_ack": "ACK",
    "step_heartbeat": "HEARTBEAT",
    "step_result": "RESULT",
    "cancel": "CANCEL_ASKED",
    "pause": "PAUSED",
    "resume": "RESUMED",
}
"""The audit trail's word for each signal."""
HEARTBEATS = 300


def kind(event: HistoryEvent) -> str:
    return EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")


def signals(history: WorkflowHistory) -> list[str]:
    """What the workflow was told, in the trail's words. Callbacks that came together are told in one signal."""
    told = []
    for event in history.events:
        if kind(event) != "WORKFLOW_EXECUTION_SIGNALED":
            continue
        signal = event.workflow_execution_signaled_event_attributes
        if signal.signal_name == "step_callbacks":
            told += [name.upper() for each in msgspec.json.decode(signal.input.payloads[0].data) for name in each]
        else:
            told.append(TOLD_AS[signal.signal_name])
    return told


def activities(history: WorkflowHistory) -> list[str]:
    """The names of the local activities that were carried out, from their markers."""
    markers = (event for event in history.events if kind(event) == "MARKER_RECORDED")
    data = (marker.marker_recorded_event_attributes.details["data"].payloads[0].data for marker in markers)
    return [msgspec.json.decode(one)["activity_type"] for one in data]


def count(history: WorkflowHistory, name: str) -> int:
    return sum(kind(event) == name for event in history.events)


def callbacks_and_operations(trail: list[Event]) -> list[str]:
    return [event.type for event in trail if event.type in TOLD_AS.values()]


async def both(harness: TemporalHarness, job_id: str) -> tuple[WorkflowHistory, list[Event]]:
    await harness.over(job_id)
    return await harness.history(job_id), await harness.trail(job_id)


def check_same_story(history: WorkflowHistory, trail: list[Event]) -> None:
    """Every signal stands in the trail, in the same order; every attempt but the first is an activity's work."""
    assert signals(history) == callbacks_and_operations(trail)
    created = [event for event in trail if event.type == "ATTEMPT_CREATED"]
    # The first attempt is created with the job, before there is a workflow.
    assert activities(history).count("record_attempt_lease") == len(created) - 1


@pytest.fixture(params=["outside", "inside"])
def harness(request: pytest.FixtureRequest) -> TemporalHarness:
    found: TemporalHarness = request.getfixturevalue(request.param)
    return found


def publishes(harness: TemporalHarness, trail: list[Event]) -> int:
    """How many directives an activity of its own must have published: all, or where that is part of the write, one."""
    return 1 if harness.ledger.enlists(harness.bus) else sum(event.type == "PUBLISHED" for event in trail)


async def test_retryable_failure_is_seen_in_both(harness: TemporalHarness) -> None:
    history, trail = await both(harness, await retries(harness))
    check_same_story(history, trail)
    assert signals(history)[:4] == ["ACK", "RESULT", "ACK", "RESULT"]
    failed = [event for event in trail if event.type == "RESULT" and event.data["verdict"] == "FAILED"]
    assert [event.attempt_no for event in failed] == [1, 2]
    # The wait before each new attempt is a timer that fired.
    assert count(history, "TIMER_FIRED") >= 2
    assert activities(history).count("publish_to_bus") == publishes(harness, trail)


@pytest.mark.parametrize(
    ("shape", "word", "looks"), [(ack_timeout, "ACK_TIMEOUT", True), (lease_expired, "LEASE_EXPIRED", False)]
)
async def test_timeout_is_seen_in_both(
    harness: TemporalHarness, shape: Callable[[TemporalHarness], Awaitable[str]], word: str, looks: bool
) -> None:
    history, trail = await both(harness, await shape(harness))
    check_same_story(history, trail)
    assert [event.type for event in trail].count(word) == 1
    fired = [place for place, event in enumerate(history.events) if kind(event) == "TIMER_FIRED"]
    later = [activities(WorkflowHistory(history.workflow_id, history.events[place:])) for place in fired]
    # What follows the timer is the work it asked for: a look at the queue where nobody acknowledged, then the write.
    # On a slow machine another timer may have fired before that one.
    wanted = ["look_at_queue", "project"] if looks else ["project"]
    assert any(found[: len(wanted)] == wanted and "record_attempt_lease" in found for found in later), later


async def test_cancel_is_seen_in_both(harness: TemporalHarness) -> None:
    history, trail = await both(harness, await cancel_in_work(harness))
    check_same_story(history, trail)
    assert signals(history) == ["ACK", "CANCEL_ASKED", "HEARTBEAT", "RESULT"]
    assert trail[-1].type == "JOB_CANCELLED"
    assert statuses_shown(history)[-2:] == ["CANCELLING", "CANCELLED"]
    assert kind(history.events[-1]) == "WORKFLOW_EXECUTION_COMPLETED"


async def test_pause_is_seen_in_both(harness: TemporalHarness) -> None:
    history, trail = await both(harness, await pause_and_resume(harness))
    check_same_story(history, trail)
    assert signals(history)[1:4] == ["PAUSED", "RESULT", "RESUMED"]
    shown = statuses_shown(history)
    assert shown[shown.index("PAUSED") + 1] != "PAUSED"
    assert shown[-1] == "SUCCEEDED"


def statuses_shown(history: WorkflowHistory) -> list[str]:
    """The statuses that the workflow gave itself as a search attribute."""
    upserts = (event for event in history.events if kind(event) == "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES")
    fields = (event.upsert_workflow_search_attributes_event_attributes.search_attributes for event in upserts)
    return [msgspec.json.decode(each.indexed_fields["LuciusStatus"].data) for each in fields]


async def test_job_is_found_by_its_search_attributes(outside: TemporalHarness) -> None:
    await outside.start()
    tenant = f"tenant-{outside.settings.task_queue}"
    new = outside.new(steps=["ocr"], tenant_id=tenant, request_type="OCR")
    await outside.engine.submit(new)
    job_id, work = new.fact.spec.job_id, await outside.take()
    what = f"LuciusTenant = '{tenant}' AND LuciusRequestType = 'OCR' AND LuciusProtocol = 'OCR'"
    assert await found(outside, f"{what} AND LuciusStatus = 'IN_PROGRESS'") == [job_id]
    told = await outside.engine.tell(job_id, tenant, Resulted(*work.about, verdict=Verdict.SUCCEEDED))
    assert told is not None
    await outside.until(job_id, JobStatus.SUCCEEDED)
    assert await found(outside, f"{what} AND LuciusStatus = 'SUCCEEDED'") == [job_id]
    running = f"{what} AND LuciusStatus = 'IN_PROGRESS'"
    assert [each.id async for each in outside.client.list_workflows(running)] == []


async def test_callbacks_that_come_together_are_one_signal(outside: TemporalHarness) -> None:
    await outside.start()
    job_id = await outside.submit(steps=["ocr"])
    work = await outside.take()
    await asyncio.gather(outside.ack(work), outside.heartbeat(work, 0.5), outside.succeed(work))
    await outside.until(job_id, JobStatus.SUCCEEDED)
    history, trail = await both(outside, job_id)
    assert count(history, "WORKFLOW_EXECUTION_SIGNALED") == 1
    check_same_story(history, trail)
    assert [event.data["outcome"] for event in trail if event.type in TOLD_AS.values()] == ["APPLIED"] * 3


async def test_query_answers_with_the_ledgers_job(harness: TemporalHarness) -> None:
    await harness.start()
    job_id = await harness.submit()
    work = await harness.take()
    await harness.ack(work)
    held = await harness.until(job_id, StepStatus.PROCESSING)
    handle = harness.client.get_workflow_handle(job_id)
    assert plain(await asked(harness, job_id, held.revision)) == plain(held)
    await harness.cancel(job_id)
    await harness.succeed(work)
    ended = await harness.until(job_id, JobStatus.CANCELLED)
    await harness.over(job_id)
    assert plain(await handle.query("state", result_type=Job)) == plain(ended)


async def test_history_stays_short_over_many_heartbeats(outside: TemporalHarness) -> None:
    await outside.start()
    job_id = await outside.submit(steps=["ocr"])
    work = await outside.take()
    await outside.ack(work)
    for beat in range(1, HEARTBEATS + 1):
        progress = beat / HEARTBEATS
        await outside.heartbeat(work, progress)
        if beat % 10 == 0:
            await outside.until(job_id, lambda job: job.current_step.progress == progress)  # noqa: B023
    await outside.succeed(work)
    await outside.until(job_id, JobStatus.SUCCEEDED)
    await outside.over(job_id)
    runs = await outside.runs(job_id)
    assert len(runs) >= 2
    # The server suggests it between two workflow tasks; what one of them may add is little.
    assert max(len(run.events) for run in runs) < CONTINUES_AT_EVENTS + 100
    assert {kind(run.events[-1]) for run in runs[:-1]} == {"WORKFLOW_EXECUTION_CONTINUED_AS_NEW"}
    told = [name for run in runs for name in signals(run)]
    assert told == ["ACK", *["HEARTBEAT"] * HEARTBEATS, "RESULT"]


# --- Looking ---------------------------------------------------------------------------------------------------------


def plain(job: Job) -> object:
    """As JSON: what has travelled is equal, though not the same."""
    return msgspec.json.decode(msgspec.json.encode(job))


async def asked(harness: TemporalHarness, job_id: str, revision: int) -> Job:
    """The workflow's own state. The ledger has a write a moment before the workflow knows that it was made."""
    handle = harness.client.get_workflow_handle(job_id)
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        job: Job = await handle.query("state", result_type=Job)
        if job.revision >= revision:
            return job
        assert asyncio.get_running_loop().time() < deadline, f"the workflow is still at revision {job.revision}"
        await asyncio.sleep(0.02)


async def found(harness: TemporalHarness, query: str) -> list[str]:
    """Temporal's visibility is eventual: ask until there is an answer."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        ids = [each.id async for each in harness.client.list_workflows(f"WorkflowType = '{WORKFLOW}' AND {query}")]
        if ids:
            return ids
        assert asyncio.get_running_loop().time() < deadline, f"nothing is found by {query}"
        await asyncio.sleep(0.05)
