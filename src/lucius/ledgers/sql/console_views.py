"""Saved views of the console, in SQL.

Every save first writes a row that stands for the owner's views of the page: who saves at the same moment waits for it,
and then sees what was saved.
"""

from __future__ import annotations

from lucius.ports.console_views import SavedView
from lucius.sql.database import Database, Fetch, Run, Script

ALL = "SELECT name, query, created_at FROM console_views WHERE owner_hash = $1 AND page = $2 ORDER BY name LIMIT 1000"
SAVE = (
    "INSERT INTO console_views (owner_hash, page, name, query, created_at) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (owner_hash, page, name) DO UPDATE SET query = EXCLUDED.query, created_at = EXCLUDED.created_at"
)
REMOVE = "DELETE FROM console_views WHERE owner_hash = $1 AND page = $2 AND name = $3"
GUARD = "guard"
"""In place of the page of such a row: no page is called that."""


class SqlConsoleViews:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self, owner_hash: str, page: str) -> list[SavedView]:
        def script() -> Script[list[SavedView]]:
            found = yield Fetch(ALL, [owner_hash, page])
            return [SavedView(name=name, query=query, created_at=at) for name, query, at in found]

        return await self._database.read(script)

    async def save(self, owner_hash: str, page: str, view: SavedView, kept_max: int) -> bool:
        def script() -> Script[bool]:
            yield Run(SAVE, [(owner_hash, GUARD, page, "", view.created_at)])
            names = {row[0] for row in (yield Fetch(ALL, [owner_hash, page]))}
            if len(names | {view.name}) > kept_max:
                return False
            yield Run(SAVE, [(owner_hash, page, view.name, view.query, view.created_at)])
            return True

        return await self._database.write(script)

    async def remove(self, owner_hash: str, page: str, name: str) -> None:
        def script() -> Script[None]:
            yield Run(REMOVE, [(owner_hash, page, name)])

        await self._database.write(script)
