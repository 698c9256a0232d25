"""Every bus passes the bus suite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lucius.buses.memory import DUPLICATE_WINDOW_SECONDS as MEMORY_WINDOW
from lucius.buses.memory import MemoryBus
from lucius.buses.sql import SqlBus
from lucius.buses.sql.bus import DUPLICATE_WINDOW_SECONDS as SQL_WINDOW
from lucius.ports.bus import Bus
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.bus_suite import BusSuite
from lucius.testing.samples import ManualClock


class TimedByHand(BusSuite):
    """A bus that goes by a clock of ours: time passes when a test says so."""

    _clock: ManualClock

    @pytest.fixture(autouse=True)
    def _hold_clock(self, clock: ManualClock) -> None:
        self._clock = clock

    async def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)


class TestMemoryBus(TimedByHand):
    duplicate_window_seconds = MEMORY_WINDOW

    @pytest.fixture
    async def bus(self, clock: ManualClock) -> AsyncIterator[MemoryBus]:
        async with MemoryBus(clock) as bus:
            yield bus


class TestSqliteBus(TimedByHand):
    duplicate_window_seconds = SQL_WINDOW

    @pytest.fixture
    async def bus(self, sqlite_database: SqliteDatabase, clock: ManualClock) -> AsyncIterator[SqlBus]:
        async with SqlBus(sqlite_database, clock) as bus:
            yield bus


class TestPostgresBus(TimedByHand):
    duplicate_window_seconds = SQL_WINDOW

    def other_client(self, bus: Bus) -> Bus | None:
        assert isinstance(bus, SqlBus)
        return SqlBus(bus.database, self._clock)

    @pytest.fixture
    async def bus(self, postgres_database: PostgresDatabase, clock: ManualClock) -> AsyncIterator[SqlBus]:
        async with SqlBus(postgres_database, clock) as bus:
            yield bus
