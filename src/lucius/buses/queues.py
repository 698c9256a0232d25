"""Peek-lock queues in memory: what the buses of a single process are made of.

A message waits in one of two places: `ready`, in the order of delivery, or `later`, a heap of messages that are locked
or delayed, by the moment at which they become deliverable. Entries that have moved on are skipped when they are met.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lucius.domain.time import Instant, after
from lucius.ports.bus import DeadLetter, Delivery, DeliveryRef, Depth, Message, Refused, Subscription
from lucius.ports.clock import Clock

ROUTES_MAX = 10_000
"""Remembered answers to the question which subscriptions want a message with these properties."""
LATER_KEPT = 1_024
"""Entries of locked and delayed messages up to which nobody looks whether they still mean something."""
WAIT_SLICE_SECONDS = 0.1
"""How often a receiver that waits looks for locks and delays that have run out."""


class Held:
    """One message in one subscription."""

    __slots__ = (
        "body",
        "delivery_count",
        "enqueued_at",
        "expires_at",
        "is_ready",
        "message_id",
        "properties",
        "visible_at",
    )

    def __init__(
        self,
        message_id: str,
        body: bytes | None,
        properties: Mapping[str, Any],
        enqueued_at: Instant,
        visible_at: Instant,
        expires_at: Instant,
        delivery_count: int = 0,
    ) -> None:
        self.message_id = message_id
        self.body = body
        self.properties = properties
        self.enqueued_at = enqueued_at
        self.visible_at = visible_at
        self.expires_at = expires_at
        self.delivery_count = delivery_count
        self.is_ready = False


class Buried:
    __slots__ = ("dead_at", "held", "reason")

    def __init__(self, held: Held, dead_at: Instant, reason: str) -> None:
        self.held = held
        self.dead_at = dead_at
        self.reason = reason


class Queue:
    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.held: dict[str, Held] = {}
        self.dead: OrderedDict[str, Buried] = OrderedDict()
        self.waiters: set[asyncio.Event] = set()
        self._ready: deque[Held] = deque()
        self._later: list[tuple[Instant, int, Held]] = []
        self._order = 0

    def add(self, held: Held, now: Instant) -> None:
        self.held[held.message_id] = held
        if held.visible_at <= now:
            held.is_ready = True
            self._ready.append(held)
        else:
            self._postpone(held)
        for waiter in self.waiters:
            waiter.set()

    def take(self, now: Instant, limit: int, until: Instant) -> list[Held]:
        """Lock up to `limit` messages that are due."""
        self.wake(now)
        taken: list[Held] = []
        while self._ready and len(taken) < limit:
            held = self._ready.popleft()
            if self.held.get(held.message_id) is not held or not held.is_ready:
                continue
            held.is_ready = False
            held.visible_at = until
            held.delivery_count += 1
            self._postpone(held)
            taken.append(held)
        return taken

    def wake(self, now: Instant) -> None:
        """Make deliverable what was locked or delayed until now."""
        while self._later and self._later[0][0] <= now:
            entry = heapq.heappop(self._later)
            held = entry[2]
            if self._is_current(entry) and not held.is_ready:
                held.is_ready = True
                self._ready.append(held)

    def _is_current(self, entry: tuple[Instant, int, Held]) -> bool:
        visible_at, _, held = entry
        return self.held.get(held.message_id) is held and held.visible_at == visible_at

    def spent(self, now: Instant) -> list[tuple[Held, str]]:
        """Messages that are due and yet not to be delivered: expired, or delivered too often."""
        self.wake(now)
        found = []
        for held in self._ready:
            if not held.is_ready:
                continue
            if held.expires_at <= now:
                found.append((held, "EXPIRED"))
            elif held.delivery_count >= self.subscription.delivery_max:
                found.append((held, "DELIVERED_TOO_OFTEN"))
        return found

    def release(self, held: Held, now: Instant, visible_at: Instant) -> None:
        """Give up a lock: deliverable again at that moment, and first in line if that is now."""
        held.visible_at = visible_at
        if visible_at > now:
            held.is_ready = False
            self._postpone(held)
        elif not held.is_ready:
            held.is_ready = True
            self._ready.appendleft(held)
        for waiter in self.waiters:
            waiter.set()

    def extend(self, held: Held, until: Instant) -> None:
        held.visible_at = until
        self._postpone(held)

    def remove(self, message_id: str) -> Held | None:
        held = self.held.pop(message_id, None)
        # What was settled would otherwise stay in memory until its lock would have ended.
        if len(self._later) > LATER_KEPT and len(self._later) > 2 * len(self.held):
            self._later = [entry for entry in self._later if self._is_current(entry)]
            heapq.heapify(self._later)
        return held

    def bury(self, message_id: str, now: Instant, reason: str) -> None:
        held = self.held.pop(message_id, None)
        if held is not None:
            self.dead[message_id] = Buried(held, now, reason)

    def depth(self, now: Instant) -> Depth:
        ready = sum(held.visible_at <= now for held in self.held.values())
        return Depth(
            topic=self.subscription.topic,
            subscription=self.subscription.name,
            ready=ready,
            locked=len(self.held) - ready,
            dead=len(self.dead),
            oldest_at=min((held.enqueued_at for held in self.held.values()), default=None),
        )

    def _postpone(self, held: Held) -> None:
        self._order += 1
        heapq.heappush(self._later, (held.visible_at, self._order, held))


class Queues:
    """All subscriptions of a bus."""

    def __init__(self, clock: Clock, message_bytes_max: int) -> None:
        self.clock = clock
        self.message_bytes_max = message_bytes_max
        self._queues: dict[tuple[str, str], Queue] = {}
        self._by_topic: dict[str, list[Queue]] = {}
        self._filtered_on: dict[str, tuple[str, ...]] = {}
        self._routes: dict[tuple[Any, ...], list[Queue]] = {}
        self._turn = 0

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    def declare(self, subscription: Subscription) -> Queue:
        key = (subscription.topic, subscription.name)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue(subscription)
            self._by_topic.setdefault(subscription.topic, []).append(queue)
        queue.subscription = subscription
        filters = (one.subscription.where for one in self._by_topic[subscription.topic])
        self._filtered_on[subscription.topic] = tuple(sorted({name for where in filters for name in where}))
        self._routes.clear()
        return queue

    def find(self, topic: str, name: str) -> Queue | None:
        return self._queues.get((topic, name))

    def refusal(self, message: Message) -> Refused | None:
        if len(message.body) > self.message_bytes_max:
            return Refused(f"the message has {len(message.body)} bytes; the bus takes {self.message_bytes_max}")
        if message.topic not in self._by_topic:
            return Refused(f"nobody subscribes to topic {message.topic}")
        return None

    def wanting(self, message: Message) -> list[Queue]:
        """The subscriptions whose filter a message passes."""
        names = self._filtered_on.get(message.topic)
        if names is None:
            return []
        properties = message.properties
        key = (message.topic, *(properties.get(name) for name in names))
        found = self._routes.get(key)
        if found is None:
            found = [
                queue
                for queue in self._by_topic[message.topic]
                if all(properties.get(name) == value for name, value in queue.subscription.where.items())
            ]
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[key] = found
        return found

    def add(self, message: Message) -> None:
        now = self.clock.now()
        for queue in self.wanting(message):
            expires_at = after(now, queue.subscription.ttl_seconds)
            visible_at = message.deliver_at or now
            queue.add(Held(message.id, message.body, message.properties, now, visible_at, expires_at), now)

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[tuple[Queue, Held]]:
        """Take and lock what is due, waiting for the first."""
        wanted = [queue for topic in topics if (queue := self._queues.get((topic, subscription))) is not None]
        taken = self._take(wanted, limit, lock_seconds)
        if taken or wait_seconds <= 0 or not wanted:
            return taken
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        event = asyncio.Event()
        for queue in wanted:
            queue.waiters.add(event)
        try:
            while (left := deadline - loop.time()) > 0:
                timer = loop.call_later(min(left, WAIT_SLICE_SECONDS), event.set)
                await event.wait()
                timer.cancel()
                event.clear()
                taken = self._take(wanted, limit, lock_seconds)
                if taken:
                    break
            return taken
        finally:
            for queue in wanted:
                queue.waiters.discard(event)

    def _take(self, wanted: Sequence[Queue], limit: int, lock_seconds: float) -> list[tuple[Queue, Held]]:
        """A fair share from every topic first, then whatever is left: no topic starves another."""
        now = self.clock.now()
        until = after(now, lock_seconds)
        self._turn += 1
        start = self._turn % len(wanted) if wanted else 0
        order = [queue for queue in (*wanted[start:], *wanted[:start]) if queue.held]
        taken: list[tuple[Queue, Held]] = []
        share = max(1, limit // len(order)) if order else 0
        while order and len(taken) < limit:
            still_full = []
            for queue in order:
                got = queue.take(now, min(share, limit - len(taken)), until)
                taken.extend((queue, held) for held in got)
                if len(got) == share:
                    still_full.append(queue)
            order = still_full
        return taken

    def held(self, ref: DeliveryRef) -> tuple[Queue, Held] | None:
        queue = self._queues.get((ref.topic, ref.subscription))
        held = queue.held.get(ref.message_id) if queue is not None else None
        return (queue, held) if queue is not None and held is not None else None

    def renew(self, ref: DeliveryRef, lock_seconds: float) -> bool:
        now, found = self.clock.now(), self.held(ref)
        if found is None or found[1].delivery_count == 0 or found[1].visible_at <= now:
            return False
        found[0].extend(found[1], after(now, lock_seconds))
        return True

    def is_waiting(self, ref: DeliveryRef) -> bool:
        found = self.held(ref)
        return found is not None and (found[1].visible_at <= self.clock.now() or found[1].delivery_count == 0)

    def dead_letters(self, limit: int) -> list[DeadLetter]:
        found = [
            DeadLetter(
                ref=DeliveryRef(queue.subscription.topic, queue.subscription.name, message_id),
                properties=buried.held.properties,
                delivery_count=buried.held.delivery_count,
                reason=buried.reason,
                dead_at=buried.dead_at,
            )
            for queue in self._queues.values()
            for message_id, buried in queue.dead.items()
        ]
        return sorted(found, key=lambda letter: letter.dead_at, reverse=True)[:limit]


def delivery(queue: Queue, held: Held, body: bytes) -> Delivery:
    subscription = queue.subscription
    return Delivery(
        ref=DeliveryRef(subscription.topic, subscription.name, held.message_id),
        body=body,
        properties=held.properties,
        delivery_count=held.delivery_count,
        locked_until=held.visible_at,
    )
