"""The clock of a shared database: it follows the database, and the machine's own clock moves it by nothing."""

from __future__ import annotations

import asyncio
import time

import pytest

from lucius.clocks import DatabaseClock, skew_problem
from lucius.domain.time import Instant
from lucius.ports.clock import TimeReading
from lucius.sql.database import DatabaseUnavailable
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.server_time import read_server_time
from lucius.testing.samples import START, ShiftedClock

HOUR_MS = 3_600_000


class Server:
    """A database's clock that stands still at `at`."""

    def __init__(self, at: Instant = START) -> None:
        self.at = at
        self.readings = 0
        self.is_down = False
        self.failures: list[str] = []

    async def read(self) -> TimeReading:
        self.readings += 1
        if self.is_down:
            raise DatabaseUnavailable("it is down")
        return TimeReading(self.at, time.monotonic(), 0.001)

    def failed(self, what: str, error: BaseException) -> None:
        self.failures.append(f"{what}: {error}")

    def clock(self, interval_seconds: float = 60.0) -> DatabaseClock:
        return DatabaseClock(self.read, ShiftedClock(), float("inf"), self.failed, interval_seconds)


def a_moment_later(clock: DatabaseClock, ms: int, error_seconds: float = 0.001) -> TimeReading:
    """The server's time is so far from the clock's."""
    return TimeReading(clock.now() + ms, time.monotonic(), error_seconds)


async def test_clock_begins_at_the_servers_time_and_counts_on() -> None:
    async with Server().clock() as clock:
        began = clock.now()
        assert START <= began < START + 5_000
        await asyncio.sleep(0.05)
        assert clock.now() >= began + 40


async def test_reading_that_agrees_as_closely_as_it_can_tell_changes_nothing() -> None:
    async with Server().clock() as clock:
        clock.correct(a_moment_later(clock, 5_000, error_seconds=60.0))
        assert clock.now() < START + 5_000


async def test_clock_goes_forward_with_the_server_at_once() -> None:
    async with Server().clock() as clock:
        clock.correct(a_moment_later(clock, HOUR_MS))
        assert clock.now() >= START + HOUR_MS


async def test_small_correction_back_stops_the_clock_until_the_server_has_caught_up() -> None:
    async with Server().clock() as clock:
        seen = clock.now()
        clock.correct(a_moment_later(clock, -900))
        for _ in range(10):
            assert clock.now() >= seen
            seen = clock.now()


async def test_large_correction_back_is_followed() -> None:
    async with Server(START + HOUR_MS).clock() as clock:
        assert clock.now() >= START + HOUR_MS
        clock.correct(a_moment_later(clock, -HOUR_MS))
        assert clock.now() < START + 60_000


async def test_clock_goes_on_while_the_server_is_away_and_follows_it_when_it_is_back() -> None:
    server = Server()
    async with server.clock(interval_seconds=0.01) as clock:
        server.is_down = True
        while not server.failures:
            await asyncio.sleep(0.01)
        assert server.failures[0] == "clock: it is down"
        assert clock.now() < START + HOUR_MS
        server.at, server.is_down = START + HOUR_MS, False
        async with asyncio.timeout(30):
            while clock.now() < START + HOUR_MS:
                await asyncio.sleep(0.01)
    readings = server.readings
    await asyncio.sleep(0.05)
    assert server.readings == readings  # It asks no more once it is closed.


async def test_clocks_of_machines_an_hour_apart_agree(postgres_database: PostgresDatabase) -> None:
    async def read() -> TimeReading:
        return await read_server_time(postgres_database)

    server, early, late = Server(), ShiftedClock(), ShiftedClock()
    late.shift_seconds = 3_600.0
    first = DatabaseClock(read, early, float("inf"), server.failed)
    second = DatabaseClock(read, late, float("inf"), server.failed)
    async with first, second:
        assert abs(first.now() - second.now()) < 1_000
        assert abs(first.now() - early.now()) < 1_000
        assert abs(second.skew_seconds - 3_600) < 1.0


@pytest.mark.parametrize(("skew", "problem"), [(29.9, None), (-29.9, None), (31.0, "31.0 s ahead"), (-31.0, "behind")])
def test_skew_is_a_problem_beyond_the_bound_in_either_direction(skew: float, problem: str | None) -> None:
    said = skew_problem(skew, 30.0)
    assert (said is None) == (problem is None)
    assert problem is None or problem in str(said)
