"""Scheduler and orchestrator die at every point of a run, and those who come after them bring it to the same end.

For every commit, and for every publish and settle on a bus outside the database, the files and what lives outside are
copied as they are at that moment, and a new process goes on from the copy: that is what `kill -9` leaves behind. Deaths
in the midst of transactions, several deaths in one run, and PostgreSQL are sampled, by processes that do die. The time
is the test's own, so nothing is waited for.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct
from tests.long_form import sized
from tests.runbooks.crash.crash_story import BusOf, RunOutcome, World, tell
from tests.runbooks.crash.mortal_runbooks import COMMITTED, PUBLISHED, SETTLED, Doom, MortalBus, MortalDatabase

from lucius.buses.sql import JournaledBus, SqlBus
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase

FILE = "lucius.db"
SHARES = 2
"""The points are dealt out to so many tests, for those who run tests side by side."""
EVERY = sized(2, 1)
"""Of these points, one in so many is tried."""


POSTGRES_LIVES = sized(4, 7)
"""With three deaths each."""


class Point(Struct, frozen=True):
    number: int
    name: str
    world: World
    """As it was, on a copy of the files as they were."""


def journaled(database: MortalDatabase, world: World, doom: Doom) -> JournaledBus:
    return JournaledBus(database, world.clock)


@asynccontextmanager
async def outside(database: MortalDatabase, world: World, doom: Doom) -> AsyncIterator[MortalBus]:
    """A bus that lives on: whatever was not published when the process died is still in the outbox."""
    yield MortalBus(world.bus, doom)


BUSES: dict[str, BusOf] = {"in the database": journaled, "outside": outside}


@pytest.fixture
async def empty_file(tmp_path: Path) -> Path:
    """At the current schema, of which every story takes a copy."""
    async with SqliteDatabase(tmp_path / "empty.db") as database:
        await upgrade(database)
    return tmp_path / "empty.db"


def new_world(folder: Path, empty_file: Path) -> World:
    folder.mkdir()
    shutil.copy(empty_file, folder / FILE)
    return World(folder)


@asynccontextmanager
async def unsynced(path: Path) -> AsyncIterator[SqliteDatabase]:
    """A process that dies leaves to the kernel what it has written, so that nothing here need wait for a disk."""
    async with SqliteDatabase(path) as database:
        assert database._writer is not None
        database._writer._connection.execute("PRAGMA synchronous = OFF")
        yield database


async def go_on(world: World, bus_of: BusOf, doom: Doom, dies_inside: bool = False) -> RunOutcome:
    return await tell(world, lambda: unsynced(world.folder / FILE), bus_of, doom, dies_inside)


async def undisturbed(
    folder: Path, empty_file: Path, bus_of: BusOf, share: int
) -> tuple[RunOutcome, Doom, list[Point]]:
    """The story without a death, and what each death at a share of its points would have left behind."""
    world = new_world(folder, empty_file)
    points: list[Point] = []

    def keep(number: int, name: str) -> None:
        if number % SHARES != share:
            return
        left = copy.deepcopy(world)
        left.folder = folder.with_name(f"{folder.name}-{number}")
        left.folder.mkdir()
        for file in folder.iterdir():
            if not file.name.endswith(".owner"):
                shutil.copy(file, left.folder)
        points.append(Point(number, name, left))

    doom = Doom(at_point=keep)
    return await go_on(world, bus_of, doom), doom, points


def check(outcome: RunOutcome, whole: RunOutcome, death: str) -> None:
    for name, rows in whole.tables.items():
        assert outcome.tables[name] == rows, f"{death}: {name}"
    assert outcome.effects == whole.effects, f"{death}: not done once, or sent anew"


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("bus", BUSES)
async def test_death_at_any_point_of_a_run_loses_and_doubles_nothing(
    tmp_path: Path, empty_file: Path, bus: str, share: int
) -> None:
    whole, doom, points = await undisturbed(tmp_path / "whole", empty_file, BUSES[bus], share)
    check_whole(whole)
    assert doom.passed.count(COMMITTED) >= 70
    assert (doom.passed.count(PUBLISHED) >= 10) is (bus == "outside")
    assert (doom.passed.count(SETTLED) >= 10) is (bus == "outside")
    redelivered = 0
    for point in points[::EVERY]:
        outcome = await go_on(point.world, BUSES[bus], Doom())
        check(outcome, whole, f"death at point {point.number} of {len(doom.passed)}, {point.name}")
        redelivered += point.world.deliveries - len(whole.effects)
        shutil.rmtree(point.world.folder)
    # On the embedded bus a lock dies with its process, so that the worker got some of its jobs twice.
    assert redelivered > 0 or bus == "outside"


def check_whole(whole: RunOutcome) -> None:
    """The story has in it what it is told for."""
    assert set(whole.effects.values()) == {1}
    statuses = {(row[0], row[2]): row[4] for row in whole.tables["steps"]}
    assert statuses["broken", "copy"] == "rolled_back"
    assert statuses["leaver", "move"] == "cancelled"
    assert [statuses[member, "tell"] for member in ("ann", "bob", "late")] == ["succeeded"] * 3
    assert [row[6] for row in whole.tables["followups"]] == ["succeeded"] * 4
    assert ("Copy", "bob", "2") in whole.effects
    assert ("Warm", "", "3") in whole.effects
    assert ("Move", "late", "3") in whole.effects


async def test_death_in_the_midst_of_transactions_loses_and_doubles_nothing(tmp_path: Path, empty_file: Path) -> None:
    doom = Doom()
    whole = await go_on(new_world(tmp_path / "whole", empty_file), journaled, doom, dies_inside=True)
    count = len(doom.passed)
    assert count >= 600
    for number in range(7, count, count // 25):
        if doom.passed[number] == COMMITTED:
            number -= 1
        dying = Doom({number})
        outcome = await go_on(new_world(tmp_path / f"life-{number}", empty_file), journaled, dying, dies_inside=True)
        assert dying.deaths == 1
        check(outcome, whole, f"death at {number}, {doom.passed[number]}")


async def test_several_deaths_in_one_run_lose_and_double_nothing(tmp_path: Path, empty_file: Path) -> None:
    doom = Doom()
    whole = await go_on(new_world(tmp_path / "whole", empty_file), journaled, doom)
    count = len(doom.passed)
    for first in range(0, count // 3, 4):
        deaths = {first, first + 1, first + count // 3, first + count // 3 + 2, first + count // 2}
        dying = Doom(deaths)
        outcome = await go_on(new_world(tmp_path / f"life-{first}", empty_file), journaled, dying)
        assert dying.deaths == len(deaths)
        check(outcome, whole, f"deaths at {sorted(deaths)}")


async def test_death_on_postgres_loses_and_doubles_nothing(
    tmp_path: Path, fresh_postgres: Callable[[], Awaitable[str]]
) -> None:
    whole = await on_postgres(tmp_path / "whole", await fresh_postgres(), doom := Doom())
    check_whole(whole)
    assert doom.passed.count(COMMITTED) >= 80
    count = len(doom.passed)
    for turn in range(POSTGRES_LIVES):
        first = 2 + turn * (count // 2) // POSTGRES_LIVES
        dying = Doom({first, first + count // 4, first + count // 2})
        outcome = await on_postgres(tmp_path / f"life-{turn}", await fresh_postgres(), dying)
        assert dying.deaths == 3
        check(outcome, whole, f"deaths at {first}, {first + count // 4} and {first + count // 2}")


async def on_postgres(folder: Path, url: str, doom: Doom) -> RunOutcome:
    folder.mkdir()

    def bus_of(database: MortalDatabase, world: World, _: Doom) -> SqlBus:
        return SqlBus(database, world.clock)

    return await tell(World(folder), lambda: PostgresDatabase(url, pool_max=2), bus_of, doom, dies_inside=True)
