"""The Temporal engine passes the engine suite, on a real Temporal server, over every ledger."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable

import pytest
from temporalio.testing import WorkflowEnvironment
from tests.engines.temporal_server import temporal_program

from lucius.buses.memory import MemoryBus
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.clocks import SystemClock
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.engines.temporal.client import connect
from lucius.engines.temporal.engine import TemporalEngine
from lucius.engines.temporal.settings import TemporalSettings
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.engine_suite import EngineSuite

UNACKNOWLEDGED_MAX = 5


@pytest.fixture(scope="module")
def temporal() -> AsyncIterator[str]:
    """One server for the module, in a loop of its own; every test has a task queue of its own."""
    loop = asyncio.new_event_loop()
    environment = loop.run_until_complete(
        WorkflowEnvironment.start_local(dev_server_existing_path=temporal_program(), dev_server_log_level="error")
    )
    yield environment.client.service_client.config.target_host
    loop.run_until_complete(environment.shutdown())
    loop.close()


@pytest.fixture
def make_engine(temporal: str) -> Callable[[Ledger, Bus, Clock], Engine]:
    settings = TemporalSettings(
        address=temporal,
        task_queue=f"test-{uuid.uuid4()}",
        reconcile_interval=0.5,
        overdue_seconds=0.2,
        task_seconds=2.0,
        sticky_seconds=0.3,
        publish_timeout_seconds=0.25,
        stop_seconds=0.2,
        tenant_unacknowledged_max=UNACKNOWLEDGED_MAX,
    )

    def make(ledger: Ledger, bus: Bus, clock: Clock) -> Engine:
        signer = TokenSigner((CallbackKey("k1", b"secret"),))
        urls = CallbackUrls.under("http://127.0.0.1")
        # A connection each: one connection has at most one worker for a task queue.
        return TemporalEngine(lambda: connect(settings), ledger, bus, clock, signer, urls, Observer(), settings)

    return make


async def kill_engine(engine: Engine) -> None:
    """Everything the engine runs is gone at once."""
    assert isinstance(engine, TemporalEngine)
    tasks = {*engine._calls, *engine._upkeep}
    if engine._working is not None:
        tasks.add(engine._working)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class TemporalSuite(EngineSuite):
    @pytest.fixture
    async def harness(
        self, ledger: Ledger, bus: Bus, make_engine: Callable[[Ledger, Bus, Clock], Engine]
    ) -> AsyncIterator[EngineHarness]:
        clock = SystemClock()
        async with EngineHarness(ledger, bus, clock, make_engine, kill_engine, answers_at_once=False) as harness:
            yield harness


class OnMemoryBus(TemporalSuite):
    @pytest.fixture
    async def bus(self) -> AsyncIterator[MemoryBus]:
        async with MemoryBus(SystemClock()) as bus:
            yield bus


class TestTemporalOnMemory(OnMemoryBus):
    @pytest.fixture
    async def ledger(self) -> AsyncIterator[MemoryLedger]:
        async with MemoryLedger() as ledger:
            yield ledger


class TestTemporalOnSqlite(TemporalSuite, EngineFairness):
    unacknowledged_max = UNACKNOWLEDGED_MAX

    @pytest.fixture
    async def bus(self, sqlite_database: SqliteDatabase) -> AsyncIterator[JournaledBus]:
        async with JournaledBus(sqlite_database, SystemClock()) as bus:
            yield bus

    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase, bus: JournaledBus) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database, bus) as ledger:
            yield ledger


class TestTemporalOnPostgres(TemporalSuite):
    @pytest.fixture
    async def bus(self, postgres_database: PostgresDatabase) -> AsyncIterator[SqlBus]:
        async with SqlBus(postgres_database, SystemClock()) as bus:
            yield bus

    @pytest.fixture
    async def ledger(self, postgres_database: PostgresDatabase, bus: SqlBus) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(postgres_database, bus) as ledger:
            yield ledger
