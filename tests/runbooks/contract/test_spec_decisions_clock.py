"""runbooks.md §4: every step has a clock; throttling; retries."""

from __future__ import annotations

from typing import Any

import pytest
from stand import FAILURE, OPERATOR, SUCCESS, THROTTLED, Stand, runbook

from lucius.domain.errors import CallerError


async def dispatched(stand: Stand, step: Any, members: tuple[str, ...] = ("a",), **parts: Any) -> None:
    """The one step of the one phase is with the worker."""
    await stand.publish(runbook({"go": [step]}, **parts))
    await stand.batch("moves", members)
    stand.answer = lambda job: None
    await stand.step()


async def row(stand: Stand) -> dict[str, Any]:
    return await stand.dict_row("step_executions", 1)


async def sweep_after(stand: Stand, seconds: float) -> None:
    stand.clock.advance(seconds)
    await stand.orchestrator.sweep()


async def test_a_step_times_out_an_hour_after_its_dispatch_where_it_says_nothing(stand: Stand) -> None:
    await dispatched(stand, "move")
    assert (await row(stand))["wake_at"] == stand.clock.now() + 3_600_000
    await sweep_after(stand, 3_599.999)
    assert (await row(stand))["status"] == "dispatched"
    await sweep_after(stand, 0.001)
    found = await row(stand)
    assert (found["status"], found["error_message"]) == ("failed", "no answer within 3600 s")


async def test_a_step_times_out_by_its_own_timeout(stand: Stand) -> None:
    await dispatched(stand, {"name": "move", "timeout": "90s"})
    await sweep_after(stand, 89)
    assert (await row(stand))["status"] == "dispatched"
    await sweep_after(stand, 1)
    assert (await row(stand))["status"] == "failed"


async def test_a_timeout_is_a_failure_with_rollback(stand: Stand) -> None:
    await dispatched(stand, {"name": "move", "on_failure": "undo"}, rollbacks={"undo": ["stop"]})
    await sweep_after(stand, 3_600)
    assert await stand.followups() == {"rollback a stop": "dispatched"}


async def test_a_timeout_uses_a_retry(stand: Stand) -> None:
    await dispatched(stand, {"name": "move", "retry": {"max_retries": 1, "interval": "2m"}})
    await sweep_after(stand, 3_600)
    assert ((await row(stand))["status"], (await row(stand))["retries_used"]) == ("dispatched", 1)
    await sweep_after(stand, 120)
    assert [job.id for job in await stand.take_jobs()] == ["step-1-a2"]
    await sweep_after(stand, 3_600)
    assert (await row(stand))["status"] == "failed"


async def test_the_job_of_a_step_that_timed_out_is_withdrawn_from_the_bus(stand: Stand) -> None:
    await stand.publish(runbook({"go": ["move"]}))
    await stand.batch("moves", ["a"])
    await stand.tick()
    await stand.handle_events()
    await sweep_after(stand, 3_600)
    assert await stand.take_jobs() == []


async def test_init_rollback_and_removal_steps_have_a_clock_too(stand: Stand) -> None:
    await stand.publish(runbook({"go": ["move"]}, init=[{"name": "check", "timeout": "1m"}]))
    await stand.batch("moves", ["a"])
    await stand.handle_events()
    await sweep_after(stand, 60)
    assert (await stand.init(), await stand.batch_status()) == (["failed"], "failed")


async def test_throttled_waits_and_sends_again_without_using_a_retry(stand: Stand) -> None:
    await dispatched(stand, {"name": "move", "retry": {"max_retries": 1, "interval": "1m"}})
    for number in range(1, 4):
        assert await stand.reply(f"step-1-a{number}", THROTTLED) == "APPLIED"
        found = await row(stand)
        assert (found["status"], found["retries_used"]) == ("dispatched", 0)
        assert await stand.take_jobs() == []
        await sweep_after(stand, 60)
        assert [job.id for job in await stand.take_jobs()] == [f"step-1-a{number + 1}"]
    await stand.reply("step-1-a4", SUCCESS)
    assert (await row(stand))["status"] == "succeeded"


async def test_throttled_ends_with_the_timeout_of_the_first_job(stand: Stand) -> None:
    await dispatched(stand, {"name": "move", "timeout": "100s"})
    await stand.reply("step-1-a1", THROTTLED)
    await sweep_after(stand, 30)
    await stand.reply("step-1-a2", THROTTLED)
    await sweep_after(stand, 69)
    assert (await row(stand))["status"] == "dispatched"
    await sweep_after(stand, 1)
    assert (await row(stand))["status"] == "failed"


async def test_throttled_until_the_timeout_is_a_failure_that_uses_a_retry(stand: Stand) -> None:
    await dispatched(stand, {"name": "move", "timeout": "50s", "retry": {"max_retries": 1, "interval": "2m"}})
    await stand.reply("step-1-a1", THROTTLED)
    await sweep_after(stand, 50)
    found = await row(stand)
    assert (found["status"], found["retries_used"], found["error_message"]) == (
        "dispatched", 1, "throttled until its timeout",
    )  # fmt: skip


