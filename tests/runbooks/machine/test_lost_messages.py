"""Messages that never arrive: what they would have said is found in the tables."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from any_order import Telling
from harness import OPERATOR, STILL_POLLING, SUCCESS, Harness, csv, open_harness, runbook
from hypothesis import given, settings
from hypothesis import strategies as st
from test_any_order import plain
from tests.long_form import sized

from lucius.runbooks.loops.settings import OrchestratorSettings
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase

LOST_AFTER = OrchestratorSettings().lost_after_seconds + 1


async def lose(harness: Harness, kind: str) -> None:
    """Take what is on the bus away, which must be one message of this kind."""
    assert [body["messageType"] for body in await harness.intercept()] == [kind]
    await harness.orchestrator.recover_lost_messages()
    await harness.settle()


async def find(harness: Harness) -> None:
    harness.clock.advance(LOST_AFTER)
    await harness.orchestrator.recover_lost_messages()
    await harness.settle()


async def lost(harness: Harness) -> list[str]:
    return [event["message"] for event in await harness.events("message-lost")]


async def test_lost_phase_due_is_found(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"]}))
    await harness.batch("moves")
    await harness.tick()
    await lose(harness, "phase-due")
    assert await harness.phases() == {"one": "dispatched"}
    await find(harness)
    assert await harness.batch_status() == "completed"
    assert await lost(harness) == ["phase-due"]


async def test_lost_batch_init_is_found(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"]}, init=["check", "open"]))
    await harness.batch("moves")
    await lose(harness, "batch-init")
    assert await harness.init() == ["pending", "pending"]
    await find(harness)
    assert await harness.init() == ["succeeded", "succeeded"]
    assert await lost(harness) == ["batch-init"]


async def test_lost_member_added_is_found(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"], "two": ["b"]}, offsets={"one": "T-1h", "two": "T-0"}))
    await harness.batch("moves", starts_in=3_600)
    await harness.step()
    await harness.operations.add_members(1, csv(["late"]), OPERATOR)
    await lose(harness, "member-added")
    assert "late a" not in await harness.steps()
    await find(harness)
    assert (await harness.steps())["late a"] == "succeeded"
    assert await lost(harness) == ["member-added"]


async def test_lost_member_removed_is_found(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"]}, on_member_removed=["leave"], offsets={"one": "T-0"}))
    await harness.batch("moves", starts_in=3_600)
    await harness.settle()
    await harness.operations.remove(1, ["a"], OPERATOR)
    await lose(harness, "member-removed")
    assert await harness.followups() == {}
    await find(harness)
    assert await harness.followups() == {"removal a leave": "succeeded"}
    assert await lost(harness) == ["member-removed"]


@pytest.mark.parametrize("place", ["step", "init", "removal"])
async def test_lost_poll_check_is_found(real_harness: Harness, place: str) -> None:
    harness = real_harness
    poll = {"name": "poll", "poll": {"interval": "5m", "timeout": "2d"}, "timeout": "1d"}
    lists: dict[str, Any] = {"init": {"init": [poll]}, "removal": {"on_member_removed": [poll]}, "step": {}}
    await harness.publish(runbook({"one": [poll if place == "step" else "a"]}, **lists[place]))
    harness.answer = lambda job: STILL_POLLING if job.id.endswith("-a1") and job.function == "poll" else SUCCESS
    await harness.batch("moves", ["a"], starts_in=0 if place != "removal" else 7_200)
    await harness.step()
    if place == "removal":
        await harness.operations.remove(1, ["a"], OPERATOR)
        await harness.settle()
    harness.clock.advance(301)
    await harness.tick()
    await lose(harness, "poll-check")
    assert harness.functions().count("poll") == 1
    await find(harness)
    assert harness.functions().count("poll") == 2
    assert await lost(harness) == ["poll-check"]


async def test_what_was_handled_is_not_lost(real_harness: Harness) -> None:
    """Every kind of message, each handled: looking at the tables finds nothing more."""
    harness = real_harness
    poll = {"name": "poll", "poll": {"interval": "5m", "timeout": "2d"}}
    phases = {"one": ["a", poll], "two": ["b"]}
    await harness.publish(
        runbook(phases, init=["check"], on_member_removed=["leave"], offsets={"one": "T-1h", "two": "T-0"})
    )
    harness.answer = lambda job: STILL_POLLING if job.id.endswith("-a1") and job.function == "poll" else SUCCESS
    await harness.batch("moves", starts_in=3_600)
    await harness.step()
    await harness.operations.add_members(1, csv(["late"]), OPERATOR)
    await harness.operations.remove(1, ["b"], OPERATOR)
    await harness.settle()
    for _ in range(4):
        await harness.step(400)
        await find(harness)
    await harness.step(3_600)
    await find(harness)
    assert await harness.batch_status() == "completed"
    assert await lost(harness) == []


async def test_one_that_cannot_be_taken_up_keeps_nobody_waiting(harness: Harness) -> None:
    await harness.publish(runbook({"one": ["a"]}))
    for _ in range(2):
        await harness.batch("moves")
    await harness.tick()
    assert len(await harness.intercept()) == 2
    await harness.run("UPDATE phase_executions SET runbook_version = 99 WHERE batch_id = 1")
    harness.clock.advance(LOST_AFTER)
    await harness.orchestrator.recover_lost_messages()
    assert [type(error).__name__ for error in harness.observer.failures] == ["RunbookMissing"]
    harness.observer.failures.clear()
    await harness.settle()
    assert [await harness.batch_status(number) for number in (1, 2)] == ["active", "completed"]


class Losing(Telling):
    """Any message of the scheduler may be lost altogether; results are not messages that can be found again."""

    def _add(self, content: Any, is_result: bool) -> None:
        assert self.random is not None
        if is_result or self.random.random() < 0.5:
            super()._add(content, is_result)

    async def _pass_time(self) -> None:
        await super()._pass_time()
        for harness in self.stands:
            await harness.orchestrator.recover_lost_messages()
            await harness.send_rest()


async def told_with_losses(seed: int) -> dict[str, Any]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        async with open_harness(database) as harness:
            return await Losing([harness], Random(seed)).tell()


@settings(max_examples=sized(12, 100), deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32))
def test_messages_lost_at_random_give_the_same_end(seed: int) -> None:
    assert asyncio.run(told_with_losses(seed)) == plain()
