"""Every list of what people did passes its suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import astuple

from lucius.azure.tables import Table
from lucius.domain.errors import CallerError
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import statements
from lucius.ledgers.sql.audit import SqlAudit
from lucius.ledgers.tables import audit as tables_audit
from lucius.ledgers.tables.audit import TablesAudit
from lucius.ports.audit import AuditEntry, AuditFilter
from lucius.sql.database import Database, Run, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.audit_suite import AuditSuite, entry


class NotedSqlAudit(SqlAudit):
    """SQL writes entries within the transaction of the act; here, in one of their own."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._notes = database

    async def note(self, entries: Sequence[AuditEntry]) -> None:
        def script() -> Script[None]:
            yield Run(statements.INSERT_AUDIT, [astuple(one) for one in entries])

        if entries:
            await self._notes.write(script)


class NotedMemoryLedger(MemoryLedger):
    async def note(self, entries: Sequence[AuditEntry]) -> None:
        self._audit += entries


class TestMemoryAudit(AuditSuite):
    @pytest.fixture
    def audit(self) -> NotedMemoryLedger:
        return NotedMemoryLedger()


class TestVolatileAudit(AuditSuite):
    """What an application with a ledger in memory uses for operations and runbooks."""

    @pytest.fixture
    async def audit(self) -> AsyncIterator[NotedSqlAudit]:
        async with VolatileDatabase() as database:
            await upgrade(database)
            yield NotedSqlAudit(database)


class TestSqliteAudit(AuditSuite):
    @pytest.fixture
    def audit(self, sqlite_database: SqliteDatabase) -> NotedSqlAudit:
        return NotedSqlAudit(sqlite_database)


class TestPostgresAudit(AuditSuite):
    @pytest.fixture
    def audit(self, postgres_database: PostgresDatabase) -> NotedSqlAudit:
        return NotedSqlAudit(postgres_database)


class TestTablesAudit(AuditSuite):
    @pytest.fixture
    def audit(self, operators_table: Table) -> TablesAudit:
        return TablesAudit(operators_table)

    async def test_an_act_that_is_noted_again_is_one_entry(self, audit: TablesAudit) -> None:
        act = entry(10, entry_id=tables_audit.entry_id(10, "job", "3"))
        for _ in range(2):
            await audit.note([act])
        assert list(await audit.audit(AuditFilter(), 10, None)) == [act]

    async def test_a_list_that_would_look_at_too_much_is_refused(
        self, audit: TablesAudit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tables_audit, "READ_ROWS_MAX", 4)
        monkeypatch.setattr(tables_audit, "PAGE_ROWS", 2)
        await audit.note([entry(at) for at in range(1, 8)])
        assert len(await audit.audit(AuditFilter(tenants=("acme",)), 4, None)) == 4
        with pytest.raises(CallerError, match="QUERY_TOO_SLOW"):
            await audit.audit(AuditFilter(tenants=("acme",), action="pause"), 4, None)

    async def test_prune_removes_old_entries_with_all_their_rows(
        self, audit: TablesAudit, operators_table: Table
    ) -> None:
        entries = [entry(at) for at in (10, 20, 30)]
        await audit.note(entries)
        assert await audit.prune(10, 10) == 0
        assert await audit.prune(30, 1) == 1
        assert await audit.prune(30, 10) == 1
        assert list(await audit.audit(AuditFilter(), 10, None)) == entries[2:]
        await audit.prune(31, 10)
        assert await operators_table.rows("operations", limit=10) == []
