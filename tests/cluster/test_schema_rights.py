"""Serving only looks at the tables: it makes none, and needs no right to."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from tests.cluster.conftest import StartRole
from tests.crash.client import Client, envelope, submit
from tests.crash.processes import CALLBACK_KEYS, run_lucius

ROLE = f"lucius_server_{os.getpid()}"


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def test_api_serves_as_a_role_that_may_not_create(
    start_role: StartRole, postgres_url: str, database: asyncpg.Connection
) -> None:
    await database.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'secret'")
    try:
        await database.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {ROLE}")
        parts = urlsplit(postgres_url)
        place = parts.netloc.rpartition("@")[2]
        api = start_role("api", LUCIUS_LEDGER=urlunsplit(parts._replace(netloc=f"{ROLE}:secret@{place}")))
        async with Client([api.port or 0], random.Random(1)) as client:
            job_id = await submit(client, envelope("job"))
            assert (await client.read(f"/v1/jobs/{job_id}"))["status"] == "IN_PROGRESS"
        api.kill()
    finally:
        await database.execute(f"DROP OWNED BY {ROLE}")
        await database.execute(f"DROP ROLE {ROLE}")


async def test_role_refuses_an_empty_database_by_name_and_leaves_it_empty(
    postgres_url: str, database: asyncpg.Connection
) -> None:
    await database.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    settings = {"LUCIUS_LEDGER": postgres_url, "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS}
    for words in (("api", "--port", "0"), ("reconciler",), ("db", "verify")):
        refused = run_lucius(*words, settings=settings)
        assert refused.returncode != 0
        assert "lucius db upgrade" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert await database.fetchval("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'") == 0
