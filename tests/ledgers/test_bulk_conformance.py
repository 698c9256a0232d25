"""Every store of bulk operations passes their suite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from lucius.azure.tables import Table
from lucius.domain.bulk_operation import BulkMove, Counts, ItemStatus, moved
from lucius.ledgers.sql.bulk_operations import SqlBulkOperations
from lucius.ledgers.tables.audit import TablesAudit
from lucius.ledgers.tables.bulk_operations import TablesBulkOperations
from lucius.ports.audit import AuditFilter
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.bulk_suite import ME, OPEN_MAX, BulkSuite, SharedBulkSuite
from lucius.testing.samples import ManualClock


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


class TestTablesBulkOperations(SharedBulkSuite):
    @pytest.fixture
    def bulk(self, operators_table: Table) -> TablesBulkOperations:
        return TablesBulkOperations(operators_table)

    async def test_more_jobs_than_a_transaction_holds(self, bulk: TablesBulkOperations, clock: ManualClock) -> None:
        operation, items = await self._selected(bulk, clock, 150)
        assert operation.counts == Counts(pending=150)
        assert await bulk.items(operation.operation_id, 1_000, None) == items
        due = await bulk.due(operation.operation_id, ItemStatus.PENDING, clock.now(), 1_000)
        assert due == items
        waiting = [replace(item, next_at=clock.now() + 5, code="TENANT_SATURATED") for item in items[:40]]
        failed = [replace(item, status=ItemStatus.FAILED, code="FORBIDDEN") for item in items[40:120]]
        changes = list(zip(items, [*waiting, *failed], strict=False))
        operation = await bulk.record(operation.operation_id, ME, changes, clock.now())
        assert operation.counts == Counts(pending=70, failed=80)
        pending = await bulk.items(operation.operation_id, 1_000, None, ItemStatus.PENDING)
        assert pending == [*waiting, *items[120:]]
        after_ten = await bulk.items(operation.operation_id, 35, items[9].job_id, ItemStatus.PENDING)
        assert after_ten == [*waiting[10:], *items[120:125]]
        await bulk.change(operation.operation_id, lambda one: moved(one, BulkMove.ABANDONED, 1_000))
        assert await bulk.prune(1_001, 10) == 1
        table = bulk._table
        left = await table.rows("operations", limit=1_000)
        assert [row.key for row in left if not row.key.startswith("audit:")] == []

    async def test_acts_are_in_the_list_of_what_people_did(
        self, bulk: TablesBulkOperations, clock: ManualClock, operators_table: Table
    ) -> None:
        operation = self._new(clock)
        await bulk.create(operation, "key", OPEN_MAX)
        await bulk.create(replace(operation, operation_id=clock.job_id()), "key", OPEN_MAX)
        clock.advance(1)
        now = clock.now()
        await bulk.change(operation.operation_id, lambda one: moved(one, BulkMove.PAUSED, now, "key:other", "why"))
        found = await TablesAudit(operators_table).audit(AuditFilter(), 10, None)
        assert [(one.action, one.actor, one.target, one.reason) for one in found] == [
            ("pause", "key:other", operation.operation_id, "why"),
            ("create", "key:ops", operation.operation_id, "fixed"),
        ]
