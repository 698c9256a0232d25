"""runbooks.md §4: every step has a clock; throttling; retries."""

from __future__ import annotations

from typing import Any

import pytest
from harness import FAILURE, OPERATOR, SUCCESS, THROTTLED, Harness, runbook

from lucius.domain.errors import CallerError


async def dispatched(harness: Harness, step: Any, members: tuple[str, ...] = ("a",), **parts: Any) -> None:
    """The one step of the one phase is with the worker."""
    await harness.publish(runbook({"go": [step]}, **parts))
    await harness.batch("moves", members)
    harness.answer = lambda job: None
    await harness.step()


async def row(harness: Harness) -> dict[str, Any]:
    return await harness.dict_row("step_executions", 1)


async def sweep_after(harness: Harness, seconds: float) -> None:
    harness.clock.advance(seconds)
    await harness.orchestrator.sweep()


async def test_a_step_times_out_an_hour_after_its_dispatch_where_it_says_nothing(harness: Harness) -> None:
    await dispatched(harness, "move")
    assert (await row(harness))["wake_at"] == harness.clock.now() + 3_600_000
    await sweep_after(harness, 3_599.999)
    assert (await row(harness))["status"] == "dispatched"
    await sweep_after(harness, 0.001)
    found = await row(harness)
    assert (found["status"], found["error_message"]) == ("failed", "no answer within 3600 s")


async def test_a_step_times_out_by_its_own_timeout(harness: Harness) -> None:
    await dispatched(harness, {"name": "move", "timeout": "90s"})
    await sweep_after(harness, 89)
    assert (await row(harness))["status"] == "dispatched"
    await sweep_after(harness, 1)
    assert (await row(harness))["status"] == "failed"


async def test_a_timeout_is_a_failure_with_rollback(harness: Harness) -> None:
    await dispatched(harness, {"name": "move", "on_failure": "undo"}, rollbacks={"undo": ["stop"]})
    await sweep_after(harness, 3_600)
    assert await harness.followups() == {"rollback a stop": "dispatched"}


async def test_a_timeout_uses_a_retry(harness: Harness) -> None:
    await dispatched(harness, {"name": "move", "retry": {"max_retries": 1, "interval": "2m"}})
    await sweep_after(harness, 3_600)
    assert ((await row(harness))["status"], (await row(harness))["retries_used"]) == ("dispatched", 1)
    await sweep_after(harness, 120)
    assert [job.id for job in await harness.take_jobs()] == ["step-1-a2"]
    await sweep_after(harness, 3_600)
    assert (await row(harness))["status"] == "failed"


async def test_the_job_of_a_step_that_timed_out_is_withdrawn_from_the_bus(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}))
    await harness.batch("moves", ["a"])
    await harness.tick()
    await harness.handle_events()
    await sweep_after(harness, 3_600)
    assert await harness.take_jobs() == []


async def test_init_rollback_and_removal_steps_have_a_clock_too(harness: Harness) -> None:
    await harness.publish(runbook({"go": ["move"]}, init=[{"name": "check", "timeout": "1m"}]))
    await harness.batch("moves", ["a"])
    await harness.handle_events()
    await sweep_after(harness, 60)
    assert (await harness.init(), await harness.batch_status()) == (["failed"], "failed")


async def test_throttled_waits_and_sends_again_without_using_a_retry(harness: Harness) -> None:
    await dispatched(harness, {"name": "move", "retry": {"max_retries": 1, "interval": "1m"}})
    for number in range(1, 4):
        assert await harness.reply(f"step-1-a{number}", THROTTLED) == "APPLIED"
        found = await row(harness)
        assert (found["status"], found["retries_used"]) == ("dispatched", 0)
        assert await harness.take_jobs() == []
        await sweep_after(harness, 60)
        assert [job.id for job in await harness.take_jobs()] == [f"step-1-a{number + 1}"]
    await harness.reply("step-1-a4", SUCCESS)
    assert (await row(harness))["status"] == "succeeded"


async def test_throttled_ends_with_the_timeout_of_the_first_job(harness: Harness) -> None:
    await dispatched(harness, {"name": "move", "timeout": "100s"})
    await harness.reply("step-1-a1", THROTTLED)
    await sweep_after(harness, 30)
    await harness.reply("step-1-a2", THROTTLED)
    await sweep_after(harness, 69)
    assert (await row(harness))["status"] == "dispatched"
    await sweep_after(harness, 1)
    assert (await row(harness))["status"] == "failed"


async def test_throttled_until_the_timeout_is_a_failure_that_uses_a_retry(harness: Harness) -> None:
    await dispatched(harness, {"name": "move", "timeout": "50s", "retry": {"max_retries": 1, "interval": "2m"}})
    await harness.reply("step-1-a1", THROTTLED)
    await sweep_after(harness, 50)
    found = await row(harness)
    assert (found["status"], found["retries_used"], found["error_message"]) == (
        "dispatched", 1, "throttled until its timeout",
    )  # fmt: skip


