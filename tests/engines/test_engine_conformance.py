"""The outbox engine passes the engine suite over every ledger and bus.

In the short form each database is seen with its own bus and with one outside it: SQLite with the memory bus, PostgreSQL
with NATS (`test_nats_conformance.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.engines.engine_makers import outbox_engine
from tests.engines.stores import (
    BothInPostgres,
    BothInSqlite,
    BusInMemory,
    LedgerInMemory,
    LedgerInPostgres,
    LedgerInSqlite,
)
from tests.long_form import IS_LONG

from lucius.engines.outbox.engine import EngineSettings, OutboxEngine
from lucius.ports.bus import Bus
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.testing.engine_clock import EngineClock
from lucius.testing.engine_fairness import EngineFairness
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.engine_suite import EngineSuite
from lucius.testing.samples import ShiftedClock

UNACKNOWLEDGED_MAX = 5
SETTINGS = EngineSettings(
    outbox_retry_interval=0.05,
    sweep_interval=0.02,
    repair_interval=0.5,
    upkeep_interval=0.5,
    claim_seconds=0.5,
    publish_timeout_seconds=0.6,
    circuit_open_seconds=0.15,
    stop_seconds=10.0,
    tenant_unacknowledged_max=UNACKNOWLEDGED_MAX,
)


make_engine = outbox_engine(SETTINGS)


async def kill_engine(engine: Engine) -> None:
    """Everything the engine runs is gone at once."""
    assert isinstance(engine, OutboxEngine)
    left = {*engine._tasks, *engine._loops, *engine._turns._running}
    while left:
        # Until Python 3.12, a task inside `wait_for` may pass over being cancelled.
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.05)


class OutboxFairness(EngineFairness):
    """Not on every combination: it is up to the engine and to what the ledger finds."""

    unacknowledged_max = UNACKNOWLEDGED_MAX


class OutboxSuite(EngineSuite, EngineClock):
    @pytest.fixture
    def clock(self) -> ShiftedClock:
        return ShiftedClock()

    @pytest.fixture
    async def harness(self, ledger: Ledger, bus: Bus, clock: ShiftedClock) -> AsyncIterator[EngineHarness]:
        async with EngineHarness(ledger, bus, clock, make_engine, kill_engine) as harness:
            yield harness


class TestMemoryLedgerAndMemoryBus(BusInMemory, LedgerInMemory, OutboxSuite, OutboxFairness):
    pass


class TestSqliteLedgerAndMemoryBus(BusInMemory, LedgerInSqlite, OutboxSuite):
    pass


class TestPostgresLedgerAndMemoryBus(BusInMemory, LedgerInPostgres, OutboxSuite):
    __test__ = IS_LONG


class TestSqliteLedgerAndItsBus(BothInSqlite, OutboxSuite):
    pass


class TestPostgresLedgerAndItsBus(BothInPostgres, OutboxSuite):
    pass
