"""The ledger on Azure Table Storage, and the stores beside it, by their settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lucius.azure.credential import AzureIdentity
from lucius.bootstrap.registry import storage_options
from lucius.ports.ledger import Ledger
from lucius.settings import Settings, SettingsError
from lucius.warm_up import warm_up

if TYPE_CHECKING:
    from lucius.azure.tables import TableAccount
    from lucius.ledgers.tables import TablesLedger

SCHEME = "aztables:"
LAYOUTS = ("ledger", "table")
_PREFIX = re.compile(r"[a-z][a-z0-9]{2,40}")


def is_on_tables(settings: Settings) -> bool:
    return settings.ledger.startswith(SCHEME)


def open_tables_ledger(settings: Settings, identity: AzureIdentity) -> TablesLedger:
    """Raises `SettingsError`."""
    layout = settings.ledger.removeprefix(SCHEME)
    if layout not in LAYOUTS:
        raise SettingsError(f"LUCIUS_LEDGER={settings.ledger!r}: must be aztables:ledger or aztables:table")
    if not _PREFIX.fullmatch(settings.table_prefix):
        raise SettingsError(
            f"LUCIUS_TABLE_PREFIX={settings.table_prefix!r}: must be 3 to 41 small letters and digits, a letter first"
        )
    options = storage_options(settings)
    if not options.is_set:
        raise SettingsError(
            f"LUCIUS_LEDGER={settings.ledger} needs a storage account: set LUCIUS_STORAGE_ACCOUNT, or for an emulator"
            " LUCIUS_STORAGE_CONNECTION"
        )
    try:
        tables, blobs = _open_tables(settings, identity), options.open(identity)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    from lucius.ledgers.tables import LAYOUTS as layouts
    from lucius.ledgers.tables import TablesLedger

    warm_up()  # That import added types.
    return TablesLedger(tables, blobs, layouts[layout], settings.table_prefix)


async def prepare_tables(ledger: Ledger, creates: bool) -> list[str]:
    """See that the tables and the container for large texts are there; `creates`: make what is not. Returns the names
    of new tables."""
    from lucius.ledgers.tables import TablesLedger

    assert isinstance(ledger, TablesLedger)
    if creates:
        return await ledger.create_tables()
    missing = await ledger.missing()
    if missing:
        raise SettingsError(f"missing in the storage account: {', '.join(missing)}; run `lucius db upgrade`")
    return []


def _open_tables(settings: Settings, identity: AzureIdentity) -> TableAccount:
    from lucius.azure.tables import TableAccount

    if settings.storage_connection:
        return TableAccount.connected(settings.storage_connection)
    if settings.storage_sas:
        from azure.core.credentials import AzureSasCredential

        return TableAccount.named(settings.storage_account, AzureSasCredential(settings.storage_sas.lstrip("?")))
    return TableAccount.named(settings.storage_account, identity.credential())
