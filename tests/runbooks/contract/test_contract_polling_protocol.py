"""The polling protocol of the contract, sentence by sentence."""

from __future__ import annotations

from typing import Any

import pytest
from stand import FAILURE, STILL_POLLING, Stand, runbook, success

STEP = {"name": "move", "poll": {"interval": "15m", "timeout": "24h"}}


async def dispatched(stand: Stand) -> None:
    await stand.publish(runbook({"go": [STEP, "verify"]}))
    await stand.batch("moves", ["a"])
    await stand.tick()
    await stand.handle_events()
    await stand.take_jobs()


async def row(stand: Stand) -> dict[str, Any]:
    return await stand.dict_row("step_executions", 1)


async def test_polling_protocol_1_steps_are_created_with_interval_and_timeout_of_the_yaml(stand: Stand) -> None:
    await stand.publish(runbook({"go": [STEP, "verify"]}))
    await stand.batch("moves", ["a"])
    await stand.tick()
    names = "is_poll_step, poll_interval_sec, poll_timeout_sec, poll_started_at, last_polled_at, poll_count"
    assert await stand.rows(f"SELECT {names} FROM step_executions ORDER BY step_index") == [
        (1, 900, 86_400, None, None, 0),
        (0, None, None, None, None, 0),
    ]


async def test_polling_protocol_2_a_polling_response_sets_status_and_both_times(stand: Stand) -> None:
    await dispatched(stand)
    stand.clock.advance(2)
    await stand.reply("step-1-a1", STILL_POLLING)
    found, now = await row(stand), stand.clock.now()
    assert (found["status"], found["poll_started_at"], found["last_polled_at"]) == ("polling", now, now)


async def test_polling_protocol_3_the_scheduler_asks_when_the_interval_has_passed(stand: Stand) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", STILL_POLLING)
    stand.clock.advance(899.999)
    await stand.tick()
    assert await stand.intercept() == []
    stand.clock.advance(0.001)
    await stand.tick()
    (asked,) = await stand.intercept()
    assert asked == {
        "messageType": "poll-check",
        "runbookName": "moves",
        "runbookVersion": 1,
        "batchId": 1,
        "stepExecutionId": 1,
        "stepName": "move",
        "pollCount": 1,
        "kind": "step",
    }


async def test_polling_protocol_4a_the_timeout_is_checked_first(stand: Stand) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", STILL_POLLING)
    await stand.step(86_401)
    assert (await row(stand))["status"] == "poll_timeout"
    assert await stand.take_jobs() == []


async def test_polling_protocol_4b_otherwise_the_step_is_dispatched_again(stand: Stand) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", STILL_POLLING)
    stand.clock.advance(900)
    await stand.tick()
    await stand.handle_events()
    assert [job.id for job in await stand.take_jobs()] == ["step-1-a2"]


async def test_polling_protocol_4c_last_polled_at_is_updated_and_poll_count_grows(stand: Stand) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", STILL_POLLING)
    began = stand.clock.now()
    stand.answer = lambda job: STILL_POLLING
    await stand.step(900)
    found = await row(stand)
    assert (found["last_polled_at"], found["poll_count"]) == (stand.clock.now(), 1)
    await stand.step(900)
    found = await row(stand)
    assert (found["last_polled_at"], found["poll_count"]) == (stand.clock.now(), 2)
    assert found["poll_started_at"] == began


@pytest.mark.parametrize(
    ("answer", "status"), [(success(), "succeeded"), (FAILURE, "failed"), (STILL_POLLING, "poll_timeout")]
)
async def test_polling_protocol_5_it_repeats_until_success_failure_or_timeout(
    stand: Stand, answer: dict[str, Any], status: str
) -> None:
    await dispatched(stand)
    await stand.reply("step-1-a1", STILL_POLLING)
    stand.answer = lambda job: STILL_POLLING
    for _ in range(5):
        await stand.step(900)
    assert ((await row(stand))["poll_count"], (await row(stand))["status"]) == (5, "polling")
    stand.answer = lambda job: answer
    for _ in range(96):
        await stand.step(900)
    assert (await row(stand))["status"] == status
