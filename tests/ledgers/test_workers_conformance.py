"""Every store of sightings passes their suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from lucius.azure.tables import Table
from lucius.ledgers.sql.workers import SqlWorkers
from lucius.ledgers.tables.workers import TablesWorkers
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.workers_suite import WorkersSuite, sighting


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


class TestTablesWorkers(WorkersSuite):
    @pytest.fixture
    def workers(self, operators_table: Table) -> TablesWorkers:
        return TablesWorkers(operators_table)

    async def test_many_processes_write_the_same_instances(self, workers: TablesWorkers) -> None:
        seen = [[sighting(str(place), 10 + writer) for place in range(150)] for writer in range(4)]
        await asyncio.gather(*(workers.write(one) for one in seen))
        found = await workers.newest(1_000)
        assert len(found) == 150
        assert {one.last_seen_at for one in found} == {13}
