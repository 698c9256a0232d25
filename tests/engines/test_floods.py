"""A small tenant is not held up by another's flood on its lane, on any bus."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.engines.test_engine_conformance import kill_engine
from tests.long_form import IS_LONG, sized
from tests.nats_server import NatsServer, empty_streams

from lucius.buses.memory import MemoryBus
from lucius.buses.nats import NatsBus, NatsOptions
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.clocks import SystemClock
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.engines.outbox.engine import EngineSettings, OutboxEngine
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.engine_flood import EngineFlood
from lucius.testing.engine_harness import EngineHarness

CALM_SECONDS_MIN = 0.0 if IS_LONG else 0.03
"""The short form shares the machine with three other tests: it notices a tenant that waits for another's flood, and not
by how much."""


def make_engine(ledger: Ledger, bus: Bus, clock: Clock) -> OutboxEngine:
    signer = TokenSigner((CallbackKey("k1", b"secret"),))
    urls = CallbackUrls.under("http://127.0.0.1")
    return OutboxEngine(ledger, bus, clock, signer, urls, Observer(), EngineSettings())


class Flood(EngineFlood):
    flood_jobs = sized(400, 10_000)
    small_jobs = sized(12, 40)
    calm_seconds_min = CALM_SECONDS_MIN

    @pytest.fixture
    def clock(self) -> SystemClock:
        return SystemClock()

    @pytest.fixture
    async def harness(self, ledger: SqlLedger, bus: Bus, clock: SystemClock) -> AsyncIterator[EngineHarness]:
        async with EngineHarness(ledger, bus, clock, make_engine, kill_engine) as harness:
            yield harness


class OutsideTheLedger(Flood):
    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database) as ledger:
            yield ledger


class TestMemoryBus(OutsideTheLedger):
    @pytest.fixture
    async def bus(self, clock: SystemClock) -> AsyncIterator[MemoryBus]:
        async with MemoryBus(clock) as bus:
            yield bus


class TestBusOnNats(OutsideTheLedger):
    @pytest.fixture
    async def bus(self, nats_server: NatsServer, clock: SystemClock) -> AsyncIterator[NatsBus]:
        options = NatsOptions(servers=(nats_server.url,), prefix="engine")
        async with NatsBus(options, clock) as bus:
            yield bus
        await empty_streams(options)


class TestBusInSqlite(Flood):
    @pytest.fixture
    async def bus(self, sqlite_database: SqliteDatabase, clock: SystemClock) -> AsyncIterator[JournaledBus]:
        async with JournaledBus(sqlite_database, clock) as bus:
            yield bus

    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase, bus: JournaledBus) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database, bus) as ledger:
            yield ledger


class TestBusInPostgres(Flood):
    @pytest.fixture
    async def bus(self, postgres_database: PostgresDatabase, clock: SystemClock) -> AsyncIterator[SqlBus]:
        async with SqlBus(postgres_database, clock) as bus:
            yield bus

    @pytest.fixture
    async def ledger(self, postgres_database: PostgresDatabase, bus: SqlBus) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(postgres_database, bus) as ledger:
            yield ledger
