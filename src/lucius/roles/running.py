"""Runs a role: logs, an event loop, error conversion, and signals."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import uvloop

from lucius.bootstrap import open_database
from lucius.domain.errors import InfrastructureError
from lucius.local_secrets import is_embedded
from lucius.ports.bus import BusUnavailable
from lucius.ports.ledger import LedgerUnavailable
from lucius.private_files import OTHERS
from lucius.registries.problems import RegistryError
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database, DatabaseUnavailable
from lucius.telemetry.logs import configure_logs
from lucius.warm_up import warm_up

T = TypeVar("T")

NO_TABLES = "LUCIUS_LEDGER=memory has no tables"


def run(work: Coroutine[Any, Any, T], settings: Settings) -> T:
    """Run a role to its end."""
    os.umask(OTHERS)
    configure_logs(settings)
    warm_up()
    _tune_gc()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except (DatabaseUnavailable, BusUnavailable, LedgerUnavailable, schema.SchemaError) as error:
        raise InfrastructureError.unavailable(str(error)) from error
    except RegistryError as error:
        raise SettingsError(f"the registry cannot be used:\n{error}") from error


def _tune_gc() -> None:
    """Exclude what is loaded now from garbage collection, and collect less often.

    Jobs, events and messages have no cycles, so collecting rarely costs little memory; at the default thresholds it
    took a tenth of the server's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@asynccontextmanager
async def opened_database(settings: Settings, statement_seconds: float | None = None) -> AsyncIterator[Database]:
    """`statement_seconds`: how long a statement may take on PostgreSQL, if not as long as usual."""
    database = open_database(settings, statement_seconds)
    if database is None:
        raise SettingsError(NO_TABLES)
    async with database:
        yield database


async def first_of(*awaited: Awaitable[object]) -> None:
    futures = [asyncio.ensure_future(awaitable) for awaitable in awaited]
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def until_signal() -> None:
    await signalled().wait()


def say_stopped(line: str) -> None:
    """The last line of a role. On a terminal it begins a new one, because the terminal has written ^C."""
    print(f"{chr(10) if sys.stderr.isatty() else ''}{line}", file=sys.stderr, flush=True)


def signalled() -> asyncio.Event:
    """Set when this process is asked to stop."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    return stopped


def needs_shared_ledger(settings: Settings, role: str, otherwise: str) -> None:
    if is_embedded(settings):
        raise SettingsError(f"'lucius {role}' needs a shared ledger (LUCIUS_LEDGER=postgresql://…); {otherwise}")
    if settings.runbooks_database.startswith("sqlite"):
        raise SettingsError(
            f"'lucius {role}' shares runbooks with other processes, but a SQLite file has one owner: set"
            f" LUCIUS_RUNBOOKS_DATABASE to postgresql://… or off; {otherwise}"
        )
