"""runbooks.md §4: polling, catch-up and removal."""

from __future__ import annotations

from typing import Any

import pytest
from stand import FAILURE, OPERATOR, STILL_POLLING, SUCCESS, Stand, csv, runbook, success

from lucius.domain.errors import CallerError
from lucius.runbooks.messages import MEMBER_ADDED, member_change

POLLED = {"name": "move", "poll": {"interval": "5m", "timeout": "1h"}}
REMOVAL = {"on_member_removed": ["leave"]}


async def begun(stand: Stand, *steps: Any, members: tuple[str, ...] = ("a", "b"), **parts: Any) -> None:
    await stand.publish(runbook({"go": steps or ["first", "second"]}, **parts))
    await stand.batch("moves", members)
    stand.answer = lambda job: None
    await stand.step()


async def remove(stand: Stand, key: str) -> None:
    await stand.operations.remove(1, [key], OPERATOR)
    await stand.handle_events()


async def functions(stand: Stand) -> list[str]:
    return [job.function for job in await stand.take_jobs()]


# --- Polling ---------------------------------------------------------------------------------------------------------


async def test_polling_poll_started_at_is_set_once(stand: Stand) -> None:
    await begun(stand, POLLED, members=("a",))
    await stand.reply("step-1-a1", STILL_POLLING)
    began = stand.clock.now()
    stand.answer = lambda job: STILL_POLLING
    await stand.step(300)
    await stand.step(300)
    assert await stand.rows("SELECT poll_started_at, poll_count FROM step_executions") == [(began, 2)]


async def test_polling_a_poll_check_while_a_result_is_outstanding_changes_nothing(stand: Stand) -> None:
    await begun(stand, POLLED, members=("a",))
    await stand.reply("step-1-a1", STILL_POLLING)
    await stand.step(300)
    check = stand.handled[-1].body
    before = await stand.dict_row("step_executions", 1)
    assert before["in_flight"] == 1
    await stand.handle_again(check)
    await stand.step(300)  # Nor does the scheduler ask while the answer is outstanding.
    assert await stand.dict_row("step_executions", 1) == before
    assert len(stand.done) == 2


async def test_polling_a_poll_check_while_a_result_is_outstanding_sees_the_timeout(stand: Stand) -> None:
    await begun(stand, POLLED, members=("a",))
    await stand.reply("step-1-a1", STILL_POLLING)
    await stand.step(300)
    stand.clock.advance(3_301)
    await stand.handle_again(stand.handled[-1].body)
    assert await stand.steps() == {"a move": "poll_timeout"}
    assert await stand.reply("step-1-a2", SUCCESS) in ("DUPLICATE", "STALE")
    assert await stand.steps() == {"a move": "poll_timeout"}


async def test_polling_a_poll_check_that_comes_again_asks_for_no_further_poll(stand: Stand) -> None:
    await begun(stand, POLLED, members=("a",))
    await stand.reply("step-1-a1", STILL_POLLING)
    stand.answer = lambda job: STILL_POLLING
    await stand.step(300)
    await stand.handle_again(stand.handled[-1].body)
    assert (await functions(stand), await stand.value("SELECT poll_count FROM step_executions")) == ([], 1)


async def test_polling_a_poll_timeout_uses_no_retry(stand: Stand) -> None:
    step = {**POLLED, "retry": {"max_retries": 3, "interval": "1m"}, "on_failure": "undo"}
    await begun(stand, step, members=("a",), rollbacks={"undo": ["stop"]})
    await stand.reply("step-1-a1", STILL_POLLING)
    stand.clock.advance(3_601)
    await stand.orchestrator.sweep()
    assert (await stand.steps(), await stand.followups()) == (
        {"a move": "poll_timeout"},
        {"rollback a stop": "dispatched"},
    )


async def test_polling_the_timeout_comes_without_any_poll_check(stand: Stand) -> None:
    await begun(stand, POLLED, members=("a",))
    await stand.reply("step-1-a1", STILL_POLLING)
    stand.clock.advance(3_601)
    await stand.orchestrator.sweep()
    assert await stand.steps() == {"a move": "poll_timeout"}


async def test_polling_an_answer_that_it_still_runs_fails_a_step_without_poll(stand: Stand) -> None:
    await begun(stand, "move", members=("a",))
    await stand.reply("step-1-a1", STILL_POLLING)
    (found,) = await stand.rows("SELECT status, error_message FROM step_executions")
    assert found[0] == "failed"
    assert "has no `poll`" in found[1]


