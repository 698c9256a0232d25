"""The database of runbooks: the ledger's, one of their own, or none, and then they are off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lucius.bootstrap.stores import open_database, open_database_at
from lucius.runbooks.opening import RunbooksOff
from lucius.settings import Settings, SettingsError
from lucius.sql import schema
from lucius.sql.database import Database
from lucius.sql.sqlite import SqliteDatabase

OFF = "off"


def open_runbooks_database(settings: Settings, statement_seconds: float | None = None) -> Database | None:
    """The database that LUCIUS_RUNBOOKS_DATABASE names; None if it names none. Raises `SettingsError`."""
    address = settings.runbooks_database
    if address in ("", OFF):
        return None
    database = open_database_at(address, settings, statement_seconds)
    if database is None:
        raise SettingsError(
            "LUCIUS_RUNBOOKS_DATABASE must be empty (the ledger's database), sqlite:///path, postgresql://… or off"
        )
    if address == settings.ledger or _is_ledgers_file(database, settings):
        raise SettingsError(
            "LUCIUS_RUNBOOKS_DATABASE names the ledger's own database, which runbooks are in anyway: leave it out"
        )
    return database


def why_off(settings: Settings) -> str:
    """For an installation without a database for runbooks."""
    if settings.runbooks_database == OFF:
        return "runbooks are off, because LUCIUS_RUNBOOKS_DATABASE=off"
    return (
        f"runbooks are off: they need SQL, and the ledger (LUCIUS_LEDGER={settings.ledger}) is not in a SQL database."
        " Set LUCIUS_RUNBOOKS_DATABASE to postgresql://… to use them"
    )


@asynccontextmanager
async def opened_for_runbooks(
    settings: Settings, of_ledger: Database | None, upgrades: bool | None = None
) -> AsyncIterator[Database | RunbooksOff]:
    """`of_ledger`: the database that the ledger is in, open and up to date. `upgrades`: whether a database of their own
    is upgraded; None: if it is a file of this process alone."""
    own = open_runbooks_database(settings)
    if own is not None:
        async with own:
            if not own.is_shared if upgrades is None else upgrades:
                await schema.upgrade(own)
            else:
                await schema.verify(own)
            yield own
    elif settings.runbooks_database == OFF or of_ledger is None:
        yield RunbooksOff(why_off(settings))
    else:
        yield of_ledger


def _is_ledgers_file(database: Database, settings: Settings) -> bool:
    if not isinstance(database, SqliteDatabase) or not settings.ledger.startswith("sqlite"):
        return False
    ledger = open_database(settings)
    return isinstance(ledger, SqliteDatabase) and ledger.path.resolve() == database.path.resolve()
