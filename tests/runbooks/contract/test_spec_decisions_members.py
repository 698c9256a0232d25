"""runbooks.md §4: polling, catch-up and removal."""

from __future__ import annotations

from typing import Any

import pytest
from harness import FAILURE, OPERATOR, STILL_POLLING, SUCCESS, Harness, csv, runbook, success

from lucius.domain.errors import CallerError
from lucius.runbooks.core.messages import MEMBER_ADDED, member_change

POLLED = {"name": "move", "poll": {"interval": "5m", "timeout": "1h"}}
REMOVAL = {"on_member_removed": ["leave"]}


async def begun(harness: Harness, *steps: Any, members: tuple[str, ...] = ("a", "b"), **parts: Any) -> None:
    await harness.publish(runbook({"go": steps or ["first", "second"]}, **parts))
    await harness.batch("moves", members)
    harness.answer = lambda job: None
    await harness.step()


async def remove(harness: Harness, key: str) -> None:
    await harness.operations.remove(1, [key], OPERATOR)
    await harness.handle_events()


async def functions(harness: Harness) -> list[str]:
    return [job.function for job in await harness.take_jobs()]


# --- Polling ---------------------------------------------------------------------------------------------------------


async def test_polling_poll_started_at_is_set_once(harness: Harness) -> None:
    await begun(harness, POLLED, members=("a",))
    await harness.reply("step-1-a1", STILL_POLLING)
    began = harness.clock.now()
    harness.answer = lambda job: STILL_POLLING
    await harness.step(300)
    await harness.step(300)
    assert await harness.rows("SELECT poll_started_at, poll_count FROM step_executions") == [(began, 2)]


async def test_polling_a_poll_check_while_a_result_is_outstanding_changes_nothing(harness: Harness) -> None:
    await begun(harness, POLLED, members=("a",))
    await harness.reply("step-1-a1", STILL_POLLING)
    await harness.step(300)
    check = harness.handled[-1].body
    before = await harness.dict_row("step_executions", 1)
    assert before["in_flight"] == 1
    await harness.handle_again(check)
    await harness.step(300)  # Nor does the scheduler ask while the answer is outstanding.
    assert await harness.dict_row("step_executions", 1) == before
    assert len(harness.done) == 2


async def test_polling_a_poll_check_while_a_result_is_outstanding_sees_the_timeout(harness: Harness) -> None:
    await begun(harness, POLLED, members=("a",))
    await harness.reply("step-1-a1", STILL_POLLING)
    await harness.step(300)
    harness.clock.advance(3_301)
    await harness.handle_again(harness.handled[-1].body)
    assert await harness.steps() == {"a move": "poll_timeout"}
    assert await harness.reply("step-1-a2", SUCCESS) in ("DUPLICATE", "STALE")
    assert await harness.steps() == {"a move": "poll_timeout"}


async def test_polling_a_poll_check_that_comes_again_asks_for_no_further_poll(harness: Harness) -> None:
    await begun(harness, POLLED, members=("a",))
    await harness.reply("step-1-a1", STILL_POLLING)
    harness.answer = lambda job: STILL_POLLING
    await harness.step(300)
    await harness.handle_again(harness.handled[-1].body)
    assert (await functions(harness), await harness.value("SELECT poll_count FROM step_executions")) == ([], 1)


async def test_polling_a_poll_timeout_uses_no_retry(harness: Harness) -> None:
    step = {**POLLED, "retry": {"max_retries": 3, "interval": "1m"}, "on_failure": "undo"}
    await begun(harness, step, members=("a",), rollbacks={"undo": ["stop"]})
    await harness.reply("step-1-a1", STILL_POLLING)
    harness.clock.advance(3_601)
    await harness.orchestrator.sweep()
    assert (await harness.steps(), await harness.followups()) == (
        {"a move": "poll_timeout"},
        {"rollback a stop": "dispatched"},
    )


async def test_polling_the_timeout_comes_without_any_poll_check(harness: Harness) -> None:
    await begun(harness, POLLED, members=("a",))
    await harness.reply("step-1-a1", STILL_POLLING)
    harness.clock.advance(3_601)
    await harness.orchestrator.sweep()
    assert await harness.steps() == {"a move": "poll_timeout"}


