"""The outbox engine passes the engine suite with its ledger in SQLite and its bus on NATS."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.engines.test_engine_conformance import OutboxFairness, OutboxSuite
from tests.nats_server import NatsServer, empty_streams

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.ledgers.sql import SqlLedger
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.samples import ShiftedClock


class TestSqliteLedgerAndNatsBus(OutboxSuite, OutboxFairness):
    @pytest.fixture
    async def bus(self, nats_server: NatsServer, clock: ShiftedClock) -> AsyncIterator[NatsBus]:
        """Its lanes are made once for all tests, which leave them empty."""
        options = NatsOptions(servers=(nats_server.url,), prefix="engine")
        async with NatsBus(options, clock) as bus:
            yield bus
        await empty_streams(options)

    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database) as ledger:
            yield ledger
