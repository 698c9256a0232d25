"""Peek-lock queues in memory: what the buses of a single process are made of.

A message waits in one of two places: `ready`, in the order of delivery, in which tenants take turns, or `later`, a heap
of messages that are locked or delayed, by the moment at which they become deliverable. Entries that have moved on are
skipped when they are met.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lucius.buses.tenant_turns import TenantTurns
from lucius.buses.waiting import Waiting
from lucius.clocks import SetBack
from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.ports.bus import DeadLetter, Delivery, DeliveryRef, Depth, Message, Refused, Subscription, tenant_of
from lucius.ports.clock import Clock

ROUTES_MAX = 10_000
"""Remembered answers to the question which subscriptions want a message with these properties."""
LATER_KEPT = 1_024
"""Entries of locked and delayed messages up to which nobody looks whether they still mean something."""
NEVER: Instant = 2**62
LOOK_SECONDS = 0.1
"""How often one of the receivers that wait looks for locks and delays that have run out."""


class QueuedMessage:
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


class DeadMessage:
    __slots__ = ("dead_at", "held", "reason")

    def __init__(self, held: QueuedMessage, dead_at: Instant, reason: str) -> None:
        self.held = held
        self.dead_at = dead_at
        self.reason = reason


class Queue:
    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.key = (subscription.topic, subscription.name)
        self.held: dict[str, QueuedMessage] = {}
        self.dead: OrderedDict[str, DeadMessage] = OrderedDict()
        self._ready: TenantTurns[QueuedMessage] = TenantTurns(self._is_ready)
        self._later: list[tuple[Instant, int, QueuedMessage]] = []
        self._order = 0
        self._set_back = SetBack()
        self._spent_from: Instant | None = None
        """Before this moment no message is expired or was delivered too often; None if nobody knows."""

    def change(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self._spent_from = None

    def add(self, held: QueuedMessage, now: Instant) -> None:
        self.held[held.message_id] = held
        if self._spent_from is not None:
            self._spent_from = min(self._spent_from, held.expires_at)
        if held.visible_at <= now:
            self._make_ready(held)
        else:
            self._postpone(held)

    def _make_ready(self, held: QueuedMessage) -> None:
        held.is_ready = True
        self._ready.add(tenant_of(held.properties), held)
        if held.delivery_count >= self.subscription.delivery_max:
            self._spent_from = None

    def _is_ready(self, held: QueuedMessage) -> bool:
        return held.is_ready and self.held.get(held.message_id) is held

    def take(self, now: Instant, limit: int, until: Instant) -> list[QueuedMessage]:
        """Lock up to `limit` messages that are due."""
        if self._set_back.noticed(now):
            self._shorten_waits(now, until)
        self.wake(now)
        taken: list[QueuedMessage] = []
        while len(taken) < limit and (held := self._ready.next()) is not None:
            held.is_ready = False
            held.visible_at = until
            held.delivery_count += 1
            self._postpone(held)
            taken.append(held)
        return taken

    def _shorten_waits(self, now: Instant, until: Instant) -> None:
        """The clock was set back: no message waits longer than a lock until `until`, and none that nobody had yet."""
        tolerated = after(now, CLOCK_TOLERANCE_SECONDS)
        for held in self.held.values():
            if held.is_ready:
                continue
            if held.delivery_count > 0 and held.visible_at > after(until, CLOCK_TOLERANCE_SECONDS):
                self.extend(held, until)
            elif held.delivery_count == 0 and held.visible_at == held.enqueued_at > tolerated:
                self.extend(held, now)

    def wake(self, now: Instant) -> None:
        """Make deliverable what was locked or delayed until now."""
        while self._later and self._later[0][0] <= now:
            entry = heapq.heappop(self._later)
            held = entry[2]
            if self._is_current(entry) and not held.is_ready:
                self._make_ready(held)

    def _is_current(self, entry: tuple[Instant, int, QueuedMessage]) -> bool:
        visible_at, _, held = entry
        return self.held.get(held.message_id) is held and held.visible_at == visible_at

    def spent(self, now: Instant) -> list[tuple[QueuedMessage, str]]:
        """Messages that are due and yet not to be delivered: expired, or delivered too often."""
        self.wake(now)
        if self._spent_from is not None and now < self._spent_from:
            return []
        found = []
        for held in self._ready:
            if not self._is_ready(held):
                continue
            if held.expires_at <= now:
                found.append((held, "EXPIRED"))
            elif held.delivery_count >= self.subscription.delivery_max:
                found.append((held, "DELIVERED_TOO_OFTEN"))
        if not found:
            self._spent_from = min((held.expires_at for held in self.held.values()), default=NEVER)
        return found

    def release(self, held: QueuedMessage, now: Instant, visible_at: Instant) -> None:
        """Give up a lock: deliverable again at that moment, and before its tenant's others if that is now."""
        held.visible_at = visible_at
        if visible_at > now:
            held.is_ready = False
            self._postpone(held)
        elif not held.is_ready:
            held.is_ready = True
            self._ready.add_first(tenant_of(held.properties), held)
            if held.delivery_count >= self.subscription.delivery_max:
                self._spent_from = None

    def extend(self, held: QueuedMessage, until: Instant) -> None:
        held.visible_at = until
        self._postpone(held)

    def remove(self, message_id: str) -> int:
        """Take a message out and let go of its body; how many bytes that were."""
        freed = _let_go(self.held.pop(message_id, None))
        # What was settled would otherwise stay in memory until its lock would have ended.
        if len(self._later) > LATER_KEPT and len(self._later) > 2 * len(self.held):
            self._later = [entry for entry in self._later if self._is_current(entry)]
            heapq.heapify(self._later)
        return freed

    def bury(self, message_id: str, now: Instant, reason: str) -> None:
        held = self.held.pop(message_id, None)
        if held is not None:
            self.dead[message_id] = DeadMessage(held, now, reason)
            if not self.subscription.keeps_dead_bodies:
                _let_go(held)

    def requeue(self, message_id: str, body: bytes | None, now: Instant) -> bool:
        """Queue a dead letter as if it were new, with this body or the one that was kept; whether there is one."""
        buried = self.dead.get(message_id)
        body = body if body is not None or buried is None else buried.held.body
        if buried is None or body is None:
            return False
        del self.dead[message_id]
        expires_at = after(now, self.subscription.ttl_seconds)
        self.add(QueuedMessage(message_id, body, buried.held.properties, now, now, expires_at), now)
        return True

    def forget_dead(self, before: Instant) -> None:
        for message_id in [name for name, buried in self.dead.items() if buried.dead_at < before]:
            del self.dead[message_id]

    def depth(self, now: Instant) -> Depth:
        ready = sum(held.visible_at <= now for held in self.held.values())
        return Depth(
            topic=self.subscription.topic,
            subscription=self.subscription.name,
            ready=ready,
            locked=len(self.held) - ready,
            dead=len(self.dead),
            oldest_at=min((held.enqueued_at for held in self.held.values()), default=None),
            redelivered=sum(held.delivery_count > 1 for held in self.held.values()),
        )

    def _postpone(self, held: QueuedMessage) -> None:
        self._order += 1
        heapq.heappush(self._later, (held.visible_at, self._order, held))


