"""How a batch ended, told apart beyond the contract's `completed` and `failed`."""

from __future__ import annotations

from typing import Any

import pytest
from harness import FAILURE, OPERATOR, SUCCESS, Harness, runbook


async def shown(harness: Harness, batch_id: int = 1) -> tuple[str, str | None]:
    """The contract's status, and the verdict."""
    batch = await harness.queries.batch(batch_id)
    listed = (await harness.queries.batches(None, None, 10, None))[0]
    assert {one["batch_id"]: one["verdict"] for one in listed}[batch_id] == batch["verdict"]
    return batch["status"], batch["verdict"]


async def begin(harness: Harness, fails: Any, members: tuple[str, ...] = ("a", "b"), **parts: Any) -> None:
    await harness.publish(runbook({"go": ["check", "move"], "after": ["tell"]}, offsets={"after": "T+1h"}, **parts))
    harness.answer = lambda job: FAILURE if fails(job) else SUCCESS
    await harness.batch("moves", members)
    await harness.step()


async def test_every_member_succeeded(harness: Harness) -> None:
    await begin(harness, lambda job: False)
    assert await shown(harness) == ("active", None)
    await harness.step(3_600)
    assert await shown(harness) == ("completed", "completed")
    assert (await harness.queries.batch(1))["unsuccessful"] == {"count": 0, "members": []}


async def test_some_members_did_not_succeed(real_harness: Harness) -> None:
    harness = real_harness
    await begin(harness, lambda job: job.member == "b" and job.function == "move")
    await harness.step(3_600)
    assert await shown(harness) == ("failed", "completed_with_failures")
    assert (await harness.queries.batch(1))["unsuccessful"] == {
        "count": 1,
        "members": [{"member": "b", "phase": "go", "step": "move", "status": "failed", "error": "boom"}],
    }
    harness.answer = lambda job: SUCCESS
    await harness.operations.retry(1, None, OPERATOR)
    assert await shown(harness) == ("active", None)
    await harness.settle()
    assert await shown(harness) == ("completed", "completed")


async def test_who_failed_and_was_removed_does_not_count(real_harness: Harness) -> None:
    harness = real_harness
    await begin(harness, lambda job: job.member == "b")
    await harness.operations.remove(1, ["b"], OPERATOR)
    await harness.settle()
    await harness.step(3_600)
    assert await shown(harness) == ("failed", "completed"), "every member still in it succeeded"


async def test_no_member_succeeded(harness: Harness) -> None:
    await begin(harness, lambda job: job.function == "check")
    await harness.step(3_600)
    assert await shown(harness) == ("failed", "failed")


async def test_members_that_the_limit_stopped_did_not_succeed(harness: Harness) -> None:
    await begin(harness, lambda job: job.member == "b", max_failures=0)
    batch = await harness.queries.batch(1)
    assert batch["unsuccessful"]["count"] == 2
    assert [one["status"] for one in batch["unsuccessful"]["members"]] == ["cancelled", "failed"]


async def test_init_failed(real_harness: Harness) -> None:
    harness = real_harness
    await begin(harness, lambda job: job.function == "open", init=["open"])
    assert await shown(harness) == ("failed", "failed")


@pytest.mark.parametrize("fails", [True, False])
async def test_an_operator_cancelled_it(harness: Harness, fails: bool) -> None:
    await begin(harness, lambda job: fails and job.member == "b")
    await harness.operations.cancel(1, "enough", OPERATOR)
    await harness.settle()
    assert await shown(harness) == ("failed", "cancelled")
