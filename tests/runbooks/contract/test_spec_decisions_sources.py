"""runbooks.md §4: sources by time column and `immediate`, the guard, and automation on and off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from stand import OPERATOR, SUCCESS, Stand, runbook

from lucius.domain.errors import CallerError
from lucius.runbooks.messages import utc

INTERVAL = 60
"""Seconds between two readings of a source."""


class Source:
    """A CSV file, read by way of an environment variable."""

    def __init__(self, stand: Stand, path: Path) -> None:
        self.stand = stand
        self.path = path
        stand.environ["LUCIUS_SOURCE_MEMBERS"] = str(path)

    def write(self, members: Sequence[str], times: Any = None) -> None:
        """`times`: the batch time of all, or of each by name."""
        times = times if isinstance(times, dict) else dict.fromkeys(members, times)
        lines = [f"{member},{utc(times[member]) if times[member] is not None else ''}" for member in members]
        self.path.write_text("\n".join(["Upn,Moves", *lines]) + "\n")

    async def read(self) -> None:
        """The next reading, and what follows from it."""
        await self.stand.step(INTERVAL)


@pytest.fixture
def source(stand: Stand, tmp_path: Path) -> Source:
    return Source(stand, tmp_path / "members.csv")


def text(is_immediate: bool = False, phases: Any = None, **parts: Any) -> str:
    moment = {"batch_time": "immediate"} if is_immediate else {"batch_time_column": "Moves"}
    given = {"type": "csv", "connection": "LUCIUS_SOURCE_MEMBERS", "primary_key": "Upn", **moment}
    return runbook(phases or {"go": ["move"]}, data_source=given, **parts)


async def members(stand: Stand) -> list[tuple[Any, ...]]:
    return await stand.rows("SELECT batch_id, member_key, status FROM batch_members ORDER BY id")


async def control(stand: Stand) -> tuple[Any, ...]:
    return (await stand.rows("SELECT source_state, source_count, held_count FROM runbook_controls"))[0]


async def test_members_of_one_time_are_one_batch(stand: Stand, source: Source) -> None:
    soon, later = stand.clock.now() + 7_200_000, stand.clock.now() + 86_400_000
    source.write(["a", "b", "c"], {"a": soon, "b": later, "c": soon})
    await stand.publish(text())
    await stand.step()
    assert await stand.rows("SELECT id, batch_start_time, status, origin FROM batches ORDER BY id") == [
        (1, soon, "active", "source"), (2, later, "active", "source"),
    ]  # fmt: skip
    assert await members(stand) == [(1, "a", "active"), (1, "c", "active"), (2, "b", "active")]
    assert await stand.rows("SELECT DISTINCT due_at - batch_start_time FROM phase_executions p"
                            " JOIN batches b ON b.id = p.batch_id") == [(0,)]  # fmt: skip


async def test_a_member_that_comes_or_goes_is_told_to_the_orchestrator(stand: Stand, source: Source) -> None:
    soon = stand.clock.now() + 7_200_000
    source.write(["a", "b", "c"], soon)
    await stand.publish(text(on_member_removed=["leave"]))
    await stand.step()
    source.write(["a", "b", "d"], soon)
    await source.read()
    assert await members(stand) == [
        (1, "a", "active"), (1, "b", "active"), (1, "c", "removed"), (1, "d", "active"),
    ]  # fmt: skip
    assert [job.function for job in stand.done] == ["leave"]
    stamps = await stand.rows("SELECT add_dispatched_at, remove_dispatched_at FROM batch_members WHERE id IN (3, 4)")
    assert stamps == [(None, stand.clock.now()), (stand.clock.now(), None)]


async def test_a_member_whose_time_changes_leaves_one_batch_and_joins_another(stand: Stand, source: Source) -> None:
    soon, later = stand.clock.now() + 7_200_000, stand.clock.now() + 86_400_000
    source.write(["a", "b"], {"a": soon, "b": soon})
    await stand.publish(text())
    await stand.step()
    source.write(["a", "b"], {"a": soon, "b": later})
    await source.read()
    assert await members(stand) == [(1, "a", "active"), (1, "b", "removed"), (2, "b", "active")]


async def test_who_comes_back_is_a_new_row(stand: Stand, source: Source) -> None:
    soon = stand.clock.now() + 7_200_000
    for keys in (["a", "b", "c"], ["a", "b"], ["a", "b", "c"]):
        source.write(keys, soon)
        if keys == ["a", "b", "c"] and not await stand.rows("SELECT id FROM runbooks"):
            await stand.publish(text())
        await source.read()
    assert [row for row in await members(stand) if row[1] == "c"] == [(1, "c", "removed"), (1, "c", "active")]


async def test_removal_reads_the_last_known_row_though_it_is_not_current(stand: Stand, source: Source) -> None:
    soon = stand.clock.now() + 7_200_000
    source.write(["a", "b", "c"], soon)
    await stand.publish(text(on_member_removed=[{"name": "leave", "params": {"Upn": "{{Upn}}", "At": "{{Moves}}"}}]))
    await stand.step()
    source.write(["a", "b"], soon)
    await source.read()
    assert await stand.rows("SELECT _member_key, _is_current FROM runbook_moves_v1 ORDER BY 1") == [
        ("a", 1), ("b", 1), ("c", 0),
    ]  # fmt: skip
    assert [job.params for job in stand.done] == [{"Upn": "c", "At": utc(soon)}]


async def test_an_ended_batch_takes_no_joiners_they_make_a_new_batch(stand: Stand, source: Source) -> None:
    now = stand.clock.now()
    source.write(["a"], now)
    await stand.publish(text())
    await stand.step()
    await stand.step()
    assert await stand.batch_status(1) == "completed"
    source.write(["a", "b"], now)
    await source.read()
    await stand.step()
    assert await members(stand) == [(1, "a", "active"), (2, "b", "active")]
    assert await stand.batch_status(2) == "completed"
    assert [job.member for job in stand.done] == ["a", "b"]


async def test_who_was_told_of_too_late_makes_a_new_batch(stand: Stand, source: Source) -> None:
    now = stand.clock.now()
    source.write(["a"], now)
    await stand.publish(text())
    stand.answer = lambda job: None
    await stand.step()
    await stand.step()
    source.write(["a", "b"], now)
    stand.clock.advance(INTERVAL)
    await stand.tick()
    (late,) = await stand.intercept()
    stand.answer = lambda job: SUCCESS
    await stand.settle()
    assert await stand.batch_status(1) == "completed"
    await stand.send(late)
    await source.read()
    await stand.step()
    assert await members(stand) == [(1, "a", "active"), (1, "b", "removed"), (2, "b", "active")]
    assert [job.member for job in stand.done] == ["a", "b"]


async def test_immediate_batches_start_at_five_minutes_and_run_at_once(stand: Stand, source: Source) -> None:
    source.write(["a", "b"])
    await stand.publish(text(is_immediate=True))
    await stand.step()
    await stand.step()
    start = await stand.value("SELECT batch_start_time FROM batches")
    assert start % 300_000 == 0
    assert 0 <= stand.clock.now() - start < 300_000
    assert await stand.batch_status() == "completed"


async def test_immediate_a_member_of_an_open_batch_joins_no_other(stand: Stand, source: Source) -> None:
    source.write(["a"])
    await stand.publish(text(is_immediate=True))
    stand.answer = lambda job: None
    await stand.step()
    source.write(["a", "b"])
    await stand.step(600)
    assert await members(stand) == [(1, "a", "active"), (2, "b", "active")]


async def test_immediate_who_was_in_a_batch_does_not_begin_again(stand: Stand, source: Source) -> None:
    source.write(["a"])
    await stand.publish(text(is_immediate=True))
    await stand.step()
    await stand.step()
    assert await stand.batch_status() == "completed"
    await stand.step(3_600)
    assert await stand.value("SELECT COUNT(*) FROM batches") == 1


# --- The guard -------------------------------------------------------------------------------------------------------


async def prepared(stand: Stand, source: Source, count: int = 10) -> int:
    soon = stand.clock.now() + 86_400_000
    source.write([f"m{number}" for number in range(count)], soon)
    await stand.publish(text(on_member_removed=["leave"]))
    await stand.step()
    assert await control(stand) == ("ok", count, None)
    return soon


@pytest.mark.parametrize("left", [0, 4])
async def test_a_source_with_far_fewer_members_changes_nobody(stand: Stand, source: Source, left: int) -> None:
    soon = await prepared(stand, source)
    source.write([f"m{number}" for number in range(left)], soon)
    await source.read()
    await source.read()
    assert {row[2] for row in await members(stand)} == {"active"}
    assert await control(stand) == ("held", 10, left)
    (event,) = await stand.events("source-held")
    assert event["held"] == left
    assert "nobody is changed" in event["detail"]


async def test_a_source_with_half_of_its_members_is_believed(stand: Stand, source: Source) -> None:
    soon = await prepared(stand, source)
    source.write([f"m{number}" for number in range(5)], soon)
    await source.read()
    assert [row[2] for row in await members(stand)] == ["active"] * 5 + ["removed"] * 5


async def test_a_source_that_shrank_is_believed_once_an_operator_confirms(stand: Stand, source: Source) -> None:
    soon = await prepared(stand, source)
    source.write(["m0"], soon)
    await source.read()
    assert await stand.publishing.confirm_source("moves", OPERATOR) == {"name": "moves", "confirmed": 1}
    await stand.step(1)
    assert [row[2] for row in await members(stand)] == ["active"] + ["removed"] * 9
    assert await control(stand) == ("ok", 1, None)
    with pytest.raises(CallerError, match="is not held"):
        await stand.publishing.confirm_source("moves", OPERATOR)


async def test_a_confirmation_holds_for_no_fewer_than_were_seen(stand: Stand, source: Source) -> None:
    soon = await prepared(stand, source)
    source.write(["m0", "m1"], soon)
    await source.read()
    await stand.publishing.confirm_source("moves", OPERATOR)
    source.write([], soon)
    await source.read()
    assert {row[2] for row in await members(stand)} == {"active"}


async def test_a_source_that_grows_again_goes_on_by_itself(stand: Stand, source: Source) -> None:
    soon = await prepared(stand, source)
    source.write([], soon)
    await source.read()
    source.write([f"m{number}" for number in range(9)], soon)
    await source.read()
    assert [row[2] for row in await members(stand)] == ["active"] * 9 + ["removed"]
    assert await control(stand) == ("ok", 9, None)


async def test_a_source_that_fails_changes_nobody_and_says_so(stand: Stand, source: Source) -> None:
    await prepared(stand, source)
    await asyncio.to_thread(source.path.unlink)
    await source.read()
    await source.read()
    assert {row[2] for row in await members(stand)} == {"active"}
    assert (await control(stand))[:2] == ("failed", 10)
    (event,) = await stand.events("source-failed")
    assert "LUCIUS_SOURCE_MEMBERS" in event["detail"]


async def test_a_row_that_cannot_be_read_removes_nobody(stand: Stand, source: Source) -> None:
    soon = await prepared(stand, source, 3)
    source.write(["m0", "m1"], soon)
    source.path.write_text(source.path.read_text() + "m2,not a time\n")
    await source.read()
    assert {row[2] for row in await members(stand)} == {"active"}


async def test_a_source_that_shrank_does_not_keep_phases_from_their_time(stand: Stand, source: Source) -> None:
    soon = await prepared(stand, source)
    source.write([], soon)
    await source.read()
    await stand.step(86_400)
    assert await stand.batch_status() == "completed"


# --- Automation ------------------------------------------------------------------------------------------------------


async def test_automation_off_reads_no_source_and_begins_no_phase(stand: Stand, source: Source) -> None:
    soon = await prepared(stand, source, 2)
    await stand.publishing.set_automation("moves", False, OPERATOR)
    source.write(["m0", "m1", "m2"], soon)
    await source.read()
    await stand.step(86_400)
    assert (len(await members(stand)), await stand.phases()) == (2, {"go": "pending"})
    await stand.publishing.set_automation("moves", True, OPERATOR)
    await stand.step()
    await stand.settle()
    assert len(await members(stand)) == 3
    assert [job.function for job in stand.done] == ["move"] * 3
    assert await stand.value("SELECT actor FROM runbook_events WHERE kind = 'automation-off'") == OPERATOR


async def test_automation_off_lets_what_is_under_way_go_on(stand: Stand, source: Source) -> None:
    source.write(["a"], stand.clock.now())
    await stand.publish(text(phases={"go": [{"name": "move", "poll": {"interval": "5m", "timeout": "1d"}}, "last"]}))
    stand.answer = lambda job: {"status": "Success", "result": {"complete": False}}
    await stand.step()
    await stand.step()
    await stand.publishing.set_automation("moves", False, OPERATOR)
    stand.answer = lambda job: SUCCESS
    await stand.step(300)
    assert await stand.batch_status() == "completed"


async def test_a_scheduler_that_does_not_lead_does_nothing(stand: Stand, source: Source) -> None:
    source.write(["a"], stand.clock.now())
    await stand.publish(text())
    await stand.run("INSERT INTO runbook_leases VALUES ('scheduler', 'another', $1)", stand.clock.now() + 30_000)
    assert await stand.scheduler.tick() is False
    assert await stand.rows("SELECT id FROM batches") == []
    stand.clock.advance(30)
    assert await stand.scheduler.tick() is True
