"""Every store of the console's tokens passes their suite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.azure.lossy_proxy import LossyProxy
from tests.azurite import Azurite

from lucius.azure.tables import Table, TableAccount
from lucius.ledgers.sql.console_tokens import SqlConsoleTokens
from lucius.ledgers.tables.console_tokens import TablesConsoleTokens
from lucius.ports.console_tokens import TokenKind
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.console_tokens_suite import ConsoleTokensSuite, token


class TestMemoryConsoleTokens(ConsoleTokensSuite):
    """What an application with a ledger in memory uses."""

    @pytest.fixture
    async def tokens(self) -> AsyncIterator[SqlConsoleTokens]:
        async with VolatileDatabase() as database:
            await upgrade(database)
            yield SqlConsoleTokens(database)


class TestSqliteConsoleTokens(ConsoleTokensSuite):
    @pytest.fixture
    def tokens(self, sqlite_database: SqliteDatabase) -> SqlConsoleTokens:
        return SqlConsoleTokens(sqlite_database)


class TestPostgresConsoleTokens(ConsoleTokensSuite):
    @pytest.fixture
    def tokens(self, postgres_database: PostgresDatabase) -> SqlConsoleTokens:
        return SqlConsoleTokens(postgres_database)


class TestTablesConsoleTokens(ConsoleTokensSuite):
    @pytest.fixture
    def tokens(self, operators_table: Table) -> TablesConsoleTokens:
        return TablesConsoleTokens(operators_table)

    async def test_a_link_whose_answer_was_lost_is_used_by_who_used_it(
        self, operators_table: Table, azurite: Azurite
    ) -> None:
        """Azure's client tries again, and the second try finds no link any more."""
        link = token("link", kind=TokenKind.LINK)
        await TablesConsoleTokens(operators_table).add(link, 3)
        async with LossyProxy(azurite.table_port) as proxy:
            connection = azurite.connection.replace(f":{azurite.table_port}/", f":{proxy.port}/")
            async with TableAccount.connected(connection) as account:
                through = TablesConsoleTokens(account.table(operators_table.place.split()[1]))
                proxy.lose_next("POST")
                session = await through.exchange(link.token_hash, token("session", 20), 3)
                assert (proxy.lost, session) == (1, token("session", 20))
