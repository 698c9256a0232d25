"""The databases that tests share: what one test leaves in its database, the next one does not see."""

from __future__ import annotations

import asyncpg
import pytest
from tests.postgres_databases import Databases

WRITES = {
    "rows": "INSERT INTO webhooks VALUES ('j', 'u', 't', 'PENDING', 0, 0, NULL)",
    "a table": "CREATE TABLE runbook_left_v1 (id TEXT)",
    "a view": "CREATE VIEW left_over AS SELECT 1",
    "an index": "CREATE INDEX left_over ON webhooks (url)",
    "a column": "ALTER TABLE webhooks ADD COLUMN left_over TEXT",
    "statistics": "INSERT INTO webhooks VALUES ('j', 'u', 't', 'PENDING', 0, 0, NULL); ANALYZE webhooks",
    "the version": "DELETE FROM schema_versions",
}
LOOKS = (
    "SELECT count(*) FROM webhooks",
    "SELECT count(*) FROM pg_class WHERE relname LIKE '%left%'",
    "SELECT count(*) FROM pg_attribute WHERE attname = 'left_over'",
    "SELECT count(*) FROM pg_statistic WHERE starelid >= 16384",
    "SELECT count(*) FROM schema_versions",
)


async def looked(url: str) -> list[int]:
    connection = await asyncpg.connect(url)
    try:
        return [await connection.fetchval(look) for look in LOOKS]
    finally:
        await connection.close()


@pytest.mark.parametrize("what", WRITES)
async def test_nothing_is_left_to_the_next_test(postgres_server: str, postgres_template: str, what: str) -> None:
    databases = Databases(postgres_server, postgres_template, "")
    async with databases.one() as url:
        before = await looked(url)
        connection = await asyncpg.connect(url)
        await connection.execute(WRITES[what])
        await connection.close()
        assert await looked(url) != before
    async with databases.one() as again:
        assert await looked(again) == before
        assert (again == url) is (what in ("rows", "a table"))
    await databases.drop()


async def test_numbers_begin_anew(postgres_server: str, postgres_template: str) -> None:
    databases = Databases(postgres_server, postgres_template, "")
    insert = "INSERT INTO subscriptions (topic, name, filter, delivery_max, ttl_seconds) VALUES ('t', 'n', '', 1, 1)"
    for ending in ("SELECT 1", "DELETE FROM subscriptions"):
        async with databases.one() as url:
            connection = await asyncpg.connect(url)
            assert await connection.fetchval(f"{insert} RETURNING subscription_id") == 1
            await connection.execute(ending)
            await connection.close()
    async with databases.one() as url:
        connection = await asyncpg.connect(url)
        assert await connection.fetchval(f"{insert} RETURNING subscription_id") == 1
        await connection.close()
    await databases.drop()


async def test_database_that_somebody_still_uses_is_not_given_to_another(
    postgres_server: str, postgres_template: str
) -> None:
    databases = Databases(postgres_server, postgres_template, "")
    async with databases.one() as url:
        left = await asyncpg.connect(url)
    async with databases.one() as another:
        assert another != url
    left.terminate()
    await databases.drop()
