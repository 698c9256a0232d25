"""The bus on NATS passes the bus suite, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.nats_server import delete_topic

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.clocks import SystemClock
from lucius.ports.bus import Bus
from lucius.testing.bus_durability import BusDeliveryCounts
from lucius.testing.bus_suite import BusSuite
from lucius.testing.bus_topics import BusTopicsApart

WAKE_MARGIN_SECONDS = 0.05
"""JetStream notices a moment later that a lock or delay has run out."""


class TestNatsBus(BusSuite, BusDeliveryCounts, BusTopicsApart):
    lock_seconds = 2.0
    short_seconds = 1.0
    dead_letter_seconds = 4.0
    duplicate_window_seconds = 4.0
    is_shared = True

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds + WAKE_MARGIN_SECONDS)

    async def bodies_left(self, bus: Bus) -> list[bytes]:
        assert isinstance(bus, NatsBus)
        names = await bus.jetstream.stream_names(f"{bus.options.prefix}.>")
        bodies = []
        for name in names:
            if "-topic-" in name or name.endswith("-dead"):
                bodies += [stored.body for stored in await bus.jetstream.page(name, ">", 1, 1_000)]
        return [body for body in bodies if body]

    async def close_topic(self, bus: Bus, topic: str) -> None:
        """A stream of LUCIUS is never full alone: NATS has no limit that a stream with schedules would keep to."""
        assert isinstance(bus, NatsBus)
        await delete_topic(bus, topic)

    async def open_topic(self, bus: Bus, topic: str) -> None:
        await bus.upkeep()

    def other_client(self, bus: Bus) -> Bus:
        assert isinstance(bus, NatsBus)
        return self._make(bus.options)

    def _make(self, options: NatsOptions) -> NatsBus:
        return NatsBus(
            options,
            SystemClock(),
            dead_seconds=self.dead_letter_seconds,
            duplicate_seconds=self.duplicate_window_seconds or 0,
        )

    @pytest.fixture
    def clock(self) -> SystemClock:
        return SystemClock()

    @pytest.fixture
    async def bus(self, nats_options: NatsOptions) -> AsyncIterator[NatsBus]:
        async with self._make(nats_options) as bus:
            yield bus
