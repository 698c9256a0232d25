"""`poll-check`: each numbered behaviour of the contract."""

from __future__ import annotations

from typing import Any

import pytest
from stand import STILL_POLLING, Stand, failure, runbook, success

STEP = {"name": "move", "poll": {"interval": "5m", "timeout": "1h"}}


async def polling(stand: Stand, *, in_init: bool = False, **parts: Any) -> dict[str, Any]:
    """A step of the one member, or of init, that polls since now."""
    if in_init:
        await stand.publish(runbook({"go": ["last"]}, init=[{**STEP, "params": {"Window": 7}}]))
    else:
        await stand.publish(runbook({"go": [{**STEP, **parts.pop("step", {})}]}, **parts))
    await stand.batch("moves", ["a"])
    await stand.tick()
    await stand.handle_events()
    (job,) = await stand.take_jobs()
    await stand.reply(job, STILL_POLLING)
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


async def row(stand: Stand, table: str = "step_executions") -> dict[str, Any]:
    return await stand.dict_row(table, 1)


@pytest.mark.parametrize("in_init", [False, True])
async def test_poll_check_1_reads_the_record_from_step_or_init_executions(stand: Stand, in_init: bool) -> None:
    message = await polling(stand, in_init=in_init)
    await stand.send(message)
    (job,) = await stand.take_jobs()
    assert job.id == ("init-1-a2" if in_init else "step-1-a2")


@pytest.mark.parametrize("in_init", [False, True])
async def test_poll_check_2_checks_the_timeout_and_sets_poll_timeout(stand: Stand, in_init: bool) -> None:
    message = await polling(stand, in_init=in_init)
    stand.clock.advance(3_600.001)
    await stand.send(message)
    found = await row(stand, "init_executions" if in_init else "step_executions")
    assert (found["status"], found["completed_at"]) == ("poll_timeout", stand.clock.now())
    assert "3600 s of polling" in found["error_message"]
    assert await stand.take_jobs() == []
    assert await stand.batch_status() == "failed"


async def test_poll_check_2_is_not_timed_out_at_the_very_moment(stand: Stand) -> None:
    message = await polling(stand)
    stand.clock.advance(3_600)
    await stand.orchestrator.sweep()
    await stand.send(message)
    assert (await row(stand))["status"] == "polling"
    assert [job.id for job in await stand.take_jobs()] == ["step-1-a2"]


async def test_poll_check_2_handles_the_timeout_as_a_failure_with_rollback(stand: Stand) -> None:
    message = await polling(stand, step={"on_failure": "undo"}, rollbacks={"undo": ["stop"]})
    stand.clock.advance(3_601)
    await stand.send(message)
    assert await stand.followups() == {"rollback a stop": "dispatched"}
    await stand.settle()
    assert (await row(stand))["status"] == "rolled_back"


async def test_poll_check_3_goes_on_if_it_is_not_timed_out(stand: Stand) -> None:
    message = await polling(stand)
    stand.clock.advance(300)
    await stand.send(message)
    assert (await row(stand))["status"] == "polling"


async def test_poll_check_3a_dispatches_the_same_function_and_params_again(stand: Stand) -> None:
    message = await polling(stand)
    first = stand.done[0]
    await stand.send(message)
    (again,) = await stand.take_jobs()
    assert again.body == {**first.body, "jobId": "step-1-a2"}


async def test_poll_check_3b_collects_the_result_of_the_poll_and_of_no_other(stand: Stand) -> None:
    await stand.send(await polling(stand))
    assert await stand.reply("step-1-a1", success()) == "STALE"
    assert (await row(stand))["status"] == "polling"
    assert await stand.reply("step-1-a2", success()) == "APPLIED"


async def test_poll_check_3c_sets_succeeded_with_the_result(stand: Stand) -> None:
    await stand.send(await polling(stand))
    stand.clock.advance(8)
    await stand.reply("step-1-a2", success(complete=True, items=3))
    found = await row(stand)
    assert (found["status"], found["completed_at"]) == ("succeeded", stand.clock.now())
    assert found["result_json"] == '{"complete":true,"items":3}'


async def test_poll_check_3d_sets_failed_with_the_error(stand: Stand) -> None:
    await stand.send(await polling(stand))
    await stand.reply("step-1-a2", failure("the move broke"))
    found = await row(stand)
    assert (found["status"], found["error_message"]) == ("failed", "the move broke")


async def test_poll_check_3e_stays_polling_until_the_next_poll_check(stand: Stand) -> None:
    await stand.send(await polling(stand))
    await stand.reply("step-1-a2", STILL_POLLING)
    assert (await row(stand))["status"] == "polling"
    stand.clock.advance(300)
    await stand.tick()
    (asked,) = await stand.intercept()
    assert (asked["messageType"], asked["pollCount"], asked["stepExecutionId"]) == ("poll-check", 2, 1)
