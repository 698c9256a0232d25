"""The outbox engine passes the engine suite with its bus on NATS; in the long form, over SQLite too."""

from __future__ import annotations

from tests.engines.stores import BusOnNats, LedgerInPostgres, LedgerInSqlite
from tests.engines.test_engine_conformance import OutboxFairness, OutboxSuite
from tests.long_form import IS_LONG


class TestPostgresLedgerAndNatsBus(BusOnNats, LedgerInPostgres, OutboxSuite, OutboxFairness):
    pass


class TestSqliteLedgerAndNatsBus(BusOnNats, LedgerInSqlite, OutboxSuite, OutboxFairness):
    __test__ = IS_LONG
