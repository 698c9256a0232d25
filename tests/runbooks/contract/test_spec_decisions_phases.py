"""runbooks.md §4: how phases and batches end, failed members, cancelled batches, rollbacks that fail."""

from __future__ import annotations

from typing import Any

import pytest
from harness import FAILURE, OPERATOR, SUCCESS, Harness, failure, runbook

from lucius.domain.errors import CallerError


async def begun(harness: Harness, *steps: Any, members: tuple[str, ...] = ("a", "b"), **parts: Any) -> None:
    """The first step of the one phase is with the worker, for every member."""
    await harness.publish(runbook({"go": steps or ["first", "second"]}, **parts))
    await harness.batch("moves", members)
    harness.answer = lambda job: None
    await harness.step()


async def jobs(harness: Harness) -> list[str]:
    return [f"{job.member} {job.function}" for job in await harness.take_jobs()]


async def test_phase_runs_to_the_end_for_the_healthy_and_then_is_failed(harness: Harness) -> None:
    await begun(harness)
    harness.answer = lambda job: FAILURE if job.member == "b" else SUCCESS
    await harness.settle()
    assert (await harness.steps(), await harness.phases()) == (
        {"a first": "succeeded", "a second": "succeeded", "b first": "failed", "b second": "cancelled"},
        {"go": "failed"},
    )


async def test_phase_is_completed_although_a_removed_members_steps_were_cancelled(harness: Harness) -> None:
    await begun(harness)
    await harness.operations.remove(1, ["b"], OPERATOR)
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert (await harness.steps())["b second"] == "cancelled"
    assert (await harness.phases(), await harness.batch_status()) == ({"go": "completed"}, "completed")


async def test_phase_without_members_is_completed(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}))
    await harness.batch("moves", ["a"], starts_in=3_600)
    await harness.operations.remove(1, ["a"], OPERATOR)
    await harness.step(3_600)
    assert (await harness.phases(), await harness.batch_status()) == ({"go": "completed"}, "completed")


async def two_phases(harness: Harness) -> None:
    await harness.publish(runbook({"one": ["first", "second"], "two": ["third", "fourth"]}, offsets={"one": "T-1h"}))
    await harness.batch("moves", ["a", "b"], starts_in=3_600)


async def test_a_failed_members_steps_in_later_phases_are_created_cancelled_with_the_reason(harness: Harness) -> None:
    await two_phases(harness)
    harness.answer = lambda job: FAILURE if job.member == "b" else SUCCESS
    await harness.step()
    await harness.step(3_600)
    assert await harness.steps("two") == {
        "a third": "succeeded", "a fourth": "succeeded", "b third": "cancelled", "b fourth": "cancelled",
    }  # fmt: skip
    reasons = await harness.rows(
        "SELECT DISTINCT error_message, job_id FROM step_executions WHERE step_name IN ('third', 'fourth')"
        " AND status = 'cancelled'"
    )
    assert reasons == [("the member failed in an earlier phase", None)]


async def test_a_failed_member_that_is_retried_runs_its_later_phases(harness: Harness) -> None:
    await two_phases(harness)
    harness.answer = lambda job: FAILURE if job.member == "b" else SUCCESS
    await harness.step()
    await harness.step(3_600)
    assert await harness.batch_status() == "failed"
    harness.answer = lambda job: SUCCESS
    await harness.operations.retry(1, ["b"], OPERATOR)
    await harness.settle()
    assert set((await harness.steps()).values()) == {"succeeded"}
    assert [job.function for job in harness.done if job.member == "b"] == [
        "first",
        "first",
        "second",
        "third",
        "fourth",
    ]
    assert (await harness.phases(), await harness.batch_status()) == (
        {"one": "completed", "two": "completed"},
        "completed",
    )


