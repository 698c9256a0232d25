"""A member with steps already sent whose date moves in the source is held, alone, until somebody decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import OPERATOR, SUCCESS, Harness, runbook

from lucius.domain.errors import CallerError
from lucius.runbooks.core.messages import utc

INTERVAL = 60
DAY = 86_400


class Dates:
    """A CSV with a date for each member: the batch of `soon` has sent its first phase, `late` is three days later."""

    def __init__(self, harness: Harness, path: Path) -> None:
        self.harness, self.path = harness, path
        self.soon = harness.clock.now() + DAY * 1000
        self.late = self.soon + 3 * DAY * 1000
        harness.environ["LUCIUS_SOURCE_MEMBERS"] = str(path)

    def write(self, **times: int) -> None:
        lines = [f"{member},{utc(time)}" for member, time in times.items()]
        self.path.write_text("\n".join(["Upn,Moves", *lines]) + "\n")

    async def read(self) -> None:
        await self.harness.step(INTERVAL)

    async def begin(self, **parts: Any) -> None:
        """`prep` has begun for a and b; `go` is due at their date."""
        self.write(a=self.soon, b=self.soon)
        given = {
            "type": "csv", "connection": "LUCIUS_SOURCE_MEMBERS", "primary_key": "Upn", "batch_time_column": "Moves",
        }  # fmt: skip
        phases = {"prep": ["check", "tell"], "go": ["move"]}
        removed = {"on_member_removed": ["leave"]}
        await self.harness.publish(runbook(phases, offsets={"prep": "T-2d"}, data_source=given, **removed, **parts))
        await self.harness.step()
        await self.harness.step()


async def members(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("SELECT batch_id, member_key, status FROM batch_members ORDER BY id")


async def waits(harness: Harness, member: str, batch_id: int = 1) -> str:
    found, _ = await harness.queries.members(batch_id, "all", member, 10, None)
    return str(found[-1]["waiting_for"])


@pytest.fixture
def dates(real_harness: Harness, tmp_path: Path) -> Dates:
    return Dates(real_harness, tmp_path / "members.csv")


@pytest.fixture
def quick(harness: Harness, tmp_path: Path) -> Dates:
    return Dates(harness, tmp_path / "members.csv")


async def test_it_is_held_alone_and_the_others_go_on(dates: Dates) -> None:
    harness = dates.harness
    await dates.begin()
    dates.write(a=dates.soon, b=dates.late)
    await dates.read()
    assert await members(harness) == [(1, "a", "active"), (1, "b", "active")]
    assert "leave" not in harness.functions()
    held = (await harness.rows("SELECT move_held_at, move_to FROM batch_members WHERE member_key = 'b'"))[0]
    assert held == (harness.clock.now(), dates.late)
    assert await harness.events("member-move-held") == [{"member": "b", "from": utc(dates.soon), "to": utc(dates.late)}]
    await dates.read()
    assert len(await harness.events("member-move-held")) == 1
    await harness.step(DAY)
    assert await harness.steps("go") == {"a move": "succeeded", "b move": "pending"}
    assert await harness.batch_status() == "active"
    said = await waits(harness, "b")
    assert said == (
        f"held: the source has moved it from {utc(dates.soon)} to {utc(dates.late)} after steps of it were sent;"
        " confirm the move or keep it in this batch"
    )
    shown = await harness.queries.batch(1)
    assert f"1 member is held because the source has moved it to another date: b to {utc(dates.late)}" in str(
        shown["waiting_for"]
    )
    assert shown["members"] == {"active": 2, "removed": 0, "failed": 0, "held": 1}
    assert [one["member"] for one in (await harness.queries.members(1, "held", None, 10, None))[0]] == ["b"]


async def test_a_confirmed_move_removes_it_and_books_it_at_the_new_date(dates: Dates) -> None:
    harness = dates.harness
    await dates.begin()
    dates.write(a=dates.soon, b=dates.late)
    await dates.read()
    assert await harness.operations.confirm_move(1, ["b"], OPERATOR) == {"batch_id": 1, "members": 1}
    await harness.step()
    assert await members(harness) == [(1, "a", "active"), (1, "b", "removed"), (2, "b", "active")]
    assert harness.functions().count("leave") == 1
    assert (await harness.events("member-move-confirmed"))[0]["to"] == utc(dates.late)
    shown = (await harness.queries.members(1, "removed", "b", 10, None))[0][0]
    assert shown["move_held_at"] is None, "it is decided"
    await harness.step(DAY)
    assert await harness.batch_status(1) == "completed"
    with pytest.raises(CallerError, match="no member of batch 2 is held"):
        await harness.operations.confirm_move(2, None, OPERATOR)


async def test_a_kept_member_goes_on_in_its_batch_and_is_not_held_again_for_that_date(quick: Dates) -> None:
    harness = quick.harness
    await quick.begin()
    quick.write(a=quick.soon, b=quick.late)
    await quick.read()
    await harness.step(DAY)
    assert await harness.steps("go") == {"a move": "succeeded", "b move": "pending"}
    assert await harness.operations.keep(1, None, OPERATOR) == {"batch_id": 1, "members": 1}
    await harness.settle()
    await quick.read()
    assert await harness.steps("go") == {"a move": "succeeded", "b move": "succeeded"}
    await quick.read()
    # Nor is it booked for that date once its batch has ended.
    assert await members(harness) == [(1, "a", "active"), (1, "b", "active")]
    assert await harness.batch_status(1) == "completed"


async def test_a_kept_member_is_held_again_when_the_source_names_another_date(quick: Dates) -> None:
    harness = quick.harness
    await quick.begin()
    quick.write(a=quick.soon, b=quick.late)
    await quick.read()
    await harness.operations.keep(1, ["b"], OPERATOR)
    await quick.read()
    assert "held" not in await waits(harness, "b")
    quick.write(a=quick.soon, b=quick.late + 1000)
    await quick.read()
    assert (await waits(harness, "b")).startswith("held: ")


async def test_a_move_that_the_source_takes_back_is_over(quick: Dates) -> None:
    harness = quick.harness
    await quick.begin()
    quick.write(a=quick.soon, b=quick.late)
    await quick.read()
    quick.write(a=quick.soon, b=quick.soon)
    await quick.read()
    assert len(await harness.events("member-move-withdrawn")) == 1
    await harness.step(DAY)
    assert await harness.batch_status(1) == "completed"
    assert await harness.steps("go") == {"a move": "succeeded", "b move": "succeeded"}


async def test_a_step_in_work_ends_and_nothing_after_it_is_sent(quick: Dates) -> None:
    harness = quick.harness
    harness.answer = lambda job: None if job.function == "check" and job.member == "b" else SUCCESS
    await quick.begin()
    assert await harness.steps("prep") == {
        "a check": "succeeded", "a tell": "pending", "b check": "dispatched", "b tell": "pending",
    }  # fmt: skip
    quick.write(a=quick.soon, b=quick.late)
    await quick.read()
    # The barrier does not wait for who is held.
    assert (await harness.steps("prep"))["a tell"] == "succeeded"
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert await harness.steps("prep") == {
        "a check": "succeeded", "a tell": "succeeded", "b check": "succeeded", "b tell": "pending",
    }  # fmt: skip
    await harness.operations.keep(1, ["b"], OPERATOR)
    await harness.settle()
    assert (await harness.steps("prep"))["b tell"] == "succeeded"


async def test_a_batch_does_not_end_while_a_member_is_held(quick: Dates) -> None:
    """Otherwise the next reading would book the member again without anybody's word."""
    harness = quick.harness
    harness.answer = lambda job: None if job.function == "move" and job.member == "a" else SUCCESS
    await quick.begin()
    await harness.step(DAY)
    quick.write(a=quick.soon, b=quick.late)
    await quick.read()
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    await quick.read()
    assert await harness.phases() == {"prep": "completed", "go": "completed"}
    assert await harness.batch_status() == "active"
    assert await members(harness) == [(1, "a", "active"), (1, "b", "active")]
    await harness.operations.confirm_move(1, ["b"], OPERATOR)
    await harness.step()
    assert await harness.batch_status(1) == "completed"
    assert await members(harness) == [(1, "a", "active"), (1, "b", "removed"), (2, "b", "active")]


