"""The message table is vacuumed as fast as it is used.

Each message leaves two or three dead rows, and whoever looks for messages passes all that are left in the indexes:
with 30,000 of them, which is a few seconds of load, one job alone took twice its time. By default PostgreSQL's own
autovacuum comes once a minute. So a process that publishes or settles looks every second how many there are.

The first vacuum of a new table also analyzes it: until then the planner takes a message's id for one of two hundred,
and reads the whole table rather than an index.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from lucius.buses.sql import statements
from lucius.buses.sql.store import MessageStore
from lucius.ports.bus import BusUnavailable
from lucius.sql.database import Fetch, Script

LOOK_SECONDS = 1.0
DEAD_ROWS_MIN = 4_000
DEAD_SHARE_MIN = 0.1
"""Of the rows that are not dead: a vacuum goes through their indexes too."""

log = logging.getLogger("lucius.bus")


class Vacuum:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._is_used = False
        self._left = 0
        """What the last vacuum could not remove, because a transaction somewhere may still see it."""

    def used(self) -> None:
        """This process has written messages."""
        self._is_used = True

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._is_used:
                self._is_used = False
                try:
                    await self.look()
                except BusUnavailable as error:
                    log.debug("the message table was not vacuumed: %s", error)

    async def look(self) -> None:
        dead, live, is_new = await self._rows()
        if dead < max(DEAD_ROWS_MIN, DEAD_SHARE_MIN * live, 2 * self._left):
            return
        await self._store.write(partial(_run, statements.VACUUM_AND_ANALYZE if is_new else statements.VACUUM))
        self._left, _, _ = await self._rows()

    async def _rows(self) -> tuple[int, int, bool]:
        """Dead and living ones, and whether the table was never analyzed."""
        found = await self._store.fetch(statements.DEAD_ROWS)
        return (int(found[0][0]), int(found[0][1]), bool(found[0][2])) if found else (0, 0, False)


def _run(vacuum: str) -> Script[None]:
    yield Fetch(vacuum, is_alone=True)
