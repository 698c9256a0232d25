"""Saved views of the console, on Azure Tables: a partition for each owner and page, with a row for each view.

Every change also writes the row `guard`, so that two changes at once cannot keep more than are allowed.
"""

from __future__ import annotations

from typing import Any

from lucius.azure.keys import key, part
from lucius.azure.tables import Delete, Insert, Put, Row, Table, TableConflict, TableNotFound, Write
from lucius.ledgers.tables.operators_table import TRIES_MAX, VIEWS, crowded_out, is_missing_table, unavailable
from lucius.ports.console_views import SavedView

GUARD, VIEW = "guard", "view"
READ_MAX = 1_000


class TablesConsoleViews:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def all(self, owner_hash: str, page: str) -> list[SavedView]:
        with unavailable():
            rows = await self._read(_partition(owner_hash, page))
        return sorted((_view(row) for name, row in rows.items() if name != GUARD), key=lambda view: view.name)

    async def save(self, owner_hash: str, page: str, view: SavedView, kept_max: int) -> bool:
        partition = _partition(owner_hash, page)
        with unavailable():
            for _ in range(TRIES_MAX):
                rows = await self._read(partition)
                if len((rows.keys() - {GUARD}) | {_key(view.name)}) > kept_max:
                    return False
                values: dict[str, Any] = {"name": view.name, "query": view.query, "created_at": view.created_at}
                if await self._written(partition, rows.get(GUARD), Put(_key(view.name), values)):
                    return True
        raise crowded_out("saved views")

    async def remove(self, owner_hash: str, page: str, name: str) -> None:
        partition = _partition(owner_hash, page)
        with unavailable():
            for _ in range(TRIES_MAX):
                rows = await self._read(partition)
                row = rows.get(_key(name))
                if row is None or await self._written(partition, rows.get(GUARD), Delete(row.key, row.etag)):
                    return
        raise crowded_out("saved views")

    async def _read(self, partition: str) -> dict[str, Row]:
        return {row.key: row for row in await self._table.rows(partition, limit=READ_MAX)}

    async def _written(self, partition: str, guard: Row | None, write: Write) -> bool:
        """Whether nobody else has changed the partition in between."""
        guarded: Write = Insert(GUARD, {}) if guard is None else Put(GUARD, {}, guard.etag)
        try:
            await self._table.write(partition, [guarded, write])
        except (TableConflict, TableNotFound) as error:
            if is_missing_table(error):
                raise
            return False
        return True


def _partition(owner_hash: str, page: str) -> str:
    return key(VIEWS, part(owner_hash), part(page))


def _key(name: str) -> str:
    return key(VIEW, part(name))


def _view(row: Row) -> SavedView:
    return SavedView(name=row.values["name"], query=row.values["query"], created_at=int(row.values["created_at"]))
