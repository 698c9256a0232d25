"""`poll-check`: each numbered behaviour of the contract."""

from __future__ import annotations

from typing import Any

import pytest
from harness import STILL_POLLING, Harness, failure, runbook, success

from lucius.testing.samples import JOB_TOKENS

STEP = {"name": "move", "poll": {"interval": "5m", "timeout": "1h"}}


async def polling(harness: Harness, *, in_init: bool = False, **parts: Any) -> dict[str, Any]:
    """A step of the one member, or of init, that polls since now."""
    if in_init:
        await harness.publish(runbook({"go": ["last"]}, init=[{**STEP, "params": {"Window": 7}}]))
    else:
        await harness.publish(runbook({"go": [{**STEP, **parts.pop("step", {})}]}, **parts))
    await harness.batch("moves", ["a"])
    await harness.tick()
    await harness.handle_events()
    (job,) = await harness.take_jobs()
    await harness.reply(job, STILL_POLLING)
    return {
        "messageType": "poll-check",
        "runbookName": "moves",
        "runbookVersion": 1,
        "batchId": 1,
        "stepExecutionId": 1,
        "stepName": "move",
        "pollCount": 1,
        **({"kind": "init"} if in_init else {}),
    }


async def row(harness: Harness, table: str = "step_executions") -> dict[str, Any]:
    return await harness.dict_row(table, 1)


@pytest.mark.parametrize("in_init", [False, True])
async def test_poll_check_1_reads_the_record_from_step_or_init_executions(harness: Harness, in_init: bool) -> None:
    message = await polling(harness, in_init=in_init)
    await harness.send(message)
    (job,) = await harness.take_jobs()
    assert job.id == ("init-1-a2" if in_init else "step-1-a2")


@pytest.mark.parametrize("in_init", [False, True])
async def test_poll_check_2_checks_the_timeout_and_sets_poll_timeout(harness: Harness, in_init: bool) -> None:
    message = await polling(harness, in_init=in_init)
    harness.clock.advance(3_600.001)
    await harness.send(message)
    found = await row(harness, "init_executions" if in_init else "step_executions")
    assert (found["status"], found["completed_at"]) == ("poll_timeout", harness.clock.now())
    assert "3600 s of polling" in found["error_message"]
    assert await harness.take_jobs() == []
    assert await harness.batch_status() == "failed"


async def test_poll_check_2_is_not_timed_out_at_the_very_moment(harness: Harness) -> None:
    message = await polling(harness)
    harness.clock.advance(3_600)
    await harness.orchestrator.sweep()
    await harness.send(message)
    assert (await row(harness))["status"] == "polling"
    assert [job.id for job in await harness.take_jobs()] == ["step-1-a2"]


async def test_poll_check_2_handles_the_timeout_as_a_failure_with_rollback(harness: Harness) -> None:
    message = await polling(harness, step={"on_failure": "undo"}, rollbacks={"undo": ["stop"]})
    harness.clock.advance(3_601)
    await harness.send(message)
    assert await harness.followups() == {"rollback a stop": "dispatched"}
    await harness.settle()
    assert (await row(harness))["status"] == "rolled_back"


async def test_poll_check_3_goes_on_if_it_is_not_timed_out(harness: Harness) -> None:
    message = await polling(harness)
    harness.clock.advance(300)
    await harness.send(message)
    assert (await row(harness))["status"] == "polling"


async def test_poll_check_3a_dispatches_the_same_function_and_params_again(harness: Harness) -> None:
    message = await polling(harness)
    first = harness.done[0]
    await harness.send(message)
    (again,) = await harness.take_jobs()
    token = JOB_TOKENS.mint("step-1-a2", "pool", 1)
    correlation = {**first.body["correlationData"], "token": token}
    assert again.body == {**first.body, "jobId": "step-1-a2", "correlationData": correlation}


async def test_poll_check_3b_collects_the_result_of_the_poll_and_of_no_other(harness: Harness) -> None:
    await harness.send(await polling(harness))
    assert await harness.reply("step-1-a1", success()) == "STALE"
    assert (await row(harness))["status"] == "polling"
    assert await harness.reply("step-1-a2", success()) == "APPLIED"


async def test_poll_check_3c_sets_succeeded_with_the_result(harness: Harness) -> None:
    await harness.send(await polling(harness))
    harness.clock.advance(8)
    await harness.reply("step-1-a2", success(complete=True, items=3))
    found = await row(harness)
    assert (found["status"], found["completed_at"]) == ("succeeded", harness.clock.now())
    assert found["result_json"] == '{"complete":true,"items":3}'


async def test_poll_check_3d_sets_failed_with_the_error(harness: Harness) -> None:
    await harness.send(await polling(harness))
    await harness.reply("step-1-a2", failure("the move broke"))
    found = await row(harness)
    assert (found["status"], found["error_message"]) == ("failed", "the move broke")


async def test_poll_check_3e_stays_polling_until_the_next_poll_check(harness: Harness) -> None:
    await harness.send(await polling(harness))
    await harness.reply("step-1-a2", STILL_POLLING)
    assert (await row(harness))["status"] == "polling"
    harness.clock.advance(300)
    await harness.tick()
    (asked,) = await harness.intercept()
    assert (asked["messageType"], asked["pollCount"], asked["stepExecutionId"]) == ("poll-check", 2, 1)
