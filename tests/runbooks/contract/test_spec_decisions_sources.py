"""runbooks.md §4: sources by time column and `immediate`, the guard, and automation on and off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import OPERATOR, SUCCESS, Harness, runbook

from lucius.domain.errors import CallerError
from lucius.runbooks.core.messages import utc

INTERVAL = 60
"""Seconds between two readings of a source."""


class Source:
    """A CSV file, read by way of an environment variable."""

    def __init__(self, harness: Harness, path: Path) -> None:
        self.harness = harness
        self.path = path
        harness.environ["LUCIUS_SOURCE_MEMBERS"] = str(path)

    def write(self, members: Sequence[str], times: Any = None) -> None:
        """`times`: the batch time of all, or of each by name."""
        times = times if isinstance(times, dict) else dict.fromkeys(members, times)
        lines = [f"{member},{utc(times[member]) if times[member] is not None else ''}" for member in members]
        self.path.write_text("\n".join(["Upn,Moves", *lines]) + "\n")

    async def read(self) -> None:
        """The next reading, and what follows from it."""
        await self.harness.step(INTERVAL)


@pytest.fixture
def source(harness: Harness, tmp_path: Path) -> Source:
    return Source(harness, tmp_path / "members.csv")


def text(is_immediate: bool = False, phases: Any = None, **parts: Any) -> str:
    moment = {"batch_time": "immediate"} if is_immediate else {"batch_time_column": "Moves"}
    given = {"type": "csv", "connection": "LUCIUS_SOURCE_MEMBERS", "primary_key": "Upn", **moment}
    return runbook(phases or {"go": ["move"]}, data_source=given, **parts)


async def members(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("SELECT batch_id, member_key, status FROM batch_members ORDER BY id")


async def control(harness: Harness) -> tuple[Any, ...]:
    return (await harness.rows("SELECT source_state, source_count, held_count FROM runbook_controls"))[0]


async def test_members_of_one_time_are_one_batch(harness: Harness, source: Source) -> None:
    soon, later = harness.clock.now() + 7_200_000, harness.clock.now() + 86_400_000
    source.write(["a", "b", "c"], {"a": soon, "b": later, "c": soon})
    await harness.publish(text())
    await harness.step()
    assert await harness.rows("SELECT id, batch_start_time, status, origin FROM batches ORDER BY id") == [
        (1, soon, "active", "source"), (2, later, "active", "source"),
    ]  # fmt: skip
    assert await members(harness) == [(1, "a", "active"), (1, "c", "active"), (2, "b", "active")]
    assert await harness.rows("SELECT DISTINCT due_at - batch_start_time FROM phase_executions p"
                            " JOIN batches b ON b.id = p.batch_id") == [(0,)]  # fmt: skip


async def test_a_member_that_comes_or_goes_is_told_to_the_orchestrator(harness: Harness, source: Source) -> None:
    soon = harness.clock.now() + 7_200_000
    source.write(["a", "b", "c"], soon)
    await harness.publish(text(on_member_removed=["leave"]))
    await harness.step()
    source.write(["a", "b", "d"], soon)
    await source.read()
    assert await members(harness) == [
        (1, "a", "active"), (1, "b", "active"), (1, "c", "removed"), (1, "d", "active"),
    ]  # fmt: skip
    assert [job.function for job in harness.done] == ["leave"]
    stamps = await harness.rows("SELECT add_dispatched_at, remove_dispatched_at FROM batch_members WHERE id IN (3, 4)")
    assert stamps == [(None, harness.clock.now()), (harness.clock.now(), None)]


async def test_a_member_whose_time_changes_leaves_one_batch_and_joins_another(harness: Harness, source: Source) -> None:
    soon, later = harness.clock.now() + 7_200_000, harness.clock.now() + 86_400_000
    source.write(["a", "b"], {"a": soon, "b": soon})
    await harness.publish(text())
    await harness.step()
    source.write(["a", "b"], {"a": soon, "b": later})
    await source.read()
    assert await members(harness) == [(1, "a", "active"), (1, "b", "removed"), (2, "b", "active")]


async def test_who_comes_back_is_a_new_row(harness: Harness, source: Source) -> None:
    soon = harness.clock.now() + 7_200_000
    for keys in (["a", "b", "c"], ["a", "b"], ["a", "b", "c"]):
        source.write(keys, soon)
        if keys == ["a", "b", "c"] and not await harness.rows("SELECT id FROM runbooks"):
            await harness.publish(text())
        await source.read()
    assert [row for row in await members(harness) if row[1] == "c"] == [(1, "c", "removed"), (1, "c", "active")]


async def test_removal_reads_the_last_known_row_though_it_is_not_current(harness: Harness, source: Source) -> None:
    soon = harness.clock.now() + 7_200_000
    source.write(["a", "b", "c"], soon)
    await harness.publish(text(on_member_removed=[{"name": "leave", "params": {"Upn": "{{Upn}}", "At": "{{Moves}}"}}]))
    await harness.step()
    source.write(["a", "b"], soon)
    await source.read()
    assert await harness.rows("SELECT _member_key, _is_current FROM runbook_moves_v1 ORDER BY 1") == [
        ("a", 1), ("b", 1), ("c", 0),
    ]  # fmt: skip
    assert [job.params for job in harness.done] == [{"Upn": "c", "At": utc(soon)}]


async def test_an_ended_batch_takes_no_joiners_they_make_a_new_batch(harness: Harness, source: Source) -> None:
    now = harness.clock.now()
    source.write(["a"], now)
    await harness.publish(text())
    await harness.step()
    await harness.step()
    assert await harness.batch_status(1) == "completed"
    source.write(["a", "b"], now)
    await source.read()
    await harness.step()
    assert await members(harness) == [(1, "a", "active"), (2, "b", "active")]
    assert await harness.batch_status(2) == "completed"
    assert [job.member for job in harness.done] == ["a", "b"]


async def test_who_was_told_of_too_late_makes_a_new_batch(harness: Harness, source: Source) -> None:
    now = harness.clock.now()
    source.write(["a"], now)
    await harness.publish(text())
    harness.answer = lambda job: None
    await harness.step()
    await harness.step()
    source.write(["a", "b"], now)
    harness.clock.advance(INTERVAL)
    await harness.tick()
    (late,) = await harness.intercept()
    harness.answer = lambda job: SUCCESS
    await harness.settle()
    assert await harness.batch_status(1) == "completed"
    await harness.send(late)
    await source.read()
    await harness.step()
    assert await members(harness) == [(1, "a", "active"), (1, "b", "removed"), (2, "b", "active")]
    assert [job.member for job in harness.done] == ["a", "b"]


async def test_immediate_batches_start_at_five_minutes_and_run_at_once(harness: Harness, source: Source) -> None:
    source.write(["a", "b"])
    await harness.publish(text(is_immediate=True))
    await harness.step()
    await harness.step()
    start = await harness.value("SELECT batch_start_time FROM batches")
    assert start % 300_000 == 0
    assert 0 <= harness.clock.now() - start < 300_000
    assert await harness.batch_status() == "completed"


async def test_immediate_a_member_of_an_open_batch_joins_no_other(harness: Harness, source: Source) -> None:
    source.write(["a"])
    await harness.publish(text(is_immediate=True))
    harness.answer = lambda job: None
    await harness.step()
    source.write(["a", "b"])
    await harness.step(600)
    assert await members(harness) == [(1, "a", "active"), (2, "b", "active")]


async def test_immediate_who_was_in_a_batch_does_not_begin_again(harness: Harness, source: Source) -> None:
    source.write(["a"])
    await harness.publish(text(is_immediate=True))
    await harness.step()
    await harness.step()
    assert await harness.batch_status() == "completed"
    await harness.step(3_600)
    assert await harness.value("SELECT COUNT(*) FROM batches") == 1


# --- The guard -------------------------------------------------------------------------------------------------------


async def prepared(harness: Harness, source: Source, count: int = 10) -> int:
    soon = harness.clock.now() + 86_400_000
    source.write([f"m{number}" for number in range(count)], soon)
    await harness.publish(text(on_member_removed=["leave"]))
    await harness.step()
    assert await control(harness) == ("ok", count, None)
    return soon


@pytest.mark.parametrize("left", [0, 4])
async def test_a_source_with_far_fewer_members_changes_nobody(harness: Harness, source: Source, left: int) -> None:
    soon = await prepared(harness, source)
    source.write([f"m{number}" for number in range(left)], soon)
    await source.read()
    await source.read()
    assert {row[2] for row in await members(harness)} == {"active"}
    assert await control(harness) == ("held", 10, left)
    (event,) = await harness.events("source-held")
    assert event["held"] == left
    assert "nothing changes" in event["detail"]


async def test_a_source_with_half_of_its_members_is_believed(harness: Harness, source: Source) -> None:
    soon = await prepared(harness, source)
    source.write([f"m{number}" for number in range(5)], soon)
    await source.read()
    assert [row[2] for row in await members(harness)] == ["active"] * 5 + ["removed"] * 5


async def test_a_source_that_shrank_is_believed_once_an_operator_confirms(harness: Harness, source: Source) -> None:
    soon = await prepared(harness, source)
    source.write(["m0"], soon)
    await source.read()
    assert await harness.publishing.confirm_source("moves", OPERATOR) == {"name": "moves", "confirmed": 1}
    await harness.step(1)
    assert [row[2] for row in await members(harness)] == ["active"] + ["removed"] * 9
    assert await control(harness) == ("ok", 1, None)
    with pytest.raises(CallerError, match="is not held"):
        await harness.publishing.confirm_source("moves", OPERATOR)


async def test_a_confirmation_holds_for_no_fewer_than_were_seen(harness: Harness, source: Source) -> None:
    soon = await prepared(harness, source)
    source.write(["m0", "m1"], soon)
    await source.read()
    await harness.publishing.confirm_source("moves", OPERATOR)
    source.write([], soon)
    await source.read()
    assert {row[2] for row in await members(harness)} == {"active"}


async def test_a_source_that_grows_again_goes_on_by_itself(harness: Harness, source: Source) -> None:
    soon = await prepared(harness, source)
    source.write([], soon)
    await source.read()
    source.write([f"m{number}" for number in range(9)], soon)
    await source.read()
    assert [row[2] for row in await members(harness)] == ["active"] * 9 + ["removed"]
    assert await control(harness) == ("ok", 9, None)


async def test_a_source_that_fails_changes_nobody_and_says_so(harness: Harness, source: Source) -> None:
    await prepared(harness, source)
    await asyncio.to_thread(source.path.unlink)
    await source.read()
    await source.read()
    assert {row[2] for row in await members(harness)} == {"active"}
    assert (await control(harness))[:2] == ("failed", 10)
    (event,) = await harness.events("source-failed")
    assert "LUCIUS_SOURCE_MEMBERS" in event["detail"]


async def test_a_row_that_cannot_be_read_removes_nobody(harness: Harness, source: Source) -> None:
    soon = await prepared(harness, source, 3)
    source.write(["m0", "m1"], soon)
    source.path.write_text(source.path.read_text() + "m2,not a time\n")
    await source.read()
    assert {row[2] for row in await members(harness)} == {"active"}


async def test_a_source_that_shrank_does_not_keep_phases_from_their_time(harness: Harness, source: Source) -> None:
    soon = await prepared(harness, source)
    source.write([], soon)
    await source.read()
    await harness.step(86_400)
    assert await harness.batch_status() == "completed"


# --- Automation ------------------------------------------------------------------------------------------------------


async def test_automation_off_reads_no_source_and_begins_no_phase(harness: Harness, source: Source) -> None:
    soon = await prepared(harness, source, 2)
    await harness.publishing.set_automation("moves", False, OPERATOR)
    source.write(["m0", "m1", "m2"], soon)
    await source.read()
    await harness.step(86_400)
    assert (len(await members(harness)), await harness.phases()) == (2, {"go": "pending"})
    await harness.publishing.set_automation("moves", True, OPERATOR)
    await harness.step()
    await harness.settle()
    assert len(await members(harness)) == 3
    assert [job.function for job in harness.done] == ["move"] * 3
    assert await harness.value("SELECT actor FROM runbook_events WHERE kind = 'automation-off'") == OPERATOR


async def test_automation_off_lets_what_is_under_way_go_on(harness: Harness, source: Source) -> None:
    source.write(["a"], harness.clock.now())
    await harness.publish(text(phases={"go": [{"name": "move", "poll": {"interval": "5m", "timeout": "1d"}}, "last"]}))
    harness.answer = lambda job: {"status": "Success", "result": {"complete": False}}
    await harness.step()
    await harness.step()
    await harness.publishing.set_automation("moves", False, OPERATOR)
    harness.answer = lambda job: SUCCESS
    await harness.step(300)
    assert await harness.batch_status() == "completed"


async def test_a_scheduler_that_does_not_lead_does_nothing(harness: Harness, source: Source) -> None:
    source.write(["a"], harness.clock.now())
    await harness.publish(text())
    await harness.run("INSERT INTO runbook_leases VALUES ('scheduler', 'another', $1)", harness.clock.now() + 30_000)
    assert await harness.scheduler.tick() is False
    assert await harness.rows("SELECT id FROM batches") == []
    harness.clock.advance(30)
    assert await harness.scheduler.tick() is True
