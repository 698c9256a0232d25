"""How many unacknowledged directives a tenant may have for one service on one lane: the cap, more, or fewer.

The cap is there for the tenants that share a queue: whoever comes waits for what the others have in it. How long that
is depends on how fast the service acknowledges, so what a tenant may have follows from what was acknowledged just
before. A tenant that is alone may have the cap or a tenth of a second's work, whichever is more.

When another tenant comes, each may have as much work as keeps the service busy while its next directives are on their
way, no more than the cap and no less than two directives. How long that is follows from how long publishing has taken
lately. With less in the queue the service would wait, be measured as slow, get still less, and stay so.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic

from lucius.ports.ledger import HeldLine

AHEAD_SECONDS = 0.1
"""A tenant that is alone may have as much queued as was acknowledged in so many seconds before."""
SHARED_AHEAD_SECONDS = 0.0125
"""And one that shares the queue at least as much as in so many."""
PUBLISHES_AHEAD = 3
"""Or as in the time of so many publishes, if that is longer: after an ACK, the next directive is let go, published,
delivered and acknowledged."""
PUBLISHES_COUNTED = 16
"""Over about so many, the time of a publish is averaged."""
SHARED_LEAST = 2
"""A tenant may always have so many, unless the cap is less: one to work on, and one to follow."""
SHARED_SECONDS = 1.0
"""So long after another tenant was there, a queue counts as shared: its next directive is likely to follow."""
GROWTH_MAX = 16
"""However fast the service is, a tenant has no more than the cap times this."""


class TenantWindows:
    def __init__(self, cap: int, time: Callable[[], float] = monotonic) -> None:
        self._cap = cap
        self._time = time
        self._queues: dict[tuple[int, str], _Queue] = {}
        self._publish_seconds = 0.0

    def size(self, line: HeldLine) -> int:
        """Unacknowledged directives that a line may have now."""
        queue, now = self._queue(line), self._time()
        lately = queue.acknowledged_lately(now)
        if queue.is_shared(now) or queue.tenants - {line.tenant_id}:
            ahead = min(max(PUBLISHES_AHEAD * self._publish_seconds, SHARED_AHEAD_SECONDS), AHEAD_SECONDS)
            return min(max(int(lately * ahead / AHEAD_SECONDS) + 1, SHARED_LEAST), self._cap)
        return min(max(lately, self._cap), self._cap * GROWTH_MAX)

    def entered(self, line: HeldLine) -> None:
        """The tenant has something in this queue."""
        self._queue(line).enter(line.tenant_id, self._time())

    def left(self, line: HeldLine) -> None:
        """It has nothing in this queue any more."""
        self._queue(line).leave(line.tenant_id, self._time())

    def published_within(self, seconds: float) -> None:
        """So long after it was let go, the bus had a directive and that was recorded."""
        self._publish_seconds += (min(seconds, AHEAD_SECONDS) - self._publish_seconds) / PUBLISHES_COUNTED

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
        self._shared_until = -inf
        self._counts_until = -inf
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
