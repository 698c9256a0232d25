"""runbooks.md §4: how phases and batches end, failed members, cancelled batches, rollbacks that fail."""

from __future__ import annotations

from typing import Any

import pytest
from stand import FAILURE, OPERATOR, SUCCESS, Stand, failure, runbook

from lucius.domain.errors import CallerError


async def begun(stand: Stand, *steps: Any, members: tuple[str, ...] = ("a", "b"), **parts: Any) -> None:
    """The first step of the one phase is with the worker, for every member."""
    await stand.publish(runbook({"go": steps or ["first", "second"]}, **parts))
    await stand.batch("moves", members)
    stand.answer = lambda job: None
    await stand.step()


async def jobs(stand: Stand) -> list[str]:
    return [f"{job.member} {job.function}" for job in await stand.take_jobs()]


async def test_phase_runs_to_the_end_for_the_healthy_and_then_is_failed(stand: Stand) -> None:
    await begun(stand)
    stand.answer = lambda job: FAILURE if job.member == "b" else SUCCESS
    await stand.settle()
    assert (await stand.steps(), await stand.phases()) == (
        {"a first": "succeeded", "a second": "succeeded", "b first": "failed", "b second": "cancelled"},
        {"go": "failed"},
    )


async def test_phase_is_completed_although_a_removed_members_steps_were_cancelled(stand: Stand) -> None:
    await begun(stand)
    await stand.operations.remove(1, ["b"], OPERATOR)
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert (await stand.steps())["b second"] == "cancelled"
    assert (await stand.phases(), await stand.batch_status()) == ({"go": "completed"}, "completed")


async def test_phase_without_members_is_completed(stand: Stand) -> None:
    await stand.publish(runbook({"go": ["move"]}))
    await stand.batch("moves", ["a"], starts_in=3_600)
    await stand.operations.remove(1, ["a"], OPERATOR)
    await stand.step(3_600)
    assert (await stand.phases(), await stand.batch_status()) == ({"go": "completed"}, "completed")


async def two_phases(stand: Stand) -> None:
    await stand.publish(runbook({"one": ["first", "second"], "two": ["third", "fourth"]}, offsets={"one": "T-1h"}))
    await stand.batch("moves", ["a", "b"], starts_in=3_600)


async def test_a_failed_members_steps_in_later_phases_are_created_cancelled_with_the_reason(stand: Stand) -> None:
    await two_phases(stand)
    stand.answer = lambda job: FAILURE if job.member == "b" else SUCCESS
    await stand.step()
    await stand.step(3_600)
    assert await stand.steps("two") == {
        "a third": "succeeded", "a fourth": "succeeded", "b third": "cancelled", "b fourth": "cancelled",
    }  # fmt: skip
    reasons = await stand.rows(
        "SELECT DISTINCT error_message, job_id FROM step_executions WHERE step_name IN ('third', 'fourth')"
        " AND status = 'cancelled'"
    )
    assert reasons == [("the member failed in an earlier phase", None)]


async def test_a_failed_member_that_is_retried_runs_its_later_phases(stand: Stand) -> None:
    await two_phases(stand)
    stand.answer = lambda job: FAILURE if job.member == "b" else SUCCESS
    await stand.step()
    await stand.step(3_600)
    assert await stand.batch_status() == "failed"
    stand.answer = lambda job: SUCCESS
    await stand.operations.retry(1, ["b"], OPERATOR)
    await stand.settle()
    assert set((await stand.steps()).values()) == {"succeeded"}
    assert [job.function for job in stand.done if job.member == "b"] == ["first", "first", "second", "third", "fourth"]
    assert (await stand.phases(), await stand.batch_status()) == ({"one": "completed", "two": "completed"}, "completed")


