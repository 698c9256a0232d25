"""The bus in memory: the same guarantees as any other, but for surviving the process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from lucius.domain.time import Instant, after
from lucius.ports.bus import DeadLetter, Delivery, DeliveryRef, Depth, Message, Refused, Subscription
from lucius.ports.clock import Clock

DUPLICATE_WINDOW_SECONDS = 600.0
WAIT_SLICE_SECONDS = 0.05
"""How often a receiver looks for locks and delays that have run out."""


class _Held:
    """A message in a subscription."""

    __slots__ = ("dead_at", "delivery_count", "enqueued_at", "expires_at", "message", "reason", "visible_at")

    def __init__(self, message: Message, now: Instant, expires_at: Instant) -> None:
        self.message = message
        self.enqueued_at = now
        self.visible_at = message.deliver_at or now
        self.expires_at = expires_at
        self.delivery_count = 0
        self.dead_at: Instant | None = None
        self.reason = ""


class _Queue:
    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.held: OrderedDict[str, _Held] = OrderedDict()
        self.dead: OrderedDict[str, _Held] = OrderedDict()

    def bury(self, message_id: str, now: Instant, reason: str) -> None:
        held = self.held.pop(message_id)
        held.dead_at, held.reason = now, reason
        self.dead[message_id] = held


class MemoryBus:
    def __init__(self, clock: Clock, message_bytes_max: int = 262_144) -> None:
        self.message_bytes_max = message_bytes_max
        self._clock = clock
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._seen: dict[tuple[str, str], Instant] = {}
        self._arrived = asyncio.Event()
        self._turn = 0

    async def __aenter__(self) -> MemoryBus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        for subscription in subscriptions:
            queue = self._queues.setdefault((subscription.topic, subscription.name), _Queue(subscription))
            queue.subscription = subscription

    async def publish(self, messages: Sequence[Message]) -> list[Refused | None]:
        return [self._publish_one(message) for message in messages]

    def refusal(self, message: Message) -> Refused | None:
        if len(message.body) > self.message_bytes_max:
            return Refused(f"the message has {len(message.body)} bytes; the bus takes {self.message_bytes_max}")
        if not any(topic == message.topic for topic, _ in self._queues):
            return Refused(f"nobody subscribes to topic {message.topic}")
        return None

    def _publish_one(self, message: Message) -> Refused | None:
        now = self._clock.now()
        refusal = self.refusal(message)
        if refusal is not None:
            return refusal
        queues = [queue for (topic, _), queue in self._queues.items() if topic == message.topic]
        key = (message.topic, message.id)
        if self._seen.get(key, -1) > now:
            return None
        self._seen[key] = after(now, DUPLICATE_WINDOW_SECONDS)
        for queue in queues:
            where = queue.subscription.where
            if all(message.properties.get(name) == value for name, value in where.items()):
                queue.held[message.id] = _Held(message, now, after(now, queue.subscription.ttl_seconds))
        self._arrived.set()
        return None

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            taken = self._take(topics, subscription, limit, lock_seconds)
            left = deadline - loop.time()
            if taken or left <= 0:
                return taken
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), min(left, WAIT_SLICE_SECONDS))
            except TimeoutError:
                continue

    def _take(self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float) -> list[Delivery]:
        now = self._clock.now()
        self._turn += 1
        start = self._turn % len(topics) if topics else 0
        queues = [
            queue
            for topic in (*topics[start:], *topics[:start])
            if (queue := self._queues.get((topic, subscription))) is not None
        ]
        ready = [self._ready(queue, now) for queue in queues]
        taken: list[Delivery] = []
        while len(taken) < limit and any(ready):
            for queue, waiting in zip(queues, ready, strict=True):
                if waiting and len(taken) < limit:
                    taken.append(_lock(queue, waiting.pop(0), after(now, lock_seconds)))
        return taken

    @staticmethod
    def _ready(queue: _Queue, now: Instant) -> list[_Held]:
        """Messages that are due, after those that were delivered too often or expired were set aside."""
        for message_id, held in list(queue.held.items()):
            if held.visible_at > now and held.expires_at > now:
                continue
            if held.expires_at <= now:
                queue.bury(message_id, now, "EXPIRED")
            elif held.delivery_count >= queue.subscription.delivery_max:
                queue.bury(message_id, now, "DELIVERED_TOO_OFTEN")
        return sorted((h for h in queue.held.values() if h.visible_at <= now), key=lambda h: h.visible_at)

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        for ref in refs:
            queue = self._queues.get((ref.topic, ref.subscription))
            if queue is not None:
                queue.held.pop(ref.message_id, None)

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        now = self._clock.now()
        for held in self._held(refs):
            held.visible_at = after(now, delay_seconds) if delay_seconds else held.enqueued_at
        self._arrived.set()

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        now = self._clock.now()
        answers = []
        for ref in refs:
            held = next(iter(self._held([ref])), None)
            holds = held is not None and held.delivery_count > 0 and held.visible_at > now
            if held is not None and holds:
                held.visible_at = after(now, lock_seconds)
            answers.append(holds)
        return answers

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        for ref in refs:
            queue = self._queues.get((ref.topic, ref.subscription))
            if queue is not None and ref.message_id in queue.held:
                queue.bury(ref.message_id, self._clock.now(), reason)

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        now = self._clock.now()
        return {ref for ref in refs for held in self._held([ref]) if held.visible_at <= now or held.delivery_count == 0}

    def _held(self, refs: Sequence[DeliveryRef]) -> list[_Held]:
        queues = ((self._queues.get((ref.topic, ref.subscription)), ref.message_id) for ref in refs)
        return [queue.held[message_id] for queue, message_id in queues if queue and message_id in queue.held]

    async def depths(self) -> list[Depth]:
        now = self._clock.now()
        return [
            Depth(
                topic=topic,
                subscription=name,
                ready=sum(held.visible_at <= now for held in queue.held.values()),
                locked=sum(held.visible_at > now for held in queue.held.values()),
                dead=len(queue.dead),
                oldest_at=min((held.enqueued_at for held in queue.held.values()), default=None),
            )
            for (topic, name), queue in self._queues.items()
        ]

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        found = [
            DeadLetter(
                ref=DeliveryRef(topic, name, message_id),
                properties=held.message.properties,
                delivery_count=held.delivery_count,
                reason=held.reason,
                dead_at=held.dead_at or 0,
            )
            for (topic, name), queue in self._queues.items()
            for message_id, held in queue.dead.items()
        ]
        return sorted(found, key=lambda letter: letter.dead_at, reverse=True)[:limit]

    async def upkeep(self) -> None:
        now = self._clock.now()
        self._seen = {key: until for key, until in self._seen.items() if until > now}
        for queue in self._queues.values():
            self._ready(queue, now)

    async def health(self) -> dict[str, Any]:
        return {"bus": "memory"}


def _lock(queue: _Queue, held: _Held, until: Instant) -> Delivery:
    held.visible_at = until
    held.delivery_count += 1
    subscription = queue.subscription
    return Delivery(
        ref=DeliveryRef(subscription.topic, subscription.name, held.message.id),
        body=held.message.body,
        properties=held.message.properties,
        delivery_count=held.delivery_count,
        locked_until=until,
    )