async def test_a_member_of_whom_nothing_was_sent_moves_at_once(quick: Dates) -> None:
    harness = quick.harness
    quick.soon += 10 * DAY * 1000
    quick.late += 10 * DAY * 1000
    await quick.begin()
    quick.write(a=quick.soon, b=quick.late)
    await quick.read()
    assert await members(harness) == [(1, "a", "active"), (1, "b", "removed"), (2, "b", "active")]


async def test_who_is_held_and_leaves_the_source_is_removed(quick: Dates) -> None:
    harness = quick.harness
    await quick.begin()
    quick.write(a=quick.soon, b=quick.late)
    await quick.read()
    quick.write(a=quick.soon)
    await quick.read()
    assert await members(harness) == [(1, "a", "active"), (1, "b", "removed")]
    await harness.step(DAY)
    assert await harness.batch_status(1) == "completed"


async def test_only_who_is_held_can_be_confirmed_or_kept(quick: Dates) -> None:
    harness = quick.harness
    await quick.begin()
    quick.write(a=quick.soon, b=quick.late)
    await quick.read()
    for act in (harness.operations.confirm_move, harness.operations.keep):
        with pytest.raises(CallerError, match="batch 1 holds no member a, nobody"):
            await act(1, ["a", "nobody"], OPERATOR)
        with pytest.raises(CallerError, match="there is no batch 9"):
            await act(9, None, OPERATOR)
