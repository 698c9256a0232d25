"""The bus in memory: the same guarantees as any other, but for surviving the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

from lucius.buses.queues import Queues, delivery
from lucius.domain.time import Instant, after
from lucius.ports.bus import (
    DEAD_LETTER_SECONDS,
    DeadLetter,
    Delivery,
    DeliveryRef,
    Depth,
    Message,
    Refused,
    Subscription,
)
from lucius.ports.clock import Clock

DUPLICATE_WINDOW_SECONDS = 600.0


class MemoryBus:
    takes_turns = True

    def __init__(
        self, clock: Clock, message_bytes_max: int = 262_144, dead_seconds: float = DEAD_LETTER_SECONDS
    ) -> None:
        self.message_bytes_max = message_bytes_max
        self._clock = clock
        self._dead_seconds = dead_seconds
        self._queues = Queues(clock, message_bytes_max)
        self._seen: dict[tuple[str, str], Instant] = {}

    async def __aenter__(self) -> MemoryBus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        for subscription in subscriptions:
            self._queues.declare(subscription)

    def refusal(self, message: Message) -> Refused | None:
        return self._queues.refusal(message)

    async def publish(self, messages: Sequence[Message]) -> list[Refused | None]:
        return [self._publish_one(message) for message in messages]

    def _publish_one(self, message: Message) -> Refused | None:
        refusal = self._queues.refusal(message)
        if refusal is not None:
            return refusal
        now, key = self._clock.now(), (message.topic, message.id)
        if self._seen.get(key, -1) <= now:
            self._seen[key] = after(now, DUPLICATE_WINDOW_SECONDS)
            self._queues.add(message)
        return None

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        self._set_aside()
        taken = await self._queues.receive(topics, subscription, limit, lock_seconds, wait_seconds)
        return [delivery(queue, held, held.body or b"") for queue, held in taken]

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        for ref in refs:
            queue = self._queues.find(ref.topic, ref.subscription)
            if queue is not None:
                queue.remove(ref.message_id)

    async def withdraw(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        waiting = await self.still_queued(refs)
        await self.settle(list(waiting))
        return waiting

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        self._queues.release(refs, after(self._clock.now(), delay_seconds))

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        return [self._queues.renew(ref, lock_seconds) for ref in refs]

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        for ref in refs:
            queue = self._queues.find(ref.topic, ref.subscription)
            if queue is not None:
                queue.bury(ref.message_id, self._clock.now(), reason)

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        return {ref for ref in refs if self._queues.is_waiting(ref)}

    async def depths(self) -> list[Depth]:
        now = self._clock.now()
        return [queue.depth(now) for queue in self._queues]

    async def dead_letters(self, limit: int, topics: Sequence[str] = ()) -> list[DeadLetter]:
        return self._queues.dead_letters(limit, topics)

    async def send_again(self, letters: Mapping[DeliveryRef, bytes | None]) -> set[DeliveryRef]:
        now = self._clock.now()
        sent = set()
        for ref, body in letters.items():
            queue = self._queues.find(ref.topic, ref.subscription)
            if queue is not None and queue.requeue(ref.message_id, body, now):
                self._queues.wake(queue)
                sent.add(ref)
        return sent

    async def health(self) -> str:
        return "memory"

    async def upkeep(self) -> None:
        now = self._clock.now()
        self._seen = {key: until for key, until in self._seen.items() if until > now}
        self._set_aside()
        for queue in self._queues:
            queue.forget_dead(after(now, -self._dead_seconds))

    def _set_aside(self) -> None:
        now = self._clock.now()
        for queue in self._queues:
            for held, reason in queue.spent(now):
                queue.bury(held.message_id, now, reason)
