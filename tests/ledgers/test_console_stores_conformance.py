"""Every store of saved views, and of lanes over time, passes its suite."""

from __future__ import annotations

import pytest

from lucius.azure.tables import Table
from lucius.ledgers.sql.console_views import SqlConsoleViews
from lucius.ledgers.sql.lane_samples import SqlLaneSamples
from lucius.ledgers.tables.console_views import TablesConsoleViews
from lucius.ledgers.tables.lane_samples import TablesLaneSamples
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.console_views_suite import ConsoleViewsSuite
from lucius.testing.lane_samples_suite import LaneSamplesSuite


class TestOnSqlite(ConsoleViewsSuite, LaneSamplesSuite):
    @pytest.fixture
    def views(self, sqlite_database: SqliteDatabase) -> SqlConsoleViews:
        return SqlConsoleViews(sqlite_database)

    @pytest.fixture
    def samples(self, sqlite_database: SqliteDatabase) -> SqlLaneSamples:
        return SqlLaneSamples(sqlite_database)


class TestOnPostgres(ConsoleViewsSuite, LaneSamplesSuite):
    @pytest.fixture
    def views(self, postgres_database: PostgresDatabase) -> SqlConsoleViews:
        return SqlConsoleViews(postgres_database)

    @pytest.fixture
    def samples(self, postgres_database: PostgresDatabase) -> SqlLaneSamples:
        return SqlLaneSamples(postgres_database)


class TestOnTables(ConsoleViewsSuite, LaneSamplesSuite):
    @pytest.fixture
    def views(self, operators_table: Table) -> TablesConsoleViews:
        return TablesConsoleViews(operators_table)

    @pytest.fixture
    def samples(self, operators_table: Table) -> TablesLaneSamples:
        return TablesLaneSamples(operators_table)