async def test_a_step_stays_dispatched_while_its_retries_wait(stand: Stand) -> None:
    step = {"name": "move", "on_failure": "undo", "retry": {"max_retries": 2, "interval": "1m"}}
    await dispatched(stand, step, rollbacks={"undo": ["stop"]})
    for number in (1, 2):
        await stand.reply(f"step-1-a{number}", FAILURE)
        assert ((await row(stand))["status"], await stand.followups()) == ("dispatched", {})
        await sweep_after(stand, 59)
        assert await stand.take_jobs() == []
        await sweep_after(stand, 1)
        assert [job.id for job in await stand.take_jobs()] == [f"step-1-a{number + 1}"]
    await stand.reply("step-1-a3", FAILURE)
    assert (await row(stand))["status"] == "failed"
    assert await stand.followups() == {"rollback a stop": "dispatched"}


async def test_an_init_step_waits_for_its_retry_whatever_comes_meanwhile(stand: Stand) -> None:
    await stand.publish(runbook({"go": ["m"]}, init=[{"name": "check", "retry": {"max_retries": 1, "interval": "1m"}}]))
    await stand.batch("moves", ["a"])
    await stand.handle_events()
    await stand.take_jobs()
    await stand.reply("init-1-a1", FAILURE)
    await stand.handle_again(stand.handled[0].body)
    assert await stand.take_jobs() == []
    await sweep_after(stand, 60)
    assert [job.id for job in await stand.take_jobs()] == ["init-1-a2"]


async def test_a_retry_of_the_runbook_holds_where_the_step_has_none(stand: Stand) -> None:
    await dispatched(stand, "move", retry={"max_retries": 1, "interval": "1m"})
    await stand.reply("step-1-a1", FAILURE)
    assert (await row(stand))["status"] == "dispatched"


async def test_an_operators_retry_moves_failed_back_to_pending_and_is_audited(stand: Stand) -> None:
    await dispatched(stand, "move")
    await stand.reply("step-1-a1", FAILURE)
    assert await stand.batch_status() == "failed"
    await stand.operations.retry(1, ["a"], OPERATOR)
    assert [job.id for job in await stand.take_jobs()] == ["step-1-a2"]
    assert await stand.events("member-retried") == [{"member": "a"}]
    assert await stand.value("SELECT actor FROM runbook_events WHERE kind = 'member-retried'") == OPERATOR
    await stand.reply("step-1-a2", SUCCESS)
    assert (await stand.batch_status(), await stand.phases()) == ("completed", {"go": "completed"})


@pytest.mark.parametrize("status", ["rolled_back", "poll_timeout"])
async def test_an_operators_retry_leaves_rolled_back_and_poll_timeout_as_well(stand: Stand, status: str) -> None:
    step: dict[str, Any] = {"name": "move", "poll": {"interval": "5m", "timeout": "10m"}}
    parts: dict[str, Any] = {}
    if status == "rolled_back":
        step, parts = {**step, "on_failure": "undo"}, {"rollbacks": {"undo": ["stop"]}}
    await dispatched(stand, step, **parts)
    await stand.reply("step-1-a1", {"status": "Success", "result": {"complete": False}})
    await sweep_after(stand, 601)
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert (await row(stand))["status"] == status
    await stand.operations.retry(1, None, OPERATOR)
    await stand.settle()
    found = await row(stand)
    assert (found["status"], found["poll_started_at"], found["poll_count"]) == ("succeeded", None, 0)
    assert await stand.batch_status() == "completed"


async def test_a_retry_runs_its_own_rollback_if_it_fails_again(stand: Stand) -> None:
    await dispatched(stand, {"name": "move", "on_failure": "undo"}, rollbacks={"undo": ["stop"]})
    await stand.reply("step-1-a1", FAILURE)
    await stand.reply("rollback-1-a1", SUCCESS)
    await stand.operations.retry(1, None, OPERATOR)
    await stand.reply("step-1-a2", FAILURE)
    assert (await row(stand))["status"] == "failed"
    await stand.reply("rollback-2-a1", SUCCESS)
    assert (await row(stand))["status"] == "rolled_back"


async def test_a_retry_waits_for_the_rollback_and_only_who_failed_can_be_retried(stand: Stand) -> None:
    await dispatched(stand, {"name": "move", "on_failure": "undo"}, ("a", "b"), rollbacks={"undo": ["stop"]})
    await stand.reply("step-1-a1", FAILURE)
    with pytest.raises(CallerError, match="being rolled back"):
        await stand.operations.retry(1, ["a"], OPERATOR)
    with pytest.raises(CallerError, match="no failed member b"):
        await stand.operations.retry(1, ["b"], OPERATOR)
