"""What `lucius db` does with the tables of ledger and runbooks: upgrades, contracts, backups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from lucius.bootstrap import open_database, open_runbooks_database
from lucius.bootstrap.tables_ledger import is_on_tables
from lucius.roles.ledgers import upgrade_tables, verify_tables
from lucius.roles.running import NO_TABLES, run
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database
from lucius.sql.sqlite import SqliteDatabase
from lucius.sql.sqlite_backup import back_up

UPGRADE_STATEMENT_SECONDS = 6 * 3_600.0
"""Building an index or comparing tables takes as long as the tables are large."""


def db_upgrade(
    settings: Settings, report: Callable[[int, int], None] | None = None, ignored_pids: Collection[int] = ()
) -> str:
    async def upgrade(database: Database) -> str:
        count = await schema.upgrade(database, report=report, ignored_pids=ignored_pids)
        version = await schema.current_version(database)
        return f"{database.name}: {_migrations(count)} applied; at version {version}."

    return run(_in_each(settings, upgrade, UPGRADE_STATEMENT_SECONDS, upgrade_tables), settings)


def db_abandon(settings: Settings) -> str:
    """Give up an upgrade that was interrupted before its swap."""

    async def abandon(database: Database) -> str:
        version = await schema.abandon(database)
        if version is None:
            return f"{database.name}: no upgrade is under way."
        current = await schema.current_version(database)
        return f"{database.name}: the upgrade to version {version} is abandoned; at version {current}."

    return run(_in_each(settings, abandon, UPGRADE_STATEMENT_SECONDS), settings)


def db_contract(settings: Settings, ignored_pids: Collection[int] = ()) -> str:
    async def contract(database: Database) -> str:
        versions = await schema.contract(database, ignored_pids=ignored_pids)
        if not versions:
            return f"{database.name}: nothing to remove."
        listed = ", ".join(str(version) for version in versions)
        return f"{database.name}: removed what schema version {listed} had kept for older programs."

    return run(_in_each(settings, contract, UPGRADE_STATEMENT_SECONDS), settings)


def db_verify(settings: Settings) -> str:
    async def verify(database: Database) -> str:
        await schema.verify(database)
        return f"{database.name} is at version {await schema.current_version(database)}."

    return run(_in_each(settings, verify, on_tables=verify_tables), settings)


async def _in_each(
    settings: Settings,
    act: Callable[[Database], Awaitable[str]],
    statement_seconds: float | None = None,
    on_tables: Callable[[Settings], Awaitable[str]] | None = None,
) -> str:
    """In the ledger's database, and in that of runbooks if they have one of their own; a line of each. `on_tables`:
    what is done if the ledger is on Azure Tables."""
    named = (open_database(settings, statement_seconds), open_runbooks_database(settings, statement_seconds))
    databases = [database for database in named if database is not None]
    lines = []
    if is_on_tables(settings):
        if on_tables is None:
            raise SettingsError(f"LUCIUS_LEDGER={settings.ledger} has nothing of older versions")
        lines.append(await on_tables(settings))
    elif not databases:
        raise SettingsError(NO_TABLES)
    for database in databases:
        async with database:
            lines.append(await act(database))
    return "\n".join(lines)


def db_compact(settings: Settings) -> str:
    """Write the SQLite file anew, as small as it can be."""

    async def work() -> str:
        database = _sqlite(
            settings, "only a SQLite file can be compacted; PostgreSQL frees space by itself (autovacuum)"
        )
        before, after_it = await asyncio.to_thread(database.compact)
        return f"{database.name}: {before >> 20} MiB before, {after_it >> 20} MiB now."

    return run(work(), settings)


def db_backup(settings: Settings, file: Path) -> str:
    async def work() -> str:
        database = _sqlite(
            settings,
            "a PostgreSQL database is backed up with its own tools:"
            f' pg_dump --format=custom --file={file} "$LUCIUS_LEDGER"',
        )
        state = await asyncio.to_thread(back_up, database.path, file)
        return f"{database.name}: backed up to {file}, at schema version {state.version}."

    return run(work(), settings)


def db_restore(settings: Settings, file: Path) -> str:
    async def work() -> str:
        database = _sqlite(
            settings,
            "a PostgreSQL database is restored with its own tools, into an empty database:"
            f' pg_restore --no-owner --single-transaction --exit-on-error --dbname="$LUCIUS_LEDGER" {file}',
        )
        is_replaced = database.path.exists()
        version = await asyncio.to_thread(database.restore, file, schema.VERSION)
        said = f"{database.name}: restored from {file}, at schema version {version}."
        if version < schema.VERSION:
            said += " 'lucius db upgrade' or the next 'lucius up' upgrades it."
        if is_replaced:
            said += f"\nThe previous file is kept as {database.path}.replaced: delete it when you do not need it."
        return said

    return run(work(), settings)


def _sqlite(settings: Settings, otherwise: str) -> SqliteDatabase:
    database = open_database(settings)
    if database is None:
        raise SettingsError(NO_TABLES)
    if not isinstance(database, SqliteDatabase):
        raise SettingsError(otherwise)
    return database


def _migrations(count: int) -> str:
    return f"{count} migration{'' if count == 1 else 's'}"
