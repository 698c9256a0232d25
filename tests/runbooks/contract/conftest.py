"""A stand in memory for most tests; where it matters, on a file and on PostgreSQL as well."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from stand import Stand, open_stand

from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.volatile import VolatileDatabase


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        async with open_stand(database) as made:
            yield made


@pytest.fixture
async def sqlite_stand(sqlite_database: SqliteDatabase) -> AsyncIterator[Stand]:
    async with open_stand(sqlite_database) as made:
        yield made


@pytest.fixture
async def postgres_stand(postgres_database: PostgresDatabase) -> AsyncIterator[Stand]:
    async with open_stand(postgres_database) as made:
        yield made


@pytest.fixture(params=["sqlite_stand", "postgres_stand"])
def real_stand(request: pytest.FixtureRequest) -> Stand:
    """On each database that batches live in."""
    found: Stand = request.getfixturevalue(request.param)
    return found