async def test_a_members_steps_in_a_later_phase_wait_for_its_earlier_phase(harness: Harness) -> None:
    """And phases overlap across members: `a` is in the second while `b` is in the first."""
    patient = {"name": "second", "timeout": "1d"}
    phases = {"one": ["first", patient], "two": ["third", "fourth"]}
    await harness.publish(runbook(phases, offsets={"one": "T-1h"}, progression="independent"))
    await harness.batch("moves", ["a", "b"], starts_in=3_600)
    held = {"b second"}
    harness.answer = lambda job: None if f"{job.member} {job.function}" in held else SUCCESS
    await harness.step()
    await harness.step(3_600)
    assert await harness.phases() == {"one": "dispatched", "two": "dispatched"}
    steps = await harness.steps()
    assert (steps["b second"], steps["b third"], steps["a fourth"]) == ("dispatched", "pending", "succeeded")


async def test_batch_without_init_is_active_at_once(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}))
    await harness.batch("moves", ["a"], starts_in=3_600)
    assert await harness.batch_status() == "active"


async def test_batch_is_failed_only_when_all_phases_have_ended(harness: Harness) -> None:
    await two_phases(harness)
    harness.answer = lambda job: FAILURE if job.function == "first" and job.member == "b" else SUCCESS
    await harness.step()
    assert (await harness.phases(), await harness.batch_status()) == ({"one": "failed", "two": "pending"}, "active")
    await harness.step(3_600)
    assert await harness.batch_status() == "failed"
    assert await harness.value("SELECT error_message FROM batches") == "phases failed: one, two"


async def test_batch_whose_init_failed_skips_its_phases_with_the_reason_and_can_be_retried(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}, init=["check", "open"]))
    await harness.batch("moves", ["a"])
    harness.answer = lambda job: failure("closed") if job.function == "open" else SUCCESS
    await harness.step()
    assert (await harness.phases(), await harness.batch_status()) == ({"go": "skipped"}, "failed")
    reason = "init step open: closed"
    assert await harness.rows("SELECT error_message FROM batches UNION SELECT error_message FROM phase_executions") == [
        (reason,)
    ]
    harness.answer = lambda job: SUCCESS
    await harness.operations.retry(1, None, OPERATOR)
    assert (await harness.phases(), await harness.batch_status()) == ({"go": "pending"}, "init_dispatched")
    await harness.settle()
    await harness.step()
    assert (await harness.phases(), await harness.batch_status()) == ({"go": "completed"}, "completed")
    assert harness.functions() == ["check", "open", "open", "move"]


async def test_an_overdue_phase_that_was_ignored_stays_skipped_when_init_is_retried(harness: Harness) -> None:
    phases = {"early": ["warn"], "go": ["move"]}
    await harness.publish(runbook(phases, offsets={"early": "T-1h"}, init=["check"]), "ignore")
    await harness.batch("moves", ["a"])
    harness.answer = lambda job: FAILURE
    await harness.step()
    harness.answer = lambda job: SUCCESS
    await harness.operations.retry(1, None, OPERATOR)
    await harness.settle()
    await harness.step()
    assert await harness.phases() == {"early": "skipped", "go": "completed"}


async def test_a_cancelled_batch_is_failed_with_the_reason_and_its_pending_phases_are_skipped(harness: Harness) -> None:
    await two_phases(harness)
    harness.answer = lambda job: None
    await harness.step()
    await harness.operations.cancel(1, "a freeze", OPERATOR)
    assert (await harness.phases())["two"] == "skipped"
    assert await harness.rows("SELECT status, error_message FROM batches") == [
        ("failed", "cancelled by olga: a freeze")
    ]
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert await harness.steps() == {
        "a first": "succeeded", "a second": "cancelled", "b first": "succeeded", "b second": "cancelled",
    }  # fmt: skip
    assert await harness.phases() == {"one": "failed", "two": "skipped"}
    with pytest.raises(CallerError, match="was cancelled"):
        await harness.operations.retry(1, None, OPERATOR)


