"""Every store of bulk operations passes their suite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lucius.ledgers.sql.bulk_operations import SqlBulkOperations
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.bulk_suite import BulkSuite, SharedBulkSuite


class TestMemoryBulkOperations(BulkSuite):
    """What an application with a ledger in memory uses."""

    @pytest.fixture
    async def bulk(self) -> AsyncIterator[SqlBulkOperations]:
        async with VolatileDatabase() as database:
            await upgrade(database)
            yield SqlBulkOperations(database)


class TestSqliteBulkOperations(BulkSuite):
    @pytest.fixture
    def bulk(self, sqlite_database: SqliteDatabase) -> SqlBulkOperations:
        return SqlBulkOperations(sqlite_database)


class TestPostgresBulkOperations(SharedBulkSuite):
    @pytest.fixture
    def bulk(self, postgres_database: PostgresDatabase) -> SqlBulkOperations:
        return SqlBulkOperations(postgres_database)
