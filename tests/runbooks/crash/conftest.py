"""As many empty PostgreSQL databases as a test asks for; and `harness` for tests of this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture
async def fresh_postgres(postgres_server: str, postgres_template: str) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """Gives the URL of another empty database at the current schema, each time it is called."""
    connection = await asyncpg.connect(postgres_server)
    names: list[str] = []
    numbers = count(1)

    async def make() -> str:
        name = f"lucius_lives_{os.getpid()}_{next(numbers)}"
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template}")
        names.append(name)
        return urlunsplit(urlsplit(postgres_server)._replace(path=f"/{name}"))

    try:
        yield make
    finally:
        for name in names:
            await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await connection.close()