@pytest.mark.parametrize("answer", [FAILURE, {"status": "Success", "result": {"complete": False}}])
async def test_a_cancelled_batch_sends_nothing_more(harness: Harness, answer: dict[str, Any]) -> None:
    step = {"name": "move", "retry": {"max_retries": 5, "interval": "1m"}, "poll": {"interval": "1m", "timeout": "1d"}}
    await begun(harness, step, members=("a",))
    await harness.operations.cancel(1, "", OPERATOR)
    await harness.reply("step-1-a1", answer)
    assert await harness.steps() == {"a move": "cancelled"}
    await harness.step(120)
    assert len(harness.done) == 1
    assert await harness.phases() == {"go": "failed"}


async def test_rollback_that_fails_leaves_the_step_failed_with_the_reason(harness: Harness) -> None:
    step = {"name": "move", "on_failure": "undo"}
    await begun(harness, step, members=("a",), rollbacks={"undo": ["stop", "tell"]})
    harness.answer = lambda job: failure("cannot stop") if job.function == "stop" else failure("no room")
    await harness.settle()
    assert await harness.rows("SELECT status, error_message FROM step_executions") == [
        ("failed", "no room; rollback step stop failed: cannot stop")
    ]
    assert await harness.followups() == {"rollback a stop": "failed", "rollback a tell": "cancelled"}
    assert (await harness.phases(), await harness.batch_status()) == ({"go": "failed"}, "failed")


async def test_rollback_steps_are_tracked_with_kind_parent_status_and_result(harness: Harness) -> None:
    await begun(harness, {"name": "move", "on_failure": "undo"}, members=("a",), rollbacks={"undo": ["stop"]})
    harness.answer = lambda job: {"status": "Success", "result": {"n": 7}} if job.function == "stop" else FAILURE
    await harness.settle()
    assert await harness.rows("SELECT kind, parent_id, status, result_json FROM followup_executions") == [
        ("rollback", 1, "succeeded", '{"n":7}')
    ]


async def test_rollback_of_an_init_step_runs_too(harness: Harness) -> None:
    undo = {"undo": [{"name": "close", "params": {"Batch": "{{_batch_id}}"}}]}
    await harness.publish(runbook({"go": ["move"]}, init=[{"name": "open", "on_failure": "undo"}], rollbacks=undo))
    await harness.batch("moves", ["a"])
    harness.answer = lambda job: SUCCESS if job.function == "close" else FAILURE
    await harness.settle()
    assert (await harness.init(), await harness.batch_status()) == (["rolled_back"], "failed")


async def test_init_is_retried_only_after_its_rollback_has_ended(harness: Harness) -> None:
    undo = {"undo": [{"name": "close", "params": {}}]}
    await harness.publish(runbook({"go": ["move"]}, init=[{"name": "open", "on_failure": "undo"}], rollbacks=undo))
    await harness.batch("moves", ["a"])
    await harness.handle_events()
    await harness.reply("init-1-a1", FAILURE)
    with pytest.raises(CallerError, match="being rolled back"):
        await harness.operations.retry(1, None, OPERATOR)
    await harness.reply("rollback-1-a1", SUCCESS)
    await harness.operations.retry(1, None, OPERATOR)
    assert await harness.init() == ["dispatched"]


async def test_a_batch_whose_init_failed_goes_on_by_no_other_way_than_its_init(harness: Harness) -> None:
    """A version whose init failed on a batch that has a failed member: retrying the member alone would pass it by."""
    await two_phases(harness)
    harness.answer = lambda job: FAILURE if job.member == "b" else SUCCESS
    await harness.step()
    steps = {"one": ["first", "second"], "two": ["third", "fourth"]}
    again = runbook(steps, offsets={"one": "T-1h"}, init=["check"])
    await harness.publish(again, "ignore", rerun_init=True)
    harness.answer = lambda job: FAILURE
    await harness.step(1)
    assert (await harness.init(), await harness.batch_status()) == (["failed"], "failed")
    with pytest.raises(CallerError, match="the init of batch 1 failed"):
        await harness.operations.retry(1, ["b"], OPERATOR)
