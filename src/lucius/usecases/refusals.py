"""How many commands of each tenant were refused because a limit was reached.

A refusal must stay cheap, so they are counted in memory and written every few seconds.
"""

from __future__ import annotations

from collections import Counter

from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer

FLUSH_SECONDS = 2.0
TENANTS_MAX = 1_000
"""Tenants that are counted between two writes; refusals of others are left out."""
CODES = frozenset({"TENANT_SATURATED", "MODE_SATURATED", "GLOBAL_SATURATED", "RATE_LIMITED"})


class Refusals(Observer):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted: Counter[str] = Counter()

    def command_refused(self, code: str, tenant_id: str | None = None) -> None:
        if code not in CODES or tenant_id is None:
            return
        if tenant_id in self._counted or len(self._counted) < TENANTS_MAX:
            self._counted[tenant_id] += 1

    async def flush(self, ledger: Ledger) -> None:
        """Raises `LedgerUnavailable`; what was not written stays counted."""
        writing, self._counted = self._counted, Counter()
        if not writing:
            return
        try:
            await ledger.count_refused(self._clock.now(), writing)
        except BaseException:
            self._counted.update(writing)
            raise
