"""The polling protocol of the contract, sentence by sentence."""

from __future__ import annotations

from typing import Any

import pytest
from harness import FAILURE, STILL_POLLING, Harness, runbook, success

STEP = {"name": "move", "poll": {"interval": "15m", "timeout": "24h"}}


async def dispatched(harness: Harness) -> None:
    await harness.publish(runbook({"go": [STEP, "verify"]}))
    await harness.batch("moves", ["a"])
    await harness.tick()
    await harness.handle_events()
    await harness.take_jobs()


async def row(harness: Harness) -> dict[str, Any]:
    return await harness.dict_row("step_executions", 1)


async def test_polling_protocol_1_steps_are_created_with_interval_and_timeout_of_the_yaml(harness: Harness) -> None:
    await harness.publish(runbook({"go": [STEP, "verify"]}))
    await harness.batch("moves", ["a"])
    await harness.tick()
    names = "is_poll_step, poll_interval_sec, poll_timeout_sec, poll_started_at, last_polled_at, poll_count"
    assert await harness.rows(f"SELECT {names} FROM step_executions ORDER BY step_index") == [
        (1, 900, 86_400, None, None, 0),
        (0, None, None, None, None, 0),
    ]


async def test_polling_protocol_2_a_polling_response_sets_status_and_both_times(harness: Harness) -> None:
    await dispatched(harness)
    harness.clock.advance(2)
    await harness.reply("step-1-a1", STILL_POLLING)
    found, now = await row(harness), harness.clock.now()
    assert (found["status"], found["poll_started_at"], found["last_polled_at"]) == ("polling", now, now)


async def test_polling_protocol_3_the_scheduler_asks_when_the_interval_has_passed(harness: Harness) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", STILL_POLLING)
    harness.clock.advance(899.999)
    await harness.tick()
    assert await harness.intercept() == []
    harness.clock.advance(0.001)
    await harness.tick()
    (asked,) = await harness.intercept()
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


async def test_polling_protocol_4a_the_timeout_is_checked_first(harness: Harness) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", STILL_POLLING)
    await harness.step(86_401)
    assert (await row(harness))["status"] == "poll_timeout"
    assert await harness.take_jobs() == []


async def test_polling_protocol_4b_otherwise_the_step_is_dispatched_again(harness: Harness) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", STILL_POLLING)
    harness.clock.advance(900)
    await harness.tick()
    await harness.handle_events()
    assert [job.id for job in await harness.take_jobs()] == ["step-1-a2"]


async def test_polling_protocol_4c_last_polled_at_is_updated_and_poll_count_grows(harness: Harness) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", STILL_POLLING)
    began = harness.clock.now()
    harness.answer = lambda job: STILL_POLLING
    await harness.step(900)
    found = await row(harness)
    assert (found["last_polled_at"], found["poll_count"]) == (harness.clock.now(), 1)
    await harness.step(900)
    found = await row(harness)
    assert (found["last_polled_at"], found["poll_count"]) == (harness.clock.now(), 2)
    assert found["poll_started_at"] == began


@pytest.mark.parametrize(
    ("answer", "status"), [(success(), "succeeded"), (FAILURE, "failed"), (STILL_POLLING, "poll_timeout")]
)
async def test_polling_protocol_5_it_repeats_until_success_failure_or_timeout(
    harness: Harness, answer: dict[str, Any], status: str
) -> None:
    await dispatched(harness)
    await harness.reply("step-1-a1", STILL_POLLING)
    harness.answer = lambda job: STILL_POLLING
    for _ in range(5):
        await harness.step(900)
    assert ((await row(harness))["poll_count"], (await row(harness))["status"]) == (5, "polling")
    harness.answer = lambda job: answer
    for _ in range(96):
        await harness.step(900)
    assert (await row(harness))["status"] == status
