"""How many jobs were accepted and ended in a window of time, without adding up a week of minutes for every page.

What is before the current minute hardly changes, so its sum is kept for a minute, and what came since is added. The two
are read one after the other: what is committed in between is missing until the sum is made anew, a minute later at
most. So is what leaves the window: its beginning is up to a minute late.
"""

from __future__ import annotations

from msgspec import Struct

from lucius.domain.time import Instant, after
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger

KEPT_MILLIS = 60_000
KEPT_MAX = 1_000
"""Sums, by window and tenants."""


class _Sum(Struct, frozen=True):
    made_at: Instant
    counts: dict[str, int]
    """Before `made_at`'s minute."""


class WindowCounts:
    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._sums: dict[tuple[int, tuple[str, ...] | None], _Sum] = {}

    async def of(self, seconds: int, tenants: tuple[str, ...] | None) -> dict[str, int]:
        """By outcome, over the last so many seconds. Raises `LedgerUnavailable`."""
        now, key = self._clock.now(), (seconds, tenants)
        kept = self._sums.get(key)
        if kept is not None and 0 <= now - kept.made_at < KEPT_MILLIS:
            recent = await self._ledger.counts(kept.made_at, tenants)
            outcomes = {*kept.counts, *recent}
            return {outcome: kept.counts.get(outcome, 0) + recent.get(outcome, 0) for outcome in outcomes}
        whole = await self._ledger.counts(after(now, -seconds), tenants)
        recent = await self._ledger.counts(now, tenants)
        if len(self._sums) >= KEPT_MAX:
            self._sums.clear()
        older = {outcome: max(0, jobs - recent.get(outcome, 0)) for outcome, jobs in whole.items()}
        self._sums[key] = _Sum(now, older)
        return whole
