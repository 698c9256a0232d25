"""How many steps are in which status is kept, not counted: also beside programs that do not know of it."""

from __future__ import annotations

from typing import Any

import pytest
from counts_hold import expect_counts_to_hold
from harness import FAILURE, OPERATOR, SUCCESS, Harness, csv, runbook

UNCOUNTED = (
    "UPDATE batch_changes SET counted = FALSE WHERE change_number = (SELECT MAX(n.change_number) FROM batch_changes n)"
)
"""As a program leaves it that is older than the counts."""
WRONG = "UPDATE step_counts SET pending = 77"


async def begun(harness: Harness, **parts: Any) -> None:
    await harness.publish(runbook({"one": ["first", "second"]}, **parts))
    await harness.batch("moves", ["a", "b", "c"])
    harness.answer = lambda job: None
    await harness.step()


async def shown(harness: Harness) -> list[dict[str, int]]:
    """The counts that are not 0, step by step."""
    (phase,) = (await harness.queries.batch(1))["phase_list"]
    return [{status: count for status, count in one["counts"].items() if count} for one in phase["steps"]]


async def test_a_batch_is_shown_by_its_counts(real_harness: Harness) -> None:
    harness = real_harness
    await begun(harness)
    assert await shown(harness) == [{"dispatched": 3}, {"pending": 3}]
    (waiting,) = (await harness.queries.batch(1))["waiting_for"]
    assert waiting == "phase one is at step 1 of 2 (first): 3 steps are with workers"
    harness.answer = lambda job: FAILURE if job.member == "a" else SUCCESS
    await harness.settle()
    assert await shown(harness) == [{"succeeded": 2, "failed": 1}, {"succeeded": 2, "cancelled": 1}]
    await expect_counts_to_hold(harness)
    await harness.run(WRONG)
    assert (await shown(harness))[0]["pending"] == 77, "nobody counts"


async def test_what_an_older_program_has_changed_is_counted_until_the_counts_are_made_anew(
    real_harness: Harness,
) -> None:
    harness = real_harness
    await begun(harness)
    await harness.run(WRONG)
    await harness.run(UNCOUNTED)
    assert await shown(harness) == [{"dispatched": 3}, {"pending": 3}]
    await harness.reply(next(iter(harness.waiting.values())), SUCCESS)
    assert await shown(harness) == [{"dispatched": 2, "succeeded": 1}, {"pending": 3}]
    await harness.orchestrator.count_anew()
    await expect_counts_to_hold(harness)
    assert await harness.value("SELECT COUNT(*) FROM batch_changes WHERE counted = TRUE AND change_number ="
                               " (SELECT MAX(n.change_number) FROM batch_changes n)") == 1  # fmt: skip
    await harness.run(WRONG)
    assert (await shown(harness))[0]["pending"] == 77, "nobody counts any more"


@pytest.mark.parametrize("progression", ["barrier", "independent"])
async def test_members_who_join_and_leave_are_counted(harness: Harness, progression: str) -> None:
    await begun(harness, progression=progression)
    await harness.operations.add_members(1, csv(["d"]), OPERATOR)
    await harness.settle()
    await expect_counts_to_hold(harness)
    await harness.operations.remove(1, ["a"], OPERATOR)
    await harness.settle()
    await expect_counts_to_hold(harness)
    assert sum(sum(one.values()) for one in await shown(harness)) == 8
