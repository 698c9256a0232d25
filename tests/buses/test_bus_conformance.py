"""Every bus passes the bus suite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lucius.buses.memory import DUPLICATE_WINDOW_SECONDS as MEMORY_WINDOW
from lucius.buses.memory import MemoryBus
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.buses.sql.upkeep import DUPLICATE_WINDOW_SECONDS as SQL_WINDOW
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
    is_durable = False

    @pytest.fixture
    async def bus(self, clock: ManualClock) -> AsyncIterator[MemoryBus]:
        async with MemoryBus(clock) as bus:
            yield bus


class TestSqliteBus(TimedByHand):
    duplicate_window_seconds = SQL_WINDOW

    delivery_counts_survive = False  # A first delivery is only remembered, so that a pull costs no write.

    def other_client(self, bus: Bus) -> Bus:
        """Only after the first is gone: this bus has one owner."""
        assert isinstance(bus, JournaledBus)
        return JournaledBus(bus.database, self._clock)

    @pytest.fixture
    async def bus(self, sqlite_database: SqliteDatabase, clock: ManualClock) -> AsyncIterator[JournaledBus]:
        async with JournaledBus(sqlite_database, clock) as bus:
            yield bus


class TestPostgresBus(TimedByHand):
    duplicate_window_seconds = SQL_WINDOW

    is_shared = True

    def other_client(self, bus: Bus) -> Bus:
        assert isinstance(bus, SqlBus)
        return SqlBus(bus.database, self._clock)

    @pytest.fixture
    async def bus(self, postgres_database: PostgresDatabase, clock: ManualClock) -> AsyncIterator[SqlBus]:
        async with SqlBus(postgres_database, clock) as bus:
            yield bus
