"""A ledger on Azure Tables, on Azurite, in tables of its own, which are deleted with it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.azurite import Azurite

from lucius.azure.blob import BlobAccount
from lucius.azure.tables import TableAccount
from lucius.ledgers.tables import LAYOUTS, TablesLedger


def new_prefix() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


def open_ledger(connection: str, layout: str, prefix: str) -> TablesLedger:
    return TablesLedger(TableAccount.connected(connection), BlobAccount.connected(connection), LAYOUTS[layout], prefix)


@asynccontextmanager
async def opened_ledger(azurite: Azurite, layout: str) -> AsyncIterator[TablesLedger]:
    async with open_ledger(azurite.connection, layout, new_prefix()) as ledger:
        await ledger.create_tables()
        try:
            yield ledger
        finally:
            for name in ledger.store.table_names():
                await ledger.store.account.delete_table(name)
