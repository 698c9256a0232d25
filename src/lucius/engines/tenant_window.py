"""How many unacknowledged directives a tenant may have for one service on one lane: the cap, more, or fewer.

The cap is there for the tenants that share a queue: whoever comes waits for what the others have in it. How long that
is depends on how fast the service acknowledges, so what a tenant may have follows from what was acknowledged just
before. A tenant that is alone may have the cap or a tenth of a second's work, whichever is more. When another tenant
comes, both may have a quarter of that work from then on, but no more than the cap and no less than a quarter of it.
Four is the least, if the cap allows it: with fewer, each directive waits for the whole way of the one before it, to the
service and back, so the queue is measured as slow and stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from lucius.ports.ledger import HeldLine

AHEAD_SECONDS = 0.1
"""A tenant that is alone may have as much queued as was acknowledged in so many seconds before."""
SHARED_PART = 4
"""A tenant that shares the queue may have one in so many of that."""
SHARED_LEAST = 4
"""And at least so many, unless the cap is less."""
SHARED_SECONDS = 1.0
"""So long after another tenant was there, a queue counts as shared: its next directive is likely to follow."""
GROWTH_MAX = 16
"""However fast the service is, a tenant has no more than the cap times this."""


class TenantWindows:
    def __init__(self, cap: int, time: Callable[[], float] = monotonic) -> None:
        self._cap = cap
        self._time = time
        self._queues: dict[tuple[int, str], _Queue] = {}

    def size(self, line: HeldLine) -> int:
        """Unacknowledged directives that a line may have now."""
        queue, now = self._queue(line), self._time()
        lately = queue.acknowledged_lately(now)
        if queue.is_shared(now) or queue.tenants - {line.tenant_id}:
            return min(max(max(lately, self._cap) // SHARED_PART, SHARED_LEAST), self._cap)
        return min(max(lately, self._cap), self._cap * GROWTH_MAX)

    def entered(self, line: HeldLine) -> None:
        """The tenant has something in this queue."""
        self._queue(line).enter(line.tenant_id, self._time())

    def left(self, line: HeldLine) -> None:
        """It has nothing in this queue any more."""
        self._queue(line).leave(line.tenant_id, self._time())

    def acknowledged(self, line: HeldLine) -> None:
        self._queue(line).acknowledge(self._time())

    def waits_elsewhere(self, line: HeldLine) -> None:
        """Another process holds something of this tenant."""
        self._queue(line).meet(line.tenant_id, self._time())

    def _queue(self, line: HeldLine) -> _Queue:
        key = (line.lane, line.service)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        return queue


class _Queue:
    """Of one service on one lane, as far as this process knows it."""

    def __init__(self) -> None:
        self.tenants: set[str] = set()
        self._shared_until = float("-inf")
        self._counts_until = float("-inf")
        self._acknowledged = 0
        self._acknowledged_before = 0

    def is_shared(self, now: float) -> bool:
        return now < self._shared_until

    def enter(self, tenant_id: str, now: float) -> None:
        self.meet(tenant_id, now)
        self.tenants.add(tenant_id)

    def meet(self, tenant_id: str, now: float) -> None:
        if self.tenants - {tenant_id}:
            self._shared_until = now + SHARED_SECONDS

    def leave(self, tenant_id: str, now: float) -> None:
        self.meet(tenant_id, now)
        self.tenants.discard(tenant_id)

    def acknowledge(self, now: float) -> None:
        self._measure(now)
        self._acknowledged += 1

    def acknowledged_lately(self, now: float) -> int:
        self._measure(now)
        return self._acknowledged_before

    def _measure(self, now: float) -> None:
        """Begin a new count when the time of the last is over; one from before a pause says nothing about now."""
        if now >= self._counts_until:
            is_recent = now < self._counts_until + AHEAD_SECONDS
            self._acknowledged_before = self._acknowledged if is_recent else 0
            self._acknowledged = 0
            self._counts_until = now + AHEAD_SECONDS
