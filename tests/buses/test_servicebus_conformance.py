"""The bus on Service Bus passes the bus suite, on the project's own server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.servicebus_server import ProvisionedBus, ServerThread

from lucius.ports.bus import Bus
from lucius.testing.bus_durability import BusDeliveryCounts
from lucius.testing.bus_suite import BusSuite
from lucius.testing.bus_topics import BusTopicsApart
from lucius.testing.samples import ShiftedClock
from lucius.testing.servicebus.settings import SIZE_BYTES_DEFAULT

NOTICE_SECONDS = 0.15
"""Until both sides have noticed that time has passed."""
OTHERS_LOOK_SECONDS = 3.0
"""The first client has credit for a moment after its last caller has left: what comes then, it releases for others."""


class TestServiceBus(BusSuite, BusDeliveryCounts, BusTopicsApart):
    # Time passes at once; these must be longer than a slow machine takes.
    lock_seconds = 20.0
    short_seconds = 6.0
    dead_letter_seconds = 60.0
    duplicate_window_seconds = 60.0
    is_shared = True
    can_withdraw = False
    settles_unreceived_at_once = False
    settles_for_others = False

    async def pass_time(self, seconds: float) -> None:
        await asyncio.to_thread(self.thread.advance, seconds)
        self.time.shift_seconds = self.thread.ahead_seconds
        await asyncio.sleep(NOTICE_SECONDS)

    async def bodies_left(self, bus: Bus) -> list[bytes]:
        """What waits, and what LUCIUS shows of dead letters; the broker keeps these whole."""
        await asyncio.sleep(NOTICE_SECONDS)
        dead = [letter.body for letter in await bus.dead_letters(100) if letter.body is not None]
        return [*(await asyncio.to_thread(self.thread.bodies)), *dead]

    async def close_topic(self, bus: Bus, topic: str) -> None:
        await self._limit(topic, 1)

    async def open_topic(self, bus: Bus, topic: str) -> None:
        await self._limit(topic, SIZE_BYTES_DEFAULT)

    async def _limit(self, topic: str, bytes_max: int) -> None:
        settings = self.thread.server.namespace.topic(topic).settings
        await asyncio.to_thread(self.thread.run, lambda: setattr(settings, "size_bytes_max", bytes_max))

    def other_client(self, bus: Bus) -> Bus:
        """A client knows the subscriptions that it declares; every process declares the same."""
        assert isinstance(bus, ProvisionedBus)
        other = self._make(look_seconds=OTHERS_LOOK_SECONDS)
        other._subscriptions.update(bus._subscriptions)
        return other

    def _make(self, look_seconds: float = 1.0) -> ProvisionedBus:
        return ProvisionedBus(
            self.thread,
            self.time,
            self.duplicate_window_seconds or 0,
            self.lock_seconds,
            dead_seconds=self.dead_letter_seconds,
            forget_seconds=0.0,
            gather_seconds=0.4,
            look_seconds=look_seconds,
        )

    @pytest.fixture
    def clock(self, servicebus_server: ServerThread) -> ShiftedClock:
        servicebus_server.catch_up()
        self.thread = servicebus_server
        self.time = servicebus_server.clock()
        return self.time

    @pytest.fixture
    async def bus(self, clock: ShiftedClock) -> AsyncIterator[ProvisionedBus]:
        async with self._make() as bus:
            yield bus
        await asyncio.to_thread(self.thread.forget)