async def test_a_members_steps_in_a_later_phase_wait_for_its_earlier_phase(stand: Stand) -> None:
    """And phases overlap across members: `a` is in the second while `b` is in the first."""
    patient = {"name": "second", "timeout": "1d"}
    phases = {"one": ["first", patient], "two": ["third", "fourth"]}
    await stand.publish(runbook(phases, offsets={"one": "T-1h"}, progression="independent"))
    await stand.batch("moves", ["a", "b"], starts_in=3_600)
    held = {"b second"}
    stand.answer = lambda job: None if f"{job.member} {job.function}" in held else SUCCESS
    await stand.step()
    await stand.step(3_600)
    assert await stand.phases() == {"one": "dispatched", "two": "dispatched"}
    steps = await stand.steps()
    assert (steps["b second"], steps["b third"], steps["a fourth"]) == ("dispatched", "pending", "succeeded")


async def test_batch_without_init_is_active_at_once(stand: Stand) -> None:
    await stand.publish(runbook({"go": ["move"]}))
    await stand.batch("moves", ["a"], starts_in=3_600)
    assert await stand.batch_status() == "active"


async def test_batch_is_failed_only_when_all_phases_have_ended(stand: Stand) -> None:
    await two_phases(stand)
    stand.answer = lambda job: FAILURE if job.function == "first" and job.member == "b" else SUCCESS
    await stand.step()
    assert (await stand.phases(), await stand.batch_status()) == ({"one": "failed", "two": "pending"}, "active")
    await stand.step(3_600)
    assert await stand.batch_status() == "failed"
    assert await stand.value("SELECT error_message FROM batches") == "phases failed: one, two"


async def test_batch_whose_init_failed_skips_its_phases_with_the_reason_and_can_be_retried(stand: Stand) -> None:
    await stand.publish(runbook({"go": ["move"]}, init=["check", "open"]))
    await stand.batch("moves", ["a"])
    stand.answer = lambda job: failure("closed") if job.function == "open" else SUCCESS
    await stand.step()
    assert (await stand.phases(), await stand.batch_status()) == ({"go": "skipped"}, "failed")
    reason = "init step open: closed"
    assert await stand.rows("SELECT error_message FROM batches UNION SELECT error_message FROM phase_executions") == [
        (reason,)
    ]
    stand.answer = lambda job: SUCCESS
    await stand.operations.retry(1, None, OPERATOR)
    assert (await stand.phases(), await stand.batch_status()) == ({"go": "pending"}, "init_dispatched")
    await stand.settle()
    await stand.step()
    assert (await stand.phases(), await stand.batch_status()) == ({"go": "completed"}, "completed")
    assert stand.functions() == ["check", "open", "open", "move"]


async def test_an_overdue_phase_that_was_ignored_stays_skipped_when_init_is_retried(stand: Stand) -> None:
    phases = {"early": ["warn"], "go": ["move"]}
    await stand.publish(runbook(phases, offsets={"early": "T-1h"}, init=["check"]), "ignore")
    await stand.batch("moves", ["a"])
    stand.answer = lambda job: FAILURE
    await stand.step()
    stand.answer = lambda job: SUCCESS
    await stand.operations.retry(1, None, OPERATOR)
    await stand.settle()
    await stand.step()
    assert await stand.phases() == {"early": "skipped", "go": "completed"}


async def test_a_cancelled_batch_is_failed_with_the_reason_and_its_pending_phases_are_skipped(stand: Stand) -> None:
    await two_phases(stand)
    stand.answer = lambda job: None
    await stand.step()
    await stand.operations.cancel(1, "a freeze", OPERATOR)
    assert (await stand.phases())["two"] == "skipped"
    assert await stand.rows("SELECT status, error_message FROM batches") == [("failed", "cancelled by olga: a freeze")]
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert await stand.steps() == {
        "a first": "succeeded", "a second": "cancelled", "b first": "succeeded", "b second": "cancelled",
    }  # fmt: skip
    assert await stand.phases() == {"one": "failed", "two": "skipped"}
    with pytest.raises(CallerError, match="was cancelled"):
        await stand.operations.retry(1, None, OPERATOR)


