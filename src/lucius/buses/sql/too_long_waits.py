"""Messages that wait longer than they may, because a process whose clock was ahead locked or published them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lucius.buses.sql import statements
from lucius.clocks import SetBack
from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, after
from lucius.ports.clock import Clock
from lucius.sql.database import Fetch, Script

LOOK_SECONDS = 60.0
"""How often the receivers of a subscription look for them; at once where the clock was set back."""


class TooLongWaits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set_back = SetBack()
        self._looked_at: dict[int, float] = {}

    def look(self, subscription_ids: Sequence[int], lock_seconds: float) -> Callable[[], Script[None]] | None:
        """What shortens them, if it is time to look: no message waits longer than the lock that its receiver takes, and
        one that nobody had yet does not wait at all, unless its publisher wanted it to."""
        now, looked_at = self._clock.now(), time.monotonic()
        if self._set_back.noticed(now):
            self._looked_at.clear()
        due = [id_ for id_ in subscription_ids if looked_at - self._looked_at.get(id_, float("-inf")) >= LOOK_SECONDS]
        if not due:
            return None
        self._looked_at.update(dict.fromkeys(due, looked_at))
        until = after(now, lock_seconds)

        def script() -> Script[None]:
            yield Fetch(statements.SHORTEN_LOCKS, (due, until, after(until, CLOCK_TOLERANCE_SECONDS)))
            yield Fetch(statements.SHOW_NEW, (due, now, after(now, CLOCK_TOLERANCE_SECONDS)))

        return script
