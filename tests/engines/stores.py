"""The ledgers and buses that engines are tested over, as fixtures for test classes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.nats_server import NatsServer, empty_streams

from lucius.buses.memory import MemoryBus
from lucius.buses.nats import NatsBus, NatsOptions
from lucius.buses.sql import JournaledBus, SqlBus
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import SqlLedger
from lucius.ports.clock import Clock
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase


class LedgerInMemory:
    @pytest.fixture
    async def ledger(self) -> AsyncIterator[MemoryLedger]:
        async with MemoryLedger() as ledger:
            yield ledger


class LedgerInSqlite:
    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database) as ledger:
            yield ledger


class LedgerInPostgres:
    @pytest.fixture
    async def ledger(self, postgres_database: PostgresDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(postgres_database) as ledger:
            yield ledger


class BusInMemory:
    @pytest.fixture
    async def bus(self, clock: Clock) -> AsyncIterator[MemoryBus]:
        async with MemoryBus(clock) as bus:
            yield bus


class BusOnNats:
    @pytest.fixture
    async def bus(self, nats_server: NatsServer, clock: Clock) -> AsyncIterator[NatsBus]:
        """Its lanes are made once for all tests, which leave them empty."""
        options = NatsOptions(servers=(nats_server.url,), prefix="engine")
        async with NatsBus(options, clock) as bus:
            yield bus
        await empty_streams(options)


class BothInSqlite:
    @pytest.fixture
    async def bus(self, sqlite_database: SqliteDatabase, clock: Clock) -> AsyncIterator[JournaledBus]:
        async with JournaledBus(sqlite_database, clock) as bus:
            yield bus

    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase, bus: JournaledBus) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database, bus) as ledger:
            yield ledger


class BothInPostgres:
    @pytest.fixture
    async def bus(self, postgres_database: PostgresDatabase, clock: Clock) -> AsyncIterator[SqlBus]:
        async with SqlBus(postgres_database, clock) as bus:
            yield bus

    @pytest.fixture
    async def ledger(self, postgres_database: PostgresDatabase, bus: SqlBus) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(postgres_database, bus) as ledger:
            yield ledger
