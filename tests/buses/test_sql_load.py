"""Many messages through PostgreSQL, with two databases open as two processes have them, and through SQLite."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from tests.buses.many_messages import check_that_each_arrives_once
from tests.long_form import sized

from lucius.buses.sql import JournaledBus, SqlBus
from lucius.clocks import SystemClock
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase


@pytest.mark.timeout(sized(180, 1_800))
async def test_every_message_arrives_once_on_postgres(postgres_url: str) -> None:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        databases = [await stack.enter_async_context(PostgresDatabase(postgres_url, pool_max=4)) for _ in range(2)]
        clients = [await stack.enter_async_context(SqlBus(database, clock)) for database in databases]
        await check_that_each_arrives_once(clients, 60.0, settled_by_another=True)


@pytest.mark.timeout(sized(180, 1_800))
async def test_every_message_arrives_once_on_sqlite(sqlite_database: SqliteDatabase) -> None:
    async with JournaledBus(sqlite_database, SystemClock()) as bus:
        await check_that_each_arrives_once([bus], 60.0)
