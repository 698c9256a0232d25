"""The Temporal engine passes the engine suite, on a real Temporal server, over every ledger, and over NATS.

In the short form it runs whole on PostgreSQL: `tests/temporal` runs this engine on SQLite, and the suite is run on the
other ledgers with other engines.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable

import pytest
from temporalio.testing import WorkflowEnvironment
from tests.azurite import Azurite
from tests.engines.about_the_bus import AboutTheBus
from tests.engines.temporal_server import temporal_program
from tests.engines.test_servicebus_conformance import CountedBus
from tests.long_form import IS_LONG
from tests.nats_server import NatsServer, empty_streams
from tests.servicebus_server import ServerThread
from tests.tables_ledger import opened_ledger

from lucius.buses.memory import MemoryBus
from lucius.buses.nats import NatsBus, NatsOptions
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.clocks import SystemClock
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.engines.temporal.client import connect
from lucius.engines.temporal.engine import TemporalEngine
from lucius.engines.temporal.settings import TemporalSettings
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import SqlLedger
from lucius.ledgers.tables import TablesLedger
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.engine_fairness import EngineFairness
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.engine_suite import EngineSuite
from lucius.testing.samples import STEP_IDS

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
        publish_timeout_seconds=0.6,
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


class WithTemporal:
    @pytest.fixture
    async def harness(
        self, ledger: Ledger, bus: Bus, make_engine: Callable[[Ledger, Bus, Clock], Engine]
    ) -> AsyncIterator[EngineHarness]:
        clock = SystemClock()
        async with EngineHarness(ledger, bus, clock, make_engine, kill_engine, answers_at_once=False) as harness:
            yield harness


class TemporalSuite(WithTemporal, EngineSuite):
    pass


class OnMemoryBus(WithTemporal):
    @pytest.fixture
    async def bus(self) -> AsyncIterator[MemoryBus]:
        async with MemoryBus(SystemClock()) as bus:
            yield bus


class OnMemory(OnMemoryBus):
    @pytest.fixture
    async def ledger(self) -> AsyncIterator[MemoryLedger]:
        async with MemoryLedger() as ledger:
            yield ledger


class TestTemporalOnMemory(OnMemory, EngineSuite):
    __test__ = IS_LONG


class TestTemporalTenantsTakeTurns(OnMemory, EngineFairness):
    unacknowledged_max = UNACKNOWLEDGED_MAX


class TestTemporalOnSqlite(TemporalSuite):
    __test__ = IS_LONG

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


class OnTables(OnMemoryBus, EngineSuite, EngineFairness):
    unacknowledged_max = UNACKNOWLEDGED_MAX

    @pytest.fixture
    async def harness(
        self, ledger: Ledger, bus: Bus, make_engine: Callable[[Ledger, Bus, Clock], Engine]
    ) -> AsyncIterator[EngineHarness]:
        """Counts of jobs in flight are exact after repair."""
        clock = SystemClock()
        async with EngineHarness(
            ledger, bus, clock, make_engine, kill_engine, answers_at_once=False, counts_are_exact=False
        ) as harness:
            yield harness


class TestTemporalOnTables(OnTables):
    __test__ = IS_LONG

    @pytest.fixture
    async def ledger(self, azurite: Azurite) -> AsyncIterator[TablesLedger]:
        async with opened_ledger(azurite, "ledger") as ledger:
            yield ledger


class TestTemporalOnTablesOfEachKind(OnTables):
    __test__ = IS_LONG

    @pytest.fixture
    async def ledger(self, azurite: Azurite) -> AsyncIterator[TablesLedger]:
        async with opened_ledger(azurite, "table") as ledger:
            yield ledger


class TestTemporalOverNats(WithTemporal, EngineSuite if IS_LONG else AboutTheBus):  # type: ignore[misc]
    @pytest.fixture
    async def bus(self, nats_server: NatsServer) -> AsyncIterator[NatsBus]:
        """Its lanes are made once for all tests, which leave them empty."""
        options = NatsOptions(servers=(nats_server.url,), prefix="temporal")
        async with NatsBus(options, SystemClock()) as bus:
            yield bus
        await empty_streams(options)

    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database) as ledger:
            yield ledger


async def test_workflows_publish_over_service_bus(
    servicebus_server: ServerThread,
    sqlite_database: SqliteDatabase,
    make_engine: Callable[[Ledger, Bus, Clock], Engine],
) -> None:
    """A publish that times out while a sender is being opened is repeated under the same id."""
    clock = SystemClock()
    async with (
        CountedBus(servicebus_server, clock) as bus,
        SqlLedger(sqlite_database) as ledger,
        EngineHarness(
            ledger, bus, clock, make_engine, kill_engine, answers_at_once=False, drains_services=STEP_IDS
        ) as harness,
    ):
        await harness.start()
        job_id = await harness.submit(steps=["ocr", "sis"])
        job = await harness.finish(job_id)
        assert [step.attempt_no for step in job.steps] == [1, 1]
        await harness.until_messages_left(0)
    await asyncio.to_thread(servicebus_server.forget)
