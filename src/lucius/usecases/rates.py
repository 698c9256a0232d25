"""Request rates: a token bucket per tenant, separately in each process."""

from __future__ import annotations

from collections import OrderedDict

from lucius.domain.errors import CallerError
from lucius.ports.clock import Clock

TENANTS_MAX = 10_000
"""Number of buckets; the least recently used is evicted first, and starts full again."""


class RateLimits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, tenant_id: str, per_second: float) -> None:
        """Use up one request, or raise `RATE_LIMITED`. A bucket holds one second's worth, and at least one request."""
        now = self._clock.now()
        capacity = max(per_second, 1.0)
        tokens, seen_at = self._buckets.pop(tenant_id, (capacity, now))
        tokens = min(capacity, tokens + max(0, now - seen_at) / 1000 * per_second)
        is_free = tokens >= 1
        self._buckets[tenant_id] = (tokens - 1 if is_free else tokens, now)
        if len(self._buckets) > TENANTS_MAX:
            self._buckets.popitem(last=False)
        if not is_free:
            wait = (1 - tokens) / per_second
            detail = f"the tenant may send {per_second:g} commands per second"
            raise CallerError.of("RATE_LIMITED", detail, "/tenant_id", retry_after_seconds=wait)
