"""Batches that are paused, resumed and rescheduled, runbooks published with their automation off, and members that were
stopped before they began."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from harness import FAILURE, OPERATOR, STILL_POLLING, SUCCESS, Harness, csv, runbook

from lucius.domain.errors import CallerError
from lucius.runbooks.engine.phases import begin_phase

HOUR = 3_600


async def begun(harness: Harness, *steps: Any, members: tuple[str, ...] = ("a", "b"), **parts: Any) -> None:
    """A batch whose first phase has begun; its workers have not answered."""
    phases = {"one": steps or ["first", "second"], "two": ["third"]}
    await harness.publish(runbook(phases, offsets={"one": "T-1h"}, **parts))
    await harness.batch("moves", members, starts_in=HOUR)
    harness.answer = lambda job: None
    await harness.step()


async def waits(harness: Harness) -> list[str]:
    return (await harness.queries.batch(1))["waiting_for"]


async def test_a_paused_batch_sends_nothing_new_and_takes_what_workers_answer(harness: Harness) -> None:
    await begun(harness)
    await harness.operations.pause(1, OPERATOR, "the gateway is down")
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert await harness.steps("one") == {
        "a first": "succeeded", "a second": "pending", "b first": "succeeded", "b second": "pending",
    }  # fmt: skip
    await harness.step(2 * HOUR)  # The second phase is due.
    assert (await harness.phases(), harness.functions()) == ({"one": "dispatched", "two": "pending"}, ["first"] * 2)
    found = await waits(harness)
    assert "phase one is at step 2 of 2 (second): 2 steps wait for the batch to be resumed" in found
    assert f"paused by {OPERATOR}: the gateway is down; resume it or cancel it" in found
    assert any(
        one.startswith("phase two is due at") and one.endswith("waits for the batch to be resumed") for one in found
    )
    await harness.operations.resume(1, OPERATOR)
    await harness.settle()
    await harness.step()
    assert (await harness.phases(), await harness.batch_status()) == (
        {"one": "completed", "two": "completed"},
        "completed",
    )
    assert (len(await harness.events("batch-paused")), len(await harness.events("batch-resumed"))) == (1, 1)


async def test_a_paused_batch_polls_what_was_begun_to_its_end(harness: Harness) -> None:
    poll = {"name": "first", "poll": {"interval": "5m", "timeout": "2h"}}
    await begun(harness, poll)
    harness.answer = lambda job: STILL_POLLING
    await harness.settle()
    await harness.operations.pause(1, OPERATOR)
    await harness.step(301)
    assert len(harness.functions()) == 4  # Each member's job, and a poll of it.
    harness.answer = lambda job: SUCCESS
    await harness.step(301)
    assert set((await harness.steps("one")).values()) == {"succeeded"}
    assert (await harness.phases())["one"] == "completed"


@pytest.mark.parametrize(
    "step",
    [
        {"name": "first", "retry": {"max_retries": 2, "interval": "1m"}},
        {"name": "first", "on_failure": "undo"},
    ],
    ids=["retry", "rollback"],
)
async def test_a_paused_batch_sends_neither_retries_nor_rollbacks(harness: Harness, step: dict[str, Any]) -> None:
    await begun(harness, step, members=("a",), rollbacks={"undo": ["undo"]})
    await harness.operations.pause(1, OPERATOR)
    await harness.reply("step-1-a1", FAILURE)
    await harness.step(600)
    assert harness.functions() == ["first"]
    harness.answer = lambda job: SUCCESS
    await harness.operations.resume(1, OPERATOR)
    await harness.settle()
    assert len(harness.functions()) == 2


async def test_pausing_twice_is_pausing_once_and_a_paused_batch_is_not_advanced(harness: Harness) -> None:
    await begun(harness)
    await harness.operations.pause(1, "anna", "first")
    await harness.operations.pause(1, "ben", "second")
    assert await harness.value("SELECT pause_reason FROM batches") == "paused by anna: first"
    with pytest.raises(CallerError, match="is paused by anna: first; resume it first"):
        await harness.operations.advance(1, OPERATOR)
    await harness.operations.resume(1, OPERATOR)
    with pytest.raises(CallerError, match="is neither paused nor held"):
        await harness.operations.resume(1, OPERATOR)


async def test_members_that_join_a_paused_batch_begin_when_it_is_resumed(harness: Harness) -> None:
    await begun(harness, members=("a",))
    await harness.operations.pause(1, OPERATOR)
    await harness.operations.add_members(1, csv(["late"]), OPERATOR)
    await harness.settle()
    assert harness.functions() == ["first"]
    member = next(
        one for one in (await harness.queries.members(1, "all", None, 10, None))[0] if one["member"] == "late"
    )
    assert member["waiting_for"] == f"its batch is paused by {OPERATOR}"
    await harness.operations.resume(1, OPERATOR)
    await harness.settle()
    assert harness.functions() == ["first", "first"]


async def test_a_batch_that_is_paused_and_held_needs_two_resumes(harness: Harness) -> None:
    await begun(harness, max_failures=0)
    await harness.operations.pause(1, OPERATOR)
    await harness.reply("step-1-a1", FAILURE)
    assert (await harness.operations.resume(1, OPERATOR))["held"] is True
    assert (await harness.operations.resume(1, OPERATOR))["held"] is False


async def test_a_batch_that_ends_is_not_paused_any_more(harness: Harness) -> None:
    await begun(harness)
    await harness.operations.pause(1, OPERATOR)
    await harness.operations.cancel(1, "enough", OPERATOR)
    assert await harness.value("SELECT paused_at FROM batches") is None
    with pytest.raises(CallerError, match="has ended"):
        await harness.operations.pause(1, OPERATOR)


# --- Rescheduling ----------------------------------------------------------------------------------------------------


async def test_rescheduling_moves_the_phases_that_have_not_begun(harness: Harness) -> None:
    await begun(harness)
    start = await harness.value("SELECT batch_start_time FROM batches")
    due = await harness.rows("SELECT phase_name, due_at FROM phase_executions ORDER BY id")
    later = start + 2 * HOUR * 1000
    shown = await harness.operations.reschedule(1, later, OPERATOR, dry_run=True)
    assert [(one["phase"], one["overdue"]) for one in shown["moved"]] == [("two", False)]
    assert await harness.rows("SELECT phase_name, due_at FROM phase_executions ORDER BY id") == due
    await harness.operations.reschedule(1, later, OPERATOR, "the window has moved")
    await harness.operations.reschedule(1, later, OPERATOR)  # Once more changes nothing.
    moved = dict(await harness.rows("SELECT phase_name, due_at FROM phase_executions"))
    assert moved == {**dict(due), "two": dict(due)["two"] + 2 * HOUR * 1000}
    assert await harness.value("SELECT batch_start_time FROM batches") == start
    (event,) = await harness.events("batch-rescheduled")
    assert (event["phases"], event["reason"]) == (["two"], "the window has moved")
    with pytest.raises(CallerError, match="somebody has rescheduled it"):
        await harness.operations.reschedule(1, start, OPERATOR, if_start=start)
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    await harness.step(2 * HOUR)
    assert (await harness.phases())["two"] == "pending"
    await harness.step(HOUR)
    assert (await harness.phases())["two"] == "completed"
    with pytest.raises(CallerError, match="has ended"):
        await harness.operations.reschedule(1, later, OPERATOR)


async def test_a_rescheduled_batch_keeps_its_time_in_the_next_version(harness: Harness) -> None:
    await begun(harness)
    start = await harness.value("SELECT batch_start_time FROM batches")
    await harness.operations.reschedule(1, start + HOUR * 1000, OPERATOR)
    await harness.publish(runbook({"one": ["first"], "three": ["third"]}, offsets={"one": "T-1h"}))
    await harness.tick()
    due = await harness.value("SELECT due_at FROM phase_executions WHERE phase_name = 'three'")
    assert due == start + HOUR * 1000


async def test_a_phase_that_was_found_due_does_not_begin_once_it_was_moved(harness: Harness) -> None:
    await begun(harness)
    start = await harness.value("SELECT batch_start_time FROM batches")
    phase_id = await harness.value("SELECT id FROM phase_executions WHERE phase_name = 'two'")
    harness.clock.advance(HOUR)
    await harness.operations.reschedule(1, start + HOUR * 1000, OPERATOR)
    take = partial(harness.turns.take, actor="scheduler")
    await begin_phase(take, phase_id, 1)
    assert (await harness.phases())["two"] == "pending"
    await harness.operations.reschedule(1, start, OPERATOR)
    await harness.operations.pause(1, OPERATOR)
    await begin_phase(take, phase_id, 1)
    assert (await harness.phases())["two"] == "pending"


# --- Stopped before they began ---------------------------------------------------------------------------------------


async def test_members_stopped_before_they_began_continue_without_the_failed_ones(harness: Harness) -> None:
    await begun(harness, max_failures=0, max_parallel=1, members=("a", "b", "c"))
    await harness.reply("step-1-a1", FAILURE)
    assert set((await harness.steps("one")).values()) == {"failed", "cancelled"}
    with pytest.raises(CallerError, match="did not stop member a of"):
        await harness.operations.retry(1, ["a"], OPERATOR, not_started=True)
    harness.answer = lambda job: SUCCESS
    answer = await harness.operations.retry(1, ["b"], OPERATOR, not_started=True)
    await harness.settle()
    assert answer["members"] == 1
    steps = await harness.steps("one")
    assert (steps["a first"], steps["b second"], steps["c first"]) == ("failed", "succeeded", "cancelled")
    assert (await harness.operations.retry(1, None, OPERATOR, not_started=True))["members"] == 1
    await harness.settle()
    assert (await harness.steps("one"))["c second"] == "succeeded"
    with pytest.raises(CallerError, match="stopped no member"):
        await harness.operations.retry(1, None, OPERATOR, not_started=True)


async def test_a_runbook_published_stopped_reads_no_source_and_begins_no_phase(harness: Harness) -> None:
    yaml = runbook({"one": ["first"]})
    published = await harness.publishing.publish(yaml.encode(), OPERATOR, is_stopped=True)
    assert (published["published"], published["automation"]) == (True, False)
    await harness.batch("moves", ["a"])
    await harness.step(HOUR)
    assert await harness.phases() == {"one": "pending"}
    await harness.publishing.set_automation("moves", True, OPERATOR)
    assert (await harness.publishing.publish(yaml.encode(), OPERATOR))["automation"] is True
    await harness.step()
    assert await harness.phases() == {"one": "completed"}
