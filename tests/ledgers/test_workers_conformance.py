"""Every store of sightings passes their suite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lucius.ledgers.sql.workers import SqlWorkers
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.workers_suite import WorkersSuite


class TestMemoryWorkers(WorkersSuite):
    """What an application with a ledger in memory uses."""

    @pytest.fixture
    async def workers(self) -> AsyncIterator[SqlWorkers]:
        async with VolatileDatabase() as database:
            await upgrade(database)
            yield SqlWorkers(database)


class TestSqliteWorkers(WorkersSuite):
    @pytest.fixture
    def workers(self, sqlite_database: SqliteDatabase) -> SqlWorkers:
        return SqlWorkers(sqlite_database)


class TestPostgresWorkers(WorkersSuite):
    @pytest.fixture
    def workers(self, postgres_database: PostgresDatabase) -> SqlWorkers:
        return SqlWorkers(postgres_database)
