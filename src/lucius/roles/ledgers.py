"""What `lucius db` does with ledgers that are not in SQL, and copying from one ledger to another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec.structs import replace

from lucius.bootstrap import open_database, open_identity
from lucius.bootstrap.stores import open_stores
from lucius.bootstrap.tables_ledger import is_on_tables, prepare_tables
from lucius.clocks import SystemClock
from lucius.ledgers.tables.ledger import TablesLedger
from lucius.ports.ledger import Ledger
from lucius.roles.running import run
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.usecases.copy_ledger import copy_jobs

REFUSED_SHOWN_MAX = 20


@asynccontextmanager
async def opened_tables(settings: Settings) -> AsyncIterator[TablesLedger]:
    async with AsyncExitStack() as stack:
        identity = await stack.enter_async_context(open_identity(settings))
        # The ledger alone is wanted, whatever the bus.
        ledger, _ = open_stores(replace(settings, bus="memory"), None, SystemClock(), identity)
        assert isinstance(ledger, TablesLedger)
        yield await stack.enter_async_context(ledger)


async def upgrade_tables(settings: Settings) -> str:
    async with opened_tables(settings) as ledger:
        created = await prepare_tables(ledger, creates=True)
        name = await ledger.health()
    return f"{name}: created {', '.join(created)}." if created else f"{name}: every table is there, and the container."


async def verify_tables(settings: Settings) -> str:
    async with opened_tables(settings) as ledger:
        await prepare_tables(ledger, creates=False)
        return f"{await ledger.health()}: every table is there, and the container."


def db_copy(
    settings: Settings, source: str, report: Callable[[int, int], None] = lambda done, total: None
) -> tuple[str, bool]:
    """Copy the jobs of another ledger into that of the settings; what to say of it, and whether every job is there."""
    if source == settings.ledger:
        raise SettingsError("the ledger to copy from is LUCIUS_LEDGER itself")

    async def work() -> tuple[str, bool]:
        async with AsyncExitStack() as stack:
            from_ = await stack.enter_async_context(_opened(replace(settings, ledger=source)))
            to = await stack.enter_async_context(_opened(settings))
            copied = await copy_jobs(from_, to, report)
        said = f"{copied.jobs} jobs copied; {copied.known} were there already."
        if copied.refused:
            said += f" {len(copied.refused)} were not copied."
        for line in copied.refused[:REFUSED_SHOWN_MAX]:
            said += f"\nnot copied: {line}"
        if len(copied.refused) > REFUSED_SHOWN_MAX:
            said += f"\nand {len(copied.refused) - REFUSED_SHOWN_MAX} more"
        return said, not copied.refused

    return run(work(), settings)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Ledger]:
    if settings.ledger == "memory":
        raise SettingsError("a ledger in memory cannot be copied: it is gone with its process")
    if is_on_tables(settings):
        async with opened_tables(settings) as ledger:
            await prepare_tables(ledger, creates=False)
            yield ledger
        return
    async with AsyncExitStack() as stack:
        identity = await stack.enter_async_context(open_identity(settings))
        database = open_database(settings)
        assert database is not None
        await stack.enter_async_context(database)
        await schema.verify(database)
        in_sql, _ = open_stores(replace(settings, bus="memory"), database, SystemClock(), identity)
        yield await stack.enter_async_context(in_sql)
