"""A small tenant is not held up by another's flood on its lane, on any bus."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.engines.engine_makers import outbox_engine
from tests.engines.stores import BothInPostgres, BothInSqlite, BusInMemory, BusOnNats, LedgerInSqlite
from tests.engines.test_engine_conformance import kill_engine
from tests.long_form import IS_LONG, sized

from lucius.clocks import SystemClock
from lucius.engines.outbox.engine import EngineSettings
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus
from lucius.testing.engine_flood import EngineFlood
from lucius.testing.engine_harness import EngineHarness

CALM_SECONDS_MIN = 0.0 if IS_LONG else 0.03
"""The short form shares the machine with three other tests: it notices a tenant that waits for another's flood, and not
by how much."""


class Flood(EngineFlood):
    flood_jobs = sized(250, 10_000)
    small_jobs = sized(12, 40)
    pairs = sized(3, 5)
    calm_seconds_min = CALM_SECONDS_MIN

    @pytest.fixture
    def clock(self) -> SystemClock:
        return SystemClock()

    @pytest.fixture
    async def harness(self, ledger: SqlLedger, bus: Bus, clock: SystemClock) -> AsyncIterator[EngineHarness]:
        make = outbox_engine(EngineSettings())
        async with EngineHarness(ledger, bus, clock, make, kill_engine) as harness:
            yield harness


class TestMemoryBus(BusInMemory, LedgerInSqlite, Flood):
    pass


class TestBusOnNats(BusOnNats, LedgerInSqlite, Flood):
    pass


class TestBusInSqlite(BothInSqlite, Flood):
    pass


class TestBusInPostgres(BothInPostgres, Flood):
    pass