# --- Catch-up --------------------------------------------------------------------------------------------------------


async def two_phases_done(stand: Stand, fails: str = "") -> None:
    offsets = {"one": "T-2h", "two": "T-1h", "three": "T-0"}
    phases = {"one": ["first", "second"], "two": ["third"], "three": ["last"]}
    await stand.publish(runbook(phases, offsets=offsets, on_member_removed=["leave"]))
    await stand.batch("moves", ["a", "b"], starts_in=7_200)
    stand.answer = lambda job: FAILURE if job.member == fails else SUCCESS
    await stand.step()
    await stand.step(3_600)


async def test_catch_up_runs_in_order_for_the_member_alone_and_reopens_phases_that_had_ended(stand: Stand) -> None:
    await two_phases_done(stand)
    assert await stand.phases() == {"one": "completed", "two": "completed", "three": "pending"}
    stand.answer = lambda job: None
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    await stand.settle()
    assert await stand.phases() == {"one": "dispatched", "two": "dispatched", "three": "pending"}
    assert await stand.value("SELECT completed_at FROM phase_executions WHERE phase_name = 'one'") is None
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert await stand.phases() == {"one": "completed", "two": "completed", "three": "pending"}
    assert [job.function for job in stand.done if job.member == "c"] == ["first", "second", "third"]


async def test_catch_up_a_phase_that_had_failed_ends_failed_again(stand: Stand) -> None:
    await two_phases_done(stand, fails="b")
    assert (await stand.phases())["one"] == "failed"
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    stand.answer = lambda job: None
    await stand.settle()
    assert (await stand.phases())["one"] == "dispatched"
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert (await stand.phases(), (await stand.steps())["c third"]) == (
        {"one": "failed", "two": "failed", "three": "pending"},
        "succeeded",
    )


async def test_catch_up_never_takes_a_skipped_phase(stand: Stand) -> None:
    await stand.publish(runbook({"early": ["warn"], "go": ["move"]}, offsets={"early": "T-1h"}), "ignore")
    await stand.batch("moves", ["a"])
    stand.answer = lambda job: None
    await stand.step()
    assert await stand.phases() == {"early": "skipped", "go": "dispatched"}
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    await stand.handle_events()
    assert await stand.steps() == {"a move": "dispatched", "c move": "dispatched"}


async def test_catch_up_and_phase_due_may_race_for_the_same_steps(stand: Stand) -> None:
    await stand.publish(runbook({"go": ["move"]}))
    await stand.batch("moves", ["a"])
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    await stand.tick()
    added, due = await stand.intercept()
    for body in (added, due, added, due):
        await stand.send(body)
    await stand.settle()
    assert await stand.steps() == {"a move": "succeeded", "c move": "succeeded"}
    assert sorted(job.id for job in stand.done) == ["step-1-a1", "step-2-a1"]


async def test_catch_up_goes_before_a_later_phase_whichever_message_comes_first(stand: Stand) -> None:
    await stand.publish(runbook({"one": ["first"], "two": ["second"]}, offsets={"one": "T-1h"}))
    await stand.batch("moves", ["a"], starts_in=3_600)
    await stand.step()
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    (added,) = await stand.intercept()
    stand.clock.advance(3_600)
    await stand.tick()
    await stand.settle()
    await stand.send(added)
    await stand.settle()
    assert [job.function for job in stand.done if job.member == "c"] == ["first", "second"]


async def test_catch_up_an_ended_batch_takes_no_joiners(stand: Stand) -> None:
    await begun(stand, "move")
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert await stand.batch_status() == "completed"
    with pytest.raises(CallerError, match="has ended"):
        await stand.operations.add_members(1, csv(["c"]), OPERATOR)


async def test_catch_up_who_was_heard_of_after_the_end_is_no_member_of_the_batch(stand: Stand) -> None:
    """So that the source's next reading makes a new batch of it. Whoever took part stays, however often it is told."""
    await begun(stand, "move")
    await stand.operations.add_members(1, csv(["c"]), OPERATOR)
    (late,) = await stand.intercept()
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert await stand.batch_status() == "completed"
    await stand.send(late)
    assert await stand.rows("SELECT member_key, status FROM batch_members ORDER BY id") == [
        ("a", "active"), ("b", "active"), ("c", "removed"),
    ]  # fmt: skip
    assert await stand.events("member-too-late") == [{"member": "c", "reason": "the batch is completed"}]
    told = member_change(MEMBER_ADDED, "moves", 1, 1, 1, "a")
    await stand.handle_again(told.body)
    assert await stand.value("SELECT status FROM batch_members WHERE id = 1") == "active"


