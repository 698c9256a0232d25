"""A stand in memory for most tests; where it matters, on a file and on PostgreSQL as well."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import Harness, open_harness

from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        async with open_harness(database) as made:
            yield made


@pytest.fixture
async def sqlite_harness(sqlite_database: SqliteDatabase) -> AsyncIterator[Harness]:
    async with open_harness(sqlite_database) as made:
        yield made


@pytest.fixture
async def postgres_harness(postgres_database: PostgresDatabase) -> AsyncIterator[Harness]:
    async with open_harness(postgres_database) as made:
        yield made


@pytest.fixture(params=["sqlite_harness", "postgres_harness"])
def real_harness(request: pytest.FixtureRequest) -> Harness:
    """On each database that batches live in."""
    found: Harness = request.getfixturevalue(request.param)
    return found
