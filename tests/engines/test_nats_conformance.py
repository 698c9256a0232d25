"""The outbox engine passes the engine suite with its bus on NATS; in the long form, over SQLite too."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.engines.test_engine_conformance import OutboxFairness, OutboxSuite
from tests.long_form import IS_LONG
from tests.nats_server import NatsServer, empty_streams

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.ledgers.sql import SqlLedger
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.samples import ShiftedClock


class OnNatsBus(OutboxSuite, OutboxFairness):
    @pytest.fixture
    async def bus(self, nats_server: NatsServer, clock: ShiftedClock) -> AsyncIterator[NatsBus]:
        """Its lanes are made once for all tests, which leave them empty."""
        options = NatsOptions(servers=(nats_server.url,), prefix="engine")
        async with NatsBus(options, clock) as bus:
            yield bus
        await empty_streams(options)


class TestPostgresLedgerAndNatsBus(OnNatsBus):
    @pytest.fixture
    async def ledger(self, postgres_database: PostgresDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(postgres_database) as ledger:
            yield ledger


class TestSqliteLedgerAndNatsBus(OnNatsBus):
    __test__ = IS_LONG

    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database) as ledger:
            yield ledger