async def test_polling_a_step_without_poll_that_still_runs_polls_by_the_defaults(harness: Harness) -> None:
    await begun(harness, "move", members=("a",))
    await harness.reply("step-1-a1", STILL_POLLING)
    found = await harness.dict_row("step_executions", 1)
    assert (found["status"], found["poll_interval_sec"], found["poll_timeout_sec"]) == ("polling", 300, 86_400)
    harness.answer = lambda job: None
    await harness.step(299)
    assert await harness.take_jobs() == []
    await harness.step(1)
    assert harness.done[-1].id == "step-1-a2"
    harness.clock.advance(86_400)
    await harness.orchestrator.sweep()
    assert await harness.steps() == {"a move": "poll_timeout"}


# --- Catch-up --------------------------------------------------------------------------------------------------------


async def two_phases_done(harness: Harness, fails: str = "") -> None:
    offsets = {"one": "T-2h", "two": "T-1h", "three": "T-0"}
    phases = {"one": ["first", "second"], "two": ["third"], "three": ["last"]}
    await harness.publish(runbook(phases, offsets=offsets, on_member_removed=["leave"]))
    await harness.batch("moves", ["a", "b"], starts_in=7_200)
    harness.answer = lambda job: FAILURE if job.member == fails else SUCCESS
    await harness.step()
    await harness.step(3_600)


async def test_catch_up_runs_in_order_for_the_member_alone_and_reopens_phases_that_had_ended(harness: Harness) -> None:
    await two_phases_done(harness)
    assert await harness.phases() == {"one": "completed", "two": "completed", "three": "pending"}
    harness.answer = lambda job: None
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    await harness.settle()
    assert await harness.phases() == {"one": "dispatched", "two": "dispatched", "three": "pending"}
    assert await harness.value("SELECT completed_at FROM phase_executions WHERE phase_name = 'one'") is None
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert await harness.phases() == {"one": "completed", "two": "completed", "three": "pending"}
    assert [job.function for job in harness.done if job.member == "c"] == ["first", "second", "third"]


async def test_catch_up_a_phase_that_had_failed_ends_failed_again(harness: Harness) -> None:
    await two_phases_done(harness, fails="b")
    assert (await harness.phases())["one"] == "failed"
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    harness.answer = lambda job: None
    await harness.settle()
    assert (await harness.phases())["one"] == "dispatched"
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert (await harness.phases(), (await harness.steps())["c third"]) == (
        {"one": "failed", "two": "failed", "three": "pending"},
        "succeeded",
    )


async def test_catch_up_never_takes_a_skipped_phase(harness: Harness) -> None:
    await harness.publish(runbook({"early": ["warn"], "go": ["move"]}, offsets={"early": "T-1h"}), "ignore")
    await harness.batch("moves", ["a"])
    harness.answer = lambda job: None
    await harness.step()
    assert await harness.phases() == {"early": "skipped", "go": "dispatched"}
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    await harness.handle_events()
    assert await harness.steps() == {"a move": "dispatched", "c move": "dispatched"}


async def test_catch_up_and_phase_due_may_race_for_the_same_steps(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}))
    await harness.batch("moves", ["a"])
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    await harness.tick()
    added, due = await harness.intercept()
    for body in (added, due, added, due):
        await harness.send(body)
    await harness.settle()
    assert await harness.steps() == {"a move": "succeeded", "c move": "succeeded"}
    assert sorted(job.id for job in harness.done) == ["step-1-a1", "step-2-a1"]


async def test_catch_up_goes_before_a_later_phase_whichever_message_comes_first(harness: Harness) -> None:
    await harness.publish(runbook({"one": ["first"], "two": ["second"]}, offsets={"one": "T-1h"}))
    await harness.batch("moves", ["a"], starts_in=3_600)
    await harness.step()
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    (added,) = await harness.intercept()
    harness.clock.advance(3_600)
    await harness.tick()
    await harness.settle()
    await harness.send(added)
    await harness.settle()
    assert [job.function for job in harness.done if job.member == "c"] == ["first", "second"]


async def test_catch_up_an_ended_batch_takes_no_joiners(harness: Harness) -> None:
    await begun(harness, "move")
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert await harness.batch_status() == "completed"
    with pytest.raises(CallerError, match="has ended"):
        await harness.operations.add_members(1, csv(["c"]), OPERATOR)


