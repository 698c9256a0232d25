"""runbooks.md §4 and issue 9: a source that is read while it is written, and members that are missing from it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from harness import OPERATOR, Harness, open_harness, runbook

from lucius.domain.time import iso
from lucius.runbooks.core.messages import utc
from lucius.runbooks.loops.settings import SchedulerSettings
from lucius.runbooks.sources.limits import SourceLimits
from lucius.sql.database import Database
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.samples import ManualClock

INTERVAL = 60
ABSENCE = 300
MEMBERS = [f"m{number:03d}" for number in range(200)]


class Source:
    """A CSV file, rewritten in place."""

    def __init__(self, harness: Harness, path: Path) -> None:
        self.harness = harness
        self.path = path
        self.start = harness.clock.now() + 86_400_000 * 30
        harness.environ["LUCIUS_SOURCE_MEMBERS"] = str(path)

    def text(self, members: Any) -> bytes:
        return "".join(["Upn,Moves\n", *(f"{member},{utc(self.start)}\n" for member in members)]).encode()

    def write(self, members: Any) -> None:
        self.path.write_bytes(self.text(members))

    async def read(self, seconds: float = INTERVAL) -> None:
        await self.harness.step(seconds)


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    settings = SchedulerSettings(absence_seconds=ABSENCE, limits=SourceLimits(still_seconds=0.0))
    async with VolatileDatabase() as database:
        await upgrade(database)
        async with open_harness(database, settings=settings) as made:
            yield made


@pytest.fixture(params=["sqlite_database", "postgres_database"])
def any_database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def source(harness: Harness, tmp_path: Path) -> Source:
    return Source(harness, tmp_path / "members.csv")


def text(**source: Any) -> str:
    given = {"type": "csv", "connection": "LUCIUS_SOURCE_MEMBERS", "primary_key": "Upn", "batch_time_column": "Moves"}
    return runbook({"go": ["move"]}, data_source=given | source, on_member_removed=["leave"])


async def prepared(source: Source, members: Any = MEMBERS, **given: Any) -> None:
    source.write(members)
    await source.harness.publish(text(**given))
    await source.harness.step()


async def removed(harness: Harness) -> list[str]:
    return [row[0] for row in await harness.rows("SELECT member_key FROM batch_members WHERE status = 'removed'")]


async def test_a_file_that_is_read_half_written_removes_nobody(harness: Harness, source: Source) -> None:
    await prepared(source)
    whole = source.text(MEMBERS)
    line_ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    cuts = sorted({*range(0, len(whole), len(whole) // 23), *line_ends[::11], line_ends[-2], len(whole) - 1})
    for cut in cuts:
        source.path.write_bytes(whole[:cut])
        await source.read()
        source.path.write_bytes(whole)
        await source.read()
    assert await removed(harness) == []
    assert harness.functions() == [], "no removal function was called"
    assert await harness.rows("SELECT COUNT(*) FROM batch_members") == [(200,)], "and nobody was booked again"


async def test_who_is_missing_long_enough_is_removed_once(harness: Harness, source: Source) -> None:
    await prepared(source, "abcd")
    source.write("abc")
    for _ in range(ABSENCE // INTERVAL):
        await source.read()
        assert await removed(harness) == []
    await source.read()
    assert (await removed(harness), harness.functions()) == (["d"], ["leave"])
    assert await harness.rows("SELECT * FROM runbook_absences") == []
    await source.read()
    assert harness.functions() == ["leave"]


async def test_two_readings_that_lack_a_member_must_lie_far_enough_apart(harness: Harness, source: Source) -> None:
    await prepared(source, "abcd")
    source.write("abc")
    await source.read()
    await source.read(ABSENCE - 1)
    assert await removed(harness) == []
    await source.read(INTERVAL)
    assert await removed(harness) == ["d"]


async def test_who_is_back_in_between_is_counted_anew(harness: Harness, source: Source) -> None:
    await prepared(source, "abcd")
    for members, seconds in (("abc", 60), ("abcd", 240), ("abc", 60), ("abc", 290)):
        source.write(members)
        await source.read(seconds)
    assert await removed(harness) == []
    await source.read()
    assert await removed(harness) == ["d"]


async def test_events_and_waits_say_who_is_missing_and_until_when(harness: Harness, source: Source) -> None:
    await prepared(source, "abcd")
    source.write("ab")
    await source.read()
    since = harness.clock.now()
    told = {"since": utc(since), "removal_at": utc(since + ABSENCE * 1000)}
    await source.read()
    assert await harness.events("member-missing") == [{"member": "c", **told}, {"member": "d", **told}]
    batch = await harness.queries.batch(1)
    assert f"2 members are missing from the source since {iso(since)}" in batch["waiting_for"][-1]
    (member,), _ = await harness.queries.members(1, "active", "d", 10, None)
    assert member["waiting_for"].startswith("phase go is due at")
    assert f"it is missing from the source since {iso(since)}, and if still missing, removed" in member["waiting_for"]
    assert iso(since + ABSENCE * 1000) in member["waiting_for"]
    source.write("abcd")
    await source.read()
    assert await harness.events("member-found-again") == [{"member": "c", **told}, {"member": "d", **told}]
    assert "missing" not in str((await harness.queries.batch(1))["waiting_for"])


async def test_a_runbook_says_how_long_its_members_may_be_missing(harness: Harness, source: Source) -> None:
    await prepared(source, "abcd", absence="10m")
    source.write("abc")
    await source.read()
    await source.read(599)
    assert await removed(harness) == []
    await source.read()
    assert await removed(harness) == ["d"]


async def test_an_operator_removes_at_once(harness: Harness, source: Source) -> None:
    await prepared(source, "abcd")
    source.write("abc")
    await source.read()
    await harness.operations.remove(1, ["d"], OPERATOR)
    await harness.settle()
    assert (await removed(harness), harness.functions()) == (["d"], ["leave"])
    await source.read(ABSENCE)
    assert harness.functions() == ["leave"]
    assert await harness.rows("SELECT _is_current FROM runbook_moves_v1 WHERE _member_key = 'd'") == [(0,)]


async def test_members_of_an_ended_batch_are_not_booked_again_after_one_bad_reading(
    harness: Harness, source: Source
) -> None:
    source.start = harness.clock.now()
    await prepared(source, "abcd")
    await harness.step()
    assert await harness.batch_status() == "completed"
    for members in ("abc", "abcd", "abc", "abcd"):
        source.write(members)
        await source.read()
    assert await harness.rows("SELECT COUNT(*) FROM batch_members") == [(4,)]


async def test_a_reading_that_is_held_or_fails_is_no_reading(harness: Harness, source: Source) -> None:
    """From a source that shrank too far nothing follows, not even that somebody is missing."""
    await prepared(source, "abcd")
    source.write("a")
    await source.read(ABSENCE)
    source.path.write_bytes(b"Upn\n")
    await source.read(ABSENCE)
    source.write("abc")
    await source.read(ABSENCE)
    assert await removed(harness) == []
    await source.read(ABSENCE)
    assert await removed(harness) == ["d"]


async def test_after_a_confirmation_who_is_gone_is_removed_when_it_was_missing_long_enough(
    harness: Harness, source: Source
) -> None:
    await prepared(source, "abcd")
    source.write("a")
    await source.read()
    await harness.publishing.confirm_source("moves", OPERATOR)
    await source.read(1)
    assert await removed(harness) == []
    await source.read(ABSENCE)
    assert sorted(await removed(harness)) == ["b", "c", "d"]


async def test_a_row_without_a_key_says_nothing_of_who_is_missing(harness: Harness, source: Source) -> None:
    await prepared(source, "abcd")
    source.write("abc")
    await source.read()
    source.path.write_bytes(source.text("abc") + f",{utc(source.start)}\n".encode())
    await source.read(ABSENCE)
    assert await removed(harness) == [], "that row may be the missing member's"
    source.write("abc")
    await source.read()
    assert await removed(harness) == ["d"], "and it does not count as having been seen"


async def test_who_is_missing_keeps_the_time_it_was_last_seen(harness: Harness, source: Source) -> None:
    await prepared(source, "abcd")
    seen = harness.clock.now()
    source.write("abc")
    await source.read()
    rows = dict(await harness.rows("SELECT _member_key, _last_seen_at FROM runbook_moves_v1"))
    assert rows == {"a": harness.clock.now(), "b": harness.clock.now(), "c": harness.clock.now(), "d": seen}


async def test_a_database_is_held_to_the_same(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "members.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as members:
        members.execute("CREATE TABLE members (Upn TEXT, Moves TEXT)")
        members.executemany(
            "INSERT INTO members VALUES (?, ?)", [(key, utc(harness.clock.now() * 2)) for key in "abcd"]
        )
        harness.environ["LUCIUS_SOURCE_MEMBERS"] = f"sqlite:///{path}"
        await harness.publish(text(type="sql", query="SELECT Upn, Moves FROM members"))
        await harness.step()
        members.execute("DELETE FROM members WHERE Upn = 'd'")
    await harness.step(INTERVAL)
    assert await removed(harness) == []
    await harness.step(ABSENCE)
    assert await removed(harness) == ["d"]


async def test_who_is_missing_is_known_after_a_restart(any_database: Database, tmp_path: Path) -> None:
    clock = ManualClock()
    settings = SchedulerSettings(absence_seconds=ABSENCE, lease_seconds=1, limits=SourceLimits(still_seconds=0.0))
    for number, members in enumerate(("abcd", "abc", "abc")):
        clock.advance(ABSENCE * 2 / 3)
        async with open_harness(any_database, clock, settings, f"life {number}") as harness:
            source = Source(harness, tmp_path / "members.csv")
            source.start = 2_000_000_000_000
            source.write(members)
            if number == 0:
                await harness.publish(text())
            await harness.step()
            assert await removed(harness) == []
    async with open_harness(any_database, clock, settings, "the last") as harness:
        source = Source(harness, tmp_path / "members.csv")
        await source.read(ABSENCE)
        assert (await removed(harness), harness.functions()) == (["d"], ["leave"])