@pytest.mark.parametrize("answer", [FAILURE, {"status": "Success", "result": {"complete": False}}])
async def test_a_cancelled_batch_sends_nothing_more(stand: Stand, answer: dict[str, Any]) -> None:
    step = {"name": "move", "retry": {"max_retries": 5, "interval": "1m"}, "poll": {"interval": "1m", "timeout": "1d"}}
    await begun(stand, step, members=("a",))
    await stand.operations.cancel(1, "", OPERATOR)
    await stand.reply("step-1-a1", answer)
    assert await stand.steps() == {"a move": "cancelled"}
    await stand.step(120)
    assert len(stand.done) == 1
    assert await stand.phases() == {"go": "failed"}


async def test_rollback_that_fails_leaves_the_step_failed_with_the_reason(stand: Stand) -> None:
    step = {"name": "move", "on_failure": "undo"}
    await begun(stand, step, members=("a",), rollbacks={"undo": ["stop", "tell"]})
    stand.answer = lambda job: failure("cannot stop") if job.function == "stop" else failure("no room")
    await stand.settle()
    assert await stand.rows("SELECT status, error_message FROM step_executions") == [
        ("failed", "no room; rollback step stop failed: cannot stop")
    ]
    assert await stand.followups() == {"rollback a stop": "failed", "rollback a tell": "cancelled"}
    assert (await stand.phases(), await stand.batch_status()) == ({"go": "failed"}, "failed")


async def test_rollback_steps_are_tracked_with_kind_parent_status_and_result(stand: Stand) -> None:
    await begun(stand, {"name": "move", "on_failure": "undo"}, members=("a",), rollbacks={"undo": ["stop"]})
    stand.answer = lambda job: {"status": "Success", "result": {"n": 7}} if job.function == "stop" else FAILURE
    await stand.settle()
    assert await stand.rows("SELECT kind, parent_id, status, result_json FROM followup_executions") == [
        ("rollback", 1, "succeeded", '{"n":7}')
    ]


async def test_rollback_of_an_init_step_runs_too(stand: Stand) -> None:
    undo = {"undo": [{"name": "close", "params": {"Batch": "{{_batch_id}}"}}]}
    await stand.publish(runbook({"go": ["move"]}, init=[{"name": "open", "on_failure": "undo"}], rollbacks=undo))
    await stand.batch("moves", ["a"])
    stand.answer = lambda job: SUCCESS if job.function == "close" else FAILURE
    await stand.settle()
    assert (await stand.init(), await stand.batch_status()) == (["rolled_back"], "failed")


async def test_init_is_retried_only_after_its_rollback_has_ended(stand: Stand) -> None:
    undo = {"undo": [{"name": "close", "params": {}}]}
    await stand.publish(runbook({"go": ["move"]}, init=[{"name": "open", "on_failure": "undo"}], rollbacks=undo))
    await stand.batch("moves", ["a"])
    await stand.handle_events()
    await stand.reply("init-1-a1", FAILURE)
    with pytest.raises(CallerError, match="being rolled back"):
        await stand.operations.retry(1, None, OPERATOR)
    await stand.reply("rollback-1-a1", SUCCESS)
    await stand.operations.retry(1, None, OPERATOR)
    assert await stand.init() == ["dispatched"]


async def test_a_batch_whose_init_failed_goes_on_by_no_other_way_than_its_init(stand: Stand) -> None:
    """A version whose init failed on a batch that has a failed member: retrying the member alone would pass it by."""
    await two_phases(stand)
    stand.answer = lambda job: FAILURE if job.member == "b" else SUCCESS
    await stand.step()
    steps = {"one": ["first", "second"], "two": ["third", "fourth"]}
    again = runbook(steps, offsets={"one": "T-1h"}, init=["check"])
    await stand.publish(again, "ignore", rerun_init=True)
    stand.answer = lambda job: FAILURE
    await stand.step(1)
    assert (await stand.init(), await stand.batch_status()) == (["failed"], "failed")
    with pytest.raises(CallerError, match="the init of batch 1 failed"):
        await stand.operations.retry(1, ["b"], OPERATOR)