def _let_go(held: QueuedMessage | None) -> int:
    """Entries in wait may still lead to a message that is over; its body goes at once."""
    if held is None or held.body is None:
        return 0
    freed, held.body = len(held.body), None
    return freed


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
        self._waiting: Waiting[tuple[str, str]] = Waiting(LOOK_SECONDS)

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    def declare(self, subscription: Subscription) -> Queue:
        key = (subscription.topic, subscription.name)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue(subscription)
            self._by_topic.setdefault(subscription.topic, []).append(queue)
        queue.change(subscription)
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

    def wake(self, queue: Queue) -> None:
        """Wake a receiver: the queue has got a message again."""
        self._waiting.wake(queue.key)

    def add(self, message: Message) -> int:
        """Queue a message; how many subscriptions have it."""
        now, wanting = self.clock.now(), self.wanting(message)
        for queue in wanting:
            expires_at = after(now, queue.subscription.ttl_seconds)
            visible_at = message.deliver_at or now
            queue.add(QueuedMessage(message.id, message.body, message.properties, now, visible_at, expires_at), now)
            self.wake(queue)
        return len(wanting)

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[tuple[Queue, QueuedMessage]]:
        """Take and lock what is due, waiting for the first."""
        wanted = [queue for topic in topics if (queue := self._queues.get((topic, subscription))) is not None]

        async def take() -> list[tuple[Queue, QueuedMessage]]:
            return self._take(wanted, limit, lock_seconds)

        return await self._waiting.receive([queue.key for queue in wanted], limit, wait_seconds, take)

    def _take(self, wanted: Sequence[Queue], limit: int, lock_seconds: float) -> list[tuple[Queue, QueuedMessage]]:
        """A fair share from every topic first, then whatever is left: no topic starves another."""
        now = self.clock.now()
        until = after(now, lock_seconds)
        self._turn += 1
        start = self._turn % len(wanted) if wanted else 0
        order = [queue for queue in (*wanted[start:], *wanted[:start]) if queue.held]
        taken: list[tuple[Queue, QueuedMessage]] = []
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

    def held(self, ref: DeliveryRef) -> tuple[Queue, QueuedMessage] | None:
        queue = self._queues.get((ref.topic, ref.subscription))
        held = queue.held.get(ref.message_id) if queue is not None else None
        return (queue, held) if queue is not None and held is not None else None

    def release(self, refs: Iterable[DeliveryRef], visible_at: Instant) -> None:
        """Give up locks: the messages are deliverable again at that moment."""
        now = self.clock.now()
        for ref in refs:
            found = self.held(ref)
            if found is not None:
                found[0].release(found[1], now, visible_at)
                self.wake(found[0])

    def renew(self, ref: DeliveryRef, lock_seconds: float) -> bool:
        now, found = self.clock.now(), self.held(ref)
        if found is None or found[1].delivery_count == 0 or found[1].visible_at <= now:
            return False
        found[0].extend(found[1], after(now, lock_seconds))
        return True

    def is_waiting(self, ref: DeliveryRef) -> bool:
        found = self.held(ref)
        return found is not None and (found[1].visible_at <= self.clock.now() or found[1].delivery_count == 0)

    def dead_letters(self, limit: int, topics: Sequence[str]) -> list[DeadLetter]:
        found = [
            DeadLetter(
                ref=DeliveryRef(queue.subscription.topic, queue.subscription.name, message_id),
                properties=buried.held.properties,
                delivery_count=buried.held.delivery_count,
                reason=buried.reason,
                dead_at=buried.dead_at,
                body=buried.held.body,
            )
            for queue in self._queues.values()
            if not topics or queue.subscription.topic in topics
            for message_id, buried in queue.dead.items()
        ]
        return sorted(found, key=lambda letter: letter.dead_at, reverse=True)[:limit]


def delivery(queue: Queue, held: QueuedMessage, body: bytes) -> Delivery:
    subscription = queue.subscription
    return Delivery(
        ref=DeliveryRef(subscription.topic, subscription.name, held.message_id),
        body=body,
        properties=held.properties,
        delivery_count=held.delivery_count,
        locked_until=held.visible_at,
    )
