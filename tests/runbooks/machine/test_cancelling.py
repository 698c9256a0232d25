"""A cancelled batch has ended at once; its steps are cancelled some at a time, by whoever is there."""

from __future__ import annotations

import asyncio
from typing import Any

from counts_hold import expect_counts_to_hold
from harness import FAILURE, OPERATOR, STILL_POLLING, SUCCESS, Harness, open_harness, runbook

MEMBERS = ("a", "b", "c")
OPEN = "SELECT COUNT(*) FROM step_executions WHERE status IN ('pending', 'dispatched', 'polling')"


async def begun(harness: Harness, first: Any = "first", members: tuple[str, ...] = MEMBERS, **parts: Any) -> None:
    """A batch whose first phase has begun; its workers have not answered."""
    phases = {"one": [first, "second", "third"], "two": ["fourth"]}
    await harness.publish(runbook(phases, offsets={"one": "T-1h"}, **parts))
    await harness.batch("moves", members, starts_in=3_600)
    harness.answer = lambda job: None
    await harness.step()


async def waits(harness: Harness) -> list[str]:
    return (await harness.queries.batch(1))["waiting_for"]


async def send_rest(harness: Harness) -> int:
    """How many turns were left."""
    turns = 0
    while await harness.send_rest():
        turns += 1
        await expect_counts_to_hold(harness)
    return turns


async def test_it_has_ended_at_once_and_says_what_is_not_cancelled_yet(real_harness: Harness) -> None:
    harness = real_harness
    await begun(harness)
    said = await harness.operations.cancel(1, "enough", OPERATOR)
    assert (said["status"], await harness.batch_status()) == ("failed", "failed")
    assert await harness.value(OPEN) == 7  # Three are with workers.
    assert await waits(harness) == [
        "cancelling: 4 steps are not cancelled yet; 3 are with workers, whose answers end them"
    ]
    assert await send_rest(harness) == 3
    assert await harness.value(OPEN) == 3
    assert "1 of 3" in (await waits(harness))[0]
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert await harness.value(OPEN) == 0
    assert await harness.phases() == {"one": "failed", "two": "skipped"}
    assert await waits(harness) == ["nothing: it has ended"]
    assert set(harness.functions()) == {"first"}


async def test_answers_in_between_send_nothing_more(harness: Harness) -> None:
    await begun(harness)
    await harness.operations.cancel(1, "enough", OPERATOR)
    for answer in (SUCCESS, FAILURE, STILL_POLLING):
        await harness.reply(next(iter(harness.waiting.values())), answer)
        await expect_counts_to_hold(harness)
    await harness.step(86_400)
    assert set(harness.functions()) == {"first"}
    assert await harness.value(OPEN) == 0
    causes = await harness.rows("SELECT DISTINCT cancel_cause FROM step_executions WHERE status = 'cancelled'")
    assert set(causes) <= {("batch_stopped",), ("member_failed",)}


async def test_steps_that_wait_for_a_slot_or_poll_are_cancelled(harness: Harness) -> None:
    poll = {"name": "first", "poll": {"interval": "5m", "timeout": "2h"}}
    await begun(harness, poll, members=("a", "b", "c", "d"), max_parallel=2)
    harness.answer = lambda job: STILL_POLLING
    await harness.settle()
    assert set((await harness.steps("one")).values()) == {"polling", "pending"}
    await harness.operations.cancel(1, "", OPERATOR)
    await send_rest(harness)
    assert set((await harness.steps("one")).values()) == {"cancelled"}
    assert await harness.phases() == {"one": "failed", "two": "skipped"}


async def test_a_rollback_goes_on_to_its_end(harness: Harness) -> None:
    await begun(harness, {"name": "first", "on_failure": "undo"}, rollbacks={"undo": ["stop", "tell"]})
    await harness.reply(next(iter(harness.waiting.values())), FAILURE)
    await harness.operations.cancel(1, "", OPERATOR)
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert set((await harness.followups()).values()) == {"succeeded"}
    assert await harness.value(OPEN) == 0


async def test_a_sweep_goes_on_where_the_process_died(real_harness: Harness) -> None:
    await begun(real_harness)
    await real_harness.operations.cancel(1, "enough", OPERATOR)
    await real_harness.send_rest()
    async with open_harness(real_harness.database, real_harness.clock, holder="the next") as harness:
        assert await harness.value(OPEN) == 5
        await harness.orchestrator.resume()
        await send_rest(harness)
        assert await harness.value(OPEN) == 3
        await harness.orchestrator.resume()
        assert not await harness.send_rest(), "nothing is left to cancel"


async def test_two_processes_at_once_cancel_every_step_once(postgres_harness: Harness) -> None:
    harness = postgres_harness
    await begun(harness, members=tuple(f"m{number}" for number in range(20)))
    await harness.operations.cancel(1, "enough", OPERATOR)
    async with open_harness(harness.database, harness.clock, holder="the next") as other:
        while await harness.value(OPEN) > 20:
            await asyncio.gather(*(one.orchestrator.send_ready([1]) for one in (harness, other)))
    await expect_counts_to_hold(harness)
    numbers = [row[0] for row in await harness.rows("SELECT change_number FROM batch_changes ORDER BY 1")]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
