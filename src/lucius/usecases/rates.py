"""Request rates: a token bucket per tenant, in each process by itself or shared through a gate."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict

from lucius.domain.errors import CallerError
from lucius.ports.clock import Clock
from lucius.ports.rate_gate import Grant, RateGate, RateGateUnavailable
from lucius.ports.readiness import Check, NotReady

TENANTS_MAX = 10_000
"""Number of buckets; the least recently used is evicted first, and starts full again."""
PAUSE_SECONDS = 2.0
"""How long a gate that did not answer is not asked again, so that commands do not wait for it one after another."""

log = logging.getLogger("lucius.rates")


class OwnRates:
    """The buckets of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, tenant_id: str, per_second: float, count: int) -> Grant:
        """Use up as many requests as there are, at most `count`. A bucket holds one second's worth, and at least one
        request."""
        now = self._clock.now()
        capacity = max(per_second, 1.0)
        tokens, seen_at = self._buckets.pop(tenant_id, (capacity, now))
        tokens = min(capacity, tokens + max(0, now - seen_at) / 1000 * per_second)
        granted = min(count, int(tokens))
        self._buckets[tenant_id] = (tokens - granted, now)
        if len(self._buckets) > TENANTS_MAX:
            self._buckets.popitem(last=False)
        return Grant(granted, 0.0 if granted == count else (1 - (tokens - granted)) / per_second)


class RateLimits:
    """What a tenant may send: by the gate if there is one, and while that is away by this process's own buckets."""

    def __init__(self, clock: Clock, gate: RateGate | None = None) -> None:
        self._own = OwnRates(clock)
        self._gate = gate
        self._away: str | None = None
        """Why the gate is not used."""
        self._ask_at = 0.0

    async def take(self, tenant_id: str, per_second: float, count: int = 1) -> Grant:
        """How many of so many requests may pass."""
        if self._gate is not None and time.monotonic() >= self._ask_at:
            if self._away is not None:
                self._ask_at = time.monotonic() + PAUSE_SECONDS  # One command finds out; the others do not wait.
            try:
                granted = await self._gate.take(tenant_id, per_second, count)
            except RateGateUnavailable as error:
                self._lost(self._gate, str(error))
            else:
                self._found(self._gate)
                return granted
        return self._own.take(tenant_id, per_second, count)

    def checks(self) -> list[Check]:
        gate = self._gate
        if gate is None:
            return []

        async def look() -> str:
            try:
                return await gate.health()
            except RateGateUnavailable as error:
                raise NotReady(
                    f"{error}; until it is back, each process holds tenants to their rate by itself"
                ) from error

        return [Check(name="rate_gate", look=look, is_vital=False)]

    def _lost(self, gate: RateGate, reason: str) -> None:
        self._ask_at = time.monotonic() + PAUSE_SECONDS
        if self._away is None:
            log.warning(
                "the rate gate %s is away: %s; until it is back, this process holds tenants to their rate by itself",
                gate.location, reason,
            )  # fmt: skip
        self._away = reason

    def _found(self, gate: RateGate) -> None:
        self._ask_at = 0.0
        if self._away is not None:
            self._away = None
            log.warning("the rate gate %s is back", gate.location)


def rate_refusal(per_second: float, grant: Grant) -> CallerError:
    detail = f"the tenant may send {per_second:g} commands per second"
    return CallerError.of("RATE_LIMITED", detail, "/tenant_id", retry_after_seconds=grant.retry_after_seconds)