async def test_a_step_stays_dispatched_while_its_retries_wait(harness: Harness) -> None:
    step = {"name": "move", "on_failure": "undo", "retry": {"max_retries": 2, "interval": "1m"}}
    await dispatched(harness, step, rollbacks={"undo": ["stop"]})
    for number in (1, 2):
        await harness.reply(f"step-1-a{number}", FAILURE)
        assert ((await row(harness))["status"], await harness.followups()) == ("dispatched", {})
        await sweep_after(harness, 59)
        assert await harness.take_jobs() == []
        await sweep_after(harness, 1)
        assert [job.id for job in await harness.take_jobs()] == [f"step-1-a{number + 1}"]
    await harness.reply("step-1-a3", FAILURE)
    assert (await row(harness))["status"] == "failed"
    assert await harness.followups() == {"rollback a stop": "dispatched"}


async def test_an_init_step_waits_for_its_retry_whatever_comes_meanwhile(harness: Harness) -> None:
    await harness.publish(
        runbook({"go": ["m"]}, init=[{"name": "check", "retry": {"max_retries": 1, "interval": "1m"}}])
    )
    await harness.batch("moves", ["a"])
    await harness.handle_events()
    await harness.take_jobs()
    await harness.reply("init-1-a1", FAILURE)
    await harness.handle_again(harness.handled[0].body)
    assert await harness.take_jobs() == []
    await sweep_after(harness, 60)
    assert [job.id for job in await harness.take_jobs()] == ["init-1-a2"]


async def test_a_retry_of_the_runbook_holds_where_the_step_has_none(harness: Harness) -> None:
    await dispatched(harness, "move", retry={"max_retries": 1, "interval": "1m"})
    await harness.reply("step-1-a1", FAILURE)
    assert (await row(harness))["status"] == "dispatched"


async def test_an_operators_retry_moves_failed_back_to_pending_and_is_audited(harness: Harness) -> None:
    await dispatched(harness, "move")
    await harness.reply("step-1-a1", FAILURE)
    assert await harness.batch_status() == "failed"
    await harness.operations.retry(1, ["a"], OPERATOR)
    assert [job.id for job in await harness.take_jobs()] == ["step-1-a2"]
    assert await harness.events("member-retried") == [{"member": "a"}]
    assert await harness.value("SELECT actor FROM runbook_events WHERE kind = 'member-retried'") == OPERATOR
    await harness.reply("step-1-a2", SUCCESS)
    assert (await harness.batch_status(), await harness.phases()) == ("completed", {"go": "completed"})


@pytest.mark.parametrize("status", ["rolled_back", "poll_timeout"])
async def test_an_operators_retry_leaves_rolled_back_and_poll_timeout_as_well(harness: Harness, status: str) -> None:
    step: dict[str, Any] = {"name": "move", "poll": {"interval": "5m", "timeout": "10m"}}
    parts: dict[str, Any] = {}
    if status == "rolled_back":
        step, parts = {**step, "on_failure": "undo"}, {"rollbacks": {"undo": ["stop"]}}
    await dispatched(harness, step, **parts)
    await harness.reply("step-1-a1", {"status": "Success", "result": {"complete": False}})
    await sweep_after(harness, 601)
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert (await row(harness))["status"] == status
    await harness.operations.retry(1, None, OPERATOR)
    await harness.settle()
    found = await row(harness)
    assert (found["status"], found["poll_started_at"], found["poll_count"]) == ("succeeded", None, 0)
    assert await harness.batch_status() == "completed"


async def test_a_retry_runs_its_own_rollback_if_it_fails_again(harness: Harness) -> None:
    await dispatched(harness, {"name": "move", "on_failure": "undo"}, rollbacks={"undo": ["stop"]})
    await harness.reply("step-1-a1", FAILURE)
    await harness.reply("rollback-1-a1", SUCCESS)
    await harness.operations.retry(1, None, OPERATOR)
    await harness.reply("step-1-a2", FAILURE)
    assert (await row(harness))["status"] == "failed"
    await harness.reply("rollback-2-a1", SUCCESS)
    assert (await row(harness))["status"] == "rolled_back"


async def test_a_retry_waits_for_the_rollback_and_only_who_failed_can_be_retried(harness: Harness) -> None:
    await dispatched(harness, {"name": "move", "on_failure": "undo"}, ("a", "b"), rollbacks={"undo": ["stop"]})
    await harness.reply("step-1-a1", FAILURE)
    with pytest.raises(CallerError, match="being rolled back"):
        await harness.operations.retry(1, ["a"], OPERATOR)
    with pytest.raises(CallerError, match="no failed member b"):
        await harness.operations.retry(1, ["b"], OPERATOR)
