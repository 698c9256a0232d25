"""Upkeep of the message table: settled rows go once their duplicate window has passed, dead ones after a set time."""

from __future__ import annotations

from lucius.buses.sql import statements
from lucius.domain.time import after
from lucius.ports.clock import Clock
from lucius.sql.database import Fetch, Run, Script

DUPLICATE_WINDOW_SECONDS = 600.0
ROWS_MAX = 5_000
"""Rows looked at in one go."""


class Upkeep:
    """Goes through the table a page at a time, round and round."""

    def __init__(self, clock: Clock, dead_seconds: float) -> None:
        self._clock = clock
        self._dead_seconds = dead_seconds
        self._from_seq = 0

    def forget_script(self) -> Script[None]:
        cutoff = after(self._clock.now(), -DUPLICATE_WINDOW_SECONDS)
        page = yield Fetch(statements.SETTLED_PAGE, (self._from_seq, ROWS_MAX))
        old = [(row[0],) for row in page if row[1] == "SETTLED" and row[2] < cutoff]
        if old:
            yield Run(statements.FORGET, old)
        self._from_seq = int(page[-1][0]) if len(page) == ROWS_MAX else 0
        dead = yield Fetch(statements.OLD_DEAD, (after(self._clock.now(), -self._dead_seconds), ROWS_MAX))
        if dead:
            yield Run(statements.FORGET, [(row[0],) for row in dead])

    def expire_script(self) -> Script[None]:
        """For a bus whose queues are in the database alone."""
        now = self._clock.now()
        expired = yield Fetch(statements.EXPIRED, (now, ROWS_MAX))
        if expired:
            yield Run(statements.BURY_BY_SEQ, [(row[0], now, "EXPIRED", row[1]) for row in expired])
        yield from self.forget_script()
