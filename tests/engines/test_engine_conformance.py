"""The outbox engine passes the engine suite over every ledger and bus.

In the short form each database is seen with its own bus and with one outside it: SQLite with the memory bus, PostgreSQL
with NATS (`test_nats_conformance.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.long_form import IS_LONG

from lucius.buses.memory import MemoryBus
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.engines.outbox.engine import EngineSettings, OutboxEngine
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
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
    publish_timeout_seconds=0.25,
    circuit_open_seconds=0.15,
    stop_seconds=10.0,
    tenant_unacknowledged_max=UNACKNOWLEDGED_MAX,
)


def make_engine(ledger: Ledger, bus: Bus, clock: Clock) -> OutboxEngine:
    signer = TokenSigner((CallbackKey("k1", b"secret"),))
    return OutboxEngine(ledger, bus, clock, signer, CallbackUrls.under("http://127.0.0.1"), Observer(), SETTINGS)


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


class OnMemoryBus(OutboxSuite):
    @pytest.fixture
    async def bus(self, clock: ShiftedClock) -> AsyncIterator[MemoryBus]:
        async with MemoryBus(clock) as bus:
            yield bus


class TestMemoryLedgerAndMemoryBus(OnMemoryBus, OutboxFairness):
    @pytest.fixture
    async def ledger(self) -> AsyncIterator[MemoryLedger]:
        async with MemoryLedger() as ledger:
            yield ledger


class TestSqliteLedgerAndMemoryBus(OnMemoryBus):
    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database) as ledger:
            yield ledger


class TestPostgresLedgerAndMemoryBus(OnMemoryBus):
    __test__ = IS_LONG

    @pytest.fixture
    async def ledger(self, postgres_database: PostgresDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(postgres_database) as ledger:
            yield ledger


class TestSqliteLedgerAndItsBus(OutboxSuite):
    @pytest.fixture
    async def bus(self, sqlite_database: SqliteDatabase, clock: ShiftedClock) -> AsyncIterator[JournaledBus]:
        async with JournaledBus(sqlite_database, clock) as bus:
            yield bus

    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase, bus: JournaledBus) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database, bus) as ledger:
            yield ledger


class TestPostgresLedgerAndItsBus(OutboxSuite):
    @pytest.fixture
    async def bus(self, postgres_database: PostgresDatabase, clock: ShiftedClock) -> AsyncIterator[SqlBus]:
        async with SqlBus(postgres_database, clock) as bus:
            yield bus

    @pytest.fixture
    async def ledger(self, postgres_database: PostgresDatabase, bus: SqlBus) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(postgres_database, bus) as ledger:
            yield ledger