# --- Removal ---------------------------------------------------------------------------------------------------------


async def test_removal_cancels_pending_dispatched_and_polling_at_once(stand: Stand) -> None:
    await begun(stand, POLLED, "verify", members=("a", "b", "c"))
    await stand.reply("step-1-a1", STILL_POLLING)
    await remove(stand, "a")
    await remove(stand, "b")
    assert await stand.steps() == {
        "a move": "cancelled", "a verify": "cancelled", "b move": "cancelled", "b verify": "cancelled",
        "c move": "dispatched", "c verify": "pending",
    }  # fmt: skip


async def test_removal_steps_wait_for_results_in_flight(stand: Stand) -> None:
    await begun(stand, **REMOVAL)
    await remove(stand, "a")
    assert (await functions(stand), await stand.followups()) == ([], {"removal a leave": "pending"})
    assert await stand.reply("step-1-a1", SUCCESS) == "STALE"
    assert await functions(stand) == ["leave"]
    assert (await stand.steps())["a first"] == "cancelled"


async def test_removal_steps_wait_no_longer_than_the_timeout_of_what_is_in_flight(stand: Stand) -> None:
    await begun(stand, **REMOVAL)
    await remove(stand, "a")
    stand.clock.advance(3_600)
    await stand.orchestrator.sweep()
    assert await functions(stand) == ["leave"]


async def test_removal_steps_wait_for_a_running_rollback(stand: Stand) -> None:
    step = {"name": "first", "on_failure": "undo"}
    await begun(stand, step, rollbacks={"undo": ["stop", "tell"]}, **REMOVAL)
    await stand.reply("step-1-a1", FAILURE)
    assert await functions(stand) == ["stop"]
    await remove(stand, "a")
    assert await functions(stand) == []
    await stand.reply("rollback-1-a1", SUCCESS)
    assert await functions(stand) == ["tell"]
    await stand.reply("rollback-2-a1", SUCCESS)
    assert await functions(stand) == ["leave"]
    assert (await stand.steps())["a first"] == "rolled_back"


async def test_removal_of_an_idle_member_runs_its_steps_at_once(stand: Stand) -> None:
    await begun(stand, **REMOVAL)
    await stand.reply("step-1-a1", SUCCESS)
    await remove(stand, "a")
    assert await functions(stand) == ["leave"]


async def test_removal_that_is_told_twice_runs_once(stand: Stand) -> None:
    await begun(stand, **REMOVAL)
    await remove(stand, "a")
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    await stand.handle_again(stand.handled[-1].body)
    await stand.settle()
    assert stand.functions().count("leave") == 1


async def test_removal_steps_know_what_the_members_steps_put_out(stand: Stand) -> None:
    leave = [{"name": "leave", "params": {"Move": "{{MoveId}}"}}]
    await begun(stand, {"name": "first", "output_params": {"MoveId": "id"}}, "second", on_member_removed=leave)
    await stand.reply("step-1-a1", success(id="m-7"))
    await remove(stand, "a")
    assert [job.params for job in await stand.take_jobs()] == [{"Move": "m-7"}]


async def test_removal_who_comes_back_is_a_new_row(stand: Stand) -> None:
    await begun(stand)
    await remove(stand, "a")
    await stand.operations.add_members(1, csv(["a"]), OPERATOR)
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert await stand.rows("SELECT id, member_key, status FROM batch_members ORDER BY id") == [
        (1, "a", "removed"), (2, "b", "active"), (3, "a", "active"),
    ]  # fmt: skip
    found = await stand.rows("SELECT batch_member_id, status FROM step_executions ORDER BY batch_member_id, step_index")
    assert found == [
        (1, "cancelled"), (1, "cancelled"), (2, "succeeded"), (2, "succeeded"), (3, "succeeded"), (3, "succeeded"),
    ]  # fmt: skip
    assert await stand.batch_status() == "completed"
