"""How many unacknowledged directives a tenant may have for one service on one lane: the cap, more, or fewer.

The cap is there for the tenants that share a queue: whoever comes waits for what the others have in it. How long that
is depends on how fast the service acknowledges, so what a tenant may have follows from what was acknowledged just
before. A tenant that is alone may have the cap or a tenth of a second's work, whichever is more.

When another tenant comes, each may have as much work as keeps the service busy while its next directives are on their
way, no more than the cap and no less than two directives. How long that is follows from how long publishing has taken
lately, on average. With less in the queue the service would wait, be measured as slow, get still less, and stay so.
More than a fortieth of a second's work is only for a broker that is far away: if no publishing is quick. One that takes
long now and then has waited for this process, or for the ledger, and so would a newcomer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic

from lucius.ports.ledger import HeldLine

AHEAD_SECONDS = 0.1
"""A tenant that is alone may have as much queued as was acknowledged in so many seconds before."""
SHARED_AHEAD_SECONDS = (0.0125, 0.025)
"""And one that shares the queue at least, and with a broker that is near, at most. The latter, too, where other
processes get some of the acknowledgements."""
PUBLISHES_AHEAD = 3
"""Between these, as much as in the time of so many publishes: after an ACK, the next directive is let go, published,
delivered and acknowledged."""
PUBLISHES_COUNTED = 16
"""Over about so many, the time of a publish is averaged."""
QUICKEST_SECONDS = 1.0
"""The quickest publish is the one of so many seconds, and of as many before."""
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
        self.hears_late = False
        """Whether other processes get some of the acknowledgements: this one hears of them from the ledger."""
        self._average_publish = 0.0
        self._quickest_publish = _Quickest()

    def size(self, line: HeldLine) -> int:
        """Unacknowledged directives that a line may have now."""
        queue, now = self._queue(line), self._time()
        lately = queue.acknowledged_lately(now)
        if queue.is_shared(now) or queue.tenants - {line.tenant_id}:
            part = int(lately * self._shared_ahead_seconds(now) / AHEAD_SECONDS)
            return min(max(part + 1, SHARED_LEAST), self._cap)
        return min(max(lately, self._cap), self._cap * GROWTH_MAX)

    def _shared_ahead_seconds(self, now: float) -> float:
        least, most = SHARED_AHEAD_SECONDS
        if self.hears_late:
            least = most
        most = max(most, PUBLISHES_AHEAD * self._quickest_publish.seconds(now))
        return min(max(PUBLISHES_AHEAD * self._average_publish, least), most, AHEAD_SECONDS)

    def entered(self, line: HeldLine) -> None:
        """The tenant has something in this queue."""
        self._queue(line).enter(line.tenant_id, self._time())

    def left(self, line: HeldLine) -> None:
        """It has nothing in this queue any more."""
        self._queue(line).leave(line.tenant_id, self._time())

    def published_within(self, seconds: float) -> None:
        """So long after it was let go, the bus had a directive and that was recorded."""
        self._average_publish += (min(seconds, AHEAD_SECONDS) - self._average_publish) / PUBLISHES_COUNTED
        self._quickest_publish.add(seconds, self._time())

    def acknowledged(self, line: HeldLine) -> None:
        self._queue(line).acknowledge(self._time())

    def met(self, line: HeldLine) -> None:
        """The tenant uses this queue, whichever process has published for it."""
        self._queue(line).meet(line.tenant_id, self._time())

    def _queue(self, line: HeldLine) -> _Queue:
        key = (line.lane, line.service)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        return queue


class _Quickest:
    """The shortest of the times that were measured lately; 0 if there were none."""

    def __init__(self) -> None:
        self._until = -inf
        self._now = self._before = inf

    def add(self, seconds: float, now: float) -> None:
        self._begin_anew(now)
        self._now = min(self._now, seconds)

    def seconds(self, now: float) -> float:
        self._begin_anew(now)
        quickest = min(self._now, self._before)
        return 0.0 if quickest == inf else quickest

    def _begin_anew(self, now: float) -> None:
        if now >= self._until:
            self._before = self._now if now < self._until + QUICKEST_SECONDS else inf
            self._now = inf
            self._until = now + QUICKEST_SECONDS


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