async def test_catch_up_who_was_heard_of_after_the_end_is_no_member_of_the_batch(harness: Harness) -> None:
    """So that the source's next reading makes a new batch of it. Whoever took part stays, however often it is told."""
    await begun(harness, "move")
    await harness.operations.add_members(1, csv(["c"]), OPERATOR)
    (late,) = await harness.intercept()
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert await harness.batch_status() == "completed"
    await harness.send(late)
    assert await harness.rows("SELECT member_key, status FROM batch_members ORDER BY id") == [
        ("a", "active"), ("b", "active"), ("c", "removed"),
    ]  # fmt: skip
    assert await harness.events("member-too-late") == [{"member": "c", "reason": "the batch is completed"}]
    told = member_change(MEMBER_ADDED, "moves", 1, 1, 1, "a")
    await harness.handle_again(told.body)
    assert await harness.value("SELECT status FROM batch_members WHERE id = 1") == "active"


# --- Removal ---------------------------------------------------------------------------------------------------------


async def test_removal_cancels_pending_dispatched_and_polling_at_once(harness: Harness) -> None:
    await begun(harness, POLLED, "verify", members=("a", "b", "c"))
    await harness.reply("step-1-a1", STILL_POLLING)
    await remove(harness, "a")
    await remove(harness, "b")
    assert await harness.steps() == {
        "a move": "cancelled", "a verify": "cancelled", "b move": "cancelled", "b verify": "cancelled",
        "c move": "dispatched", "c verify": "pending",
    }  # fmt: skip


async def test_removal_steps_wait_for_results_in_flight(harness: Harness) -> None:
    await begun(harness, **REMOVAL)
    await remove(harness, "a")
    assert (await functions(harness), await harness.followups()) == ([], {"removal a leave": "pending"})
    assert await harness.reply("step-1-a1", SUCCESS) == "STALE"
    assert await functions(harness) == ["leave"]
    assert (await harness.steps())["a first"] == "cancelled"


async def test_removal_steps_wait_no_longer_than_the_timeout_of_what_is_in_flight(harness: Harness) -> None:
    await begun(harness, **REMOVAL)
    await remove(harness, "a")
    harness.clock.advance(3_600)
    await harness.orchestrator.sweep()
    assert await functions(harness) == ["leave"]


async def test_removal_steps_wait_for_a_running_rollback(harness: Harness) -> None:
    step = {"name": "first", "on_failure": "undo"}
    await begun(harness, step, rollbacks={"undo": ["stop", "tell"]}, **REMOVAL)
    await harness.reply("step-1-a1", FAILURE)
    assert await functions(harness) == ["stop"]
    await remove(harness, "a")
    assert await functions(harness) == []
    await harness.reply("rollback-1-a1", SUCCESS)
    assert await functions(harness) == ["tell"]
    await harness.reply("rollback-2-a1", SUCCESS)
    assert await functions(harness) == ["leave"]
    assert (await harness.steps())["a first"] == "rolled_back"


async def test_removal_of_an_idle_member_runs_its_steps_at_once(harness: Harness) -> None:
    await begun(harness, **REMOVAL)
    await harness.reply("step-1-a1", SUCCESS)
    await remove(harness, "a")
    assert await functions(harness) == ["leave"]


async def test_removal_that_is_told_twice_runs_once(harness: Harness) -> None:
    await begun(harness, **REMOVAL)
    await remove(harness, "a")
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    await harness.handle_again(harness.handled[-1].body)
    await harness.settle()
    assert harness.functions().count("leave") == 1


async def test_removal_steps_know_what_the_members_steps_put_out(harness: Harness) -> None:
    leave = [{"name": "leave", "params": {"Move": "{{MoveId}}"}}]
    await begun(harness, {"name": "first", "output_params": {"MoveId": "id"}}, "second", on_member_removed=leave)
    await harness.reply("step-1-a1", success(id="m-7"))
    await remove(harness, "a")
    assert [job.params for job in await harness.take_jobs()] == [{"Move": "m-7"}]


async def test_removal_who_comes_back_is_a_new_row(harness: Harness) -> None:
    await begun(harness)
    await remove(harness, "a")
    await harness.operations.add_members(1, csv(["a"]), OPERATOR)
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert await harness.rows("SELECT id, member_key, status FROM batch_members ORDER BY id") == [
        (1, "a", "removed"), (2, "b", "active"), (3, "a", "active"),
    ]  # fmt: skip
    found = await harness.rows(
        "SELECT batch_member_id, status FROM step_executions ORDER BY batch_member_id, step_index"
    )
    assert found == [
        (1, "cancelled"), (1, "cancelled"), (2, "succeeded"), (2, "succeeded"), (3, "succeeded"), (3, "succeeded"),
    ]  # fmt: skip
    assert await harness.batch_status() == "completed"
