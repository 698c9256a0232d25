"""Every bus passes the bus suite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lucius.buses.memory import DUPLICATE_WINDOW_SECONDS as MEMORY_WINDOW
from lucius.buses.memory import MemoryBus
from lucius.buses.queues import Queues
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.buses.sql.upkeep import DUPLICATE_WINDOW_SECONDS as SQL_WINDOW
from lucius.domain.time import after
from lucius.ports.bus import DEAD_LETTER_SECONDS, Bus, Subscription
from lucius.sql.database import Database, Fetch, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.bus_durability import BusDeliveryCounts, BusDurability
from lucius.testing.bus_fairness import BusTurns
from lucius.testing.bus_publishing import ids, message, ref
from lucius.testing.bus_suite import BusSuite
from lucius.testing.samples import ManualClock

HOUR_SECONDS = 3_600.0


class TimedByHand(BusSuite, BusTurns):
    """A bus that goes by a clock of ours: time passes when a test says so."""

    dead_letter_seconds = DEAD_LETTER_SECONDS
    is_durable = True
    _clock: ManualClock

    @pytest.fixture(autouse=True)
    def _hold_clock(self, clock: ManualClock) -> None:
        self._clock = clock

    async def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    async def test_lock_of_a_clock_that_was_ahead_is_no_longer_than_a_lock(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        await self.publish(bus, "m1", "m2")
        self._clock.advance(HOUR_SECONDS)
        assert ids(await self.take(bus)) == ["m1", "m2"]
        await bus.abandon([ref("m2")], 2.0)
        self._clock.advance(-HOUR_SECONDS)
        assert await self.take(bus) == []
        self._clock.advance(self.lock_seconds)
        assert sorted(ids(await self.take(bus))) == ["m1", "m2"]

    async def test_message_of_a_clock_that_was_ahead_is_delivered_at_once(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        self._clock.advance(HOUR_SECONDS)
        await self.publish(bus, "m1")
        self._clock.advance(-HOUR_SECONDS)
        if self.is_durable:
            async with self.other_client(bus) as other:  # As the next process finds it.
                assert ids(await self.take(other)) == ["m1"]
        else:
            assert ids(await self.take(bus)) == ["m1"]

    async def test_message_for_later_is_not_delivered_early_when_the_clock_is_set_back(self, bus: Bus) -> None:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        later = message("later", deliver_at=after(self._clock.now(), 2 * HOUR_SECONDS))
        assert await bus.publish([later]) == [None]
        self._clock.advance(-HOUR_SECONDS)
        assert await self.take(bus) == []
        self._clock.advance(2.9 * HOUR_SECONDS)
        assert await self.take(bus) == []
        self._clock.advance(0.2 * HOUR_SECONDS)
        assert ids(await self.take(bus)) == ["later"]


def bodies_in_memory(queues: Queues) -> list[bytes]:
    """Also of messages that are over, for as long as anything leads to them."""
    held = {id(one): one for queue in queues for one in queue.held.values()}
    for queue in queues:
        held |= {id(one): one for one in queue._ready}
        held |= {id(one): one for _, _, one in queue._later}
        held |= {id(buried.held): buried.held for buried in queue.dead.values()}
    return [one.body for one in held.values() if one.body]


async def bodies_in_table(database: Database) -> list[bytes]:
    def script() -> Script[list[bytes]]:
        return [bytes(row[0]) for row in (yield Fetch("SELECT body FROM messages WHERE body IS NOT NULL"))]

    return await database.read(script)


class TestMemoryBus(TimedByHand):
    duplicate_window_seconds = MEMORY_WINDOW
    is_durable = False

    async def bodies_left(self, bus: Bus) -> list[bytes]:
        assert isinstance(bus, MemoryBus)
        return bodies_in_memory(bus._queues)

    @pytest.fixture
    async def bus(self, clock: ManualClock) -> AsyncIterator[MemoryBus]:
        async with MemoryBus(clock) as bus:
            yield bus


class TestSqliteBus(TimedByHand, BusDurability):
    """A first delivery is only remembered, so that a pull costs no write."""

    duplicate_window_seconds = SQL_WINDOW

    async def bodies_left(self, bus: Bus) -> list[bytes]:
        assert isinstance(bus, JournaledBus)
        stored = await bodies_in_table(bus.database)
        assert len(bodies_in_memory(bus._queues)) <= len(stored), "memory keeps nothing that the table has let go"
        return stored

    def other_client(self, bus: Bus) -> Bus:
        """Only after the first is gone: this bus has one owner."""
        assert isinstance(bus, JournaledBus)
        return JournaledBus(bus.database, self._clock)

    @pytest.fixture
    async def bus(self, sqlite_database: SqliteDatabase, clock: ManualClock) -> AsyncIterator[JournaledBus]:
        async with JournaledBus(sqlite_database, clock) as bus:
            yield bus


class TestPostgresBus(TimedByHand, BusDeliveryCounts):
    duplicate_window_seconds = SQL_WINDOW

    is_shared = True

    async def bodies_left(self, bus: Bus) -> list[bytes]:
        assert isinstance(bus, SqlBus)
        return await bodies_in_table(bus.database)

    def other_client(self, bus: Bus) -> Bus:
        assert isinstance(bus, SqlBus)
        return SqlBus(bus.database, self._clock)

    @pytest.fixture
    async def bus(self, postgres_database: PostgresDatabase, clock: ManualClock) -> AsyncIterator[SqlBus]:
        async with SqlBus(postgres_database, clock) as bus:
            yield bus
