"""The bus in a database that this process alone owns: queues in memory, every message in the ledger's own database.

Publishing and settling are written, inside the ledger's transaction where there is one, before they take effect here. A
lock is only remembered: after a crash its message is delivered again, as it would be once the lock ran out. So a pull
costs no write and no read; only a message that is delivered a second time has its count written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from lucius.buses.queues import Held, Queue, Queues, delivery
from lucius.buses.sql import statements
from lucius.buses.sql.store import MessageStore
from lucius.buses.sql.upkeep import Upkeep
from lucius.domain.time import Instant, after
from lucius.ports.bus import (
    DeadLetter,
    Delivery,
    DeliveryRef,
    Depth,
    Message,
    Refused,
    Subscription,
)
from lucius.ports.clock import Clock
from lucius.sql.database import Database, Fetch, Row, Run, Script

T = TypeVar("T")

BODIES_BYTES_MAX = 33_554_432
"""Bodies kept in memory; those beyond it are read again when they are delivered."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class JournaledBus:
    def __init__(self, database: Database, clock: Clock, message_bytes_max: int = 262_144) -> None:
        if database.is_shared:
            raise ValueError("other processes may write to this database: use SqlBus")
        self.database = database
        self._store = MessageStore(database)
        self.message_bytes_max = message_bytes_max
        self._clock = clock
        self._queues = Queues(clock, message_bytes_max)
        self._ids: dict[tuple[str, str], int] = {}
        self._upkeep = Upkeep(clock)
        self._bodies_bytes = 0

    async def __aenter__(self) -> JournaledBus:
        await self._load()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def _load(self) -> None:
        """What was queued when the last owner stopped, however it stopped."""
        by_id: dict[int, Queue] = {}
        for row in await self._store.fetch(statements.SUBSCRIPTIONS):
            subscription = Subscription(
                topic=row[1], name=row[2], where=_decode(row[3]), delivery_max=row[4], ttl_seconds=row[5]
            )
            self._ids[row[1], row[2]] = row[0]
            by_id[row[0]] = self._queues.declare(subscription)
        now = self._clock.now()
        for row in await self._store.fetch(statements.QUEUED):
            held = Held(row[1], None, _decode(row[2]), row[3], row[4], row[6], row[5])
            by_id[row[0]].add(held, now)

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        wanted = [s for s in subscriptions if (q := self._queues.find(s.topic, s.name)) is None or q.subscription != s]
        if not wanted:
            return

        def script() -> Script[Sequence[Row]]:
            rows = [(s.topic, s.name, _encode(s.where).decode(), s.delivery_max, s.ttl_seconds) for s in wanted]
            yield Run(statements.DECLARE, rows)
            return (yield Fetch(statements.SUBSCRIPTIONS))

        for row in await self._store.write(script):
            self._ids[row[1], row[2]] = row[0]
        for subscription in wanted:
            self._queues.declare(subscription)

    # --- Publishing and settling -------------------------------------------------------------------------------------

    def refusal(self, message: Message) -> Refused | None:
        return self._queues.refusal(message)

    async def publish(self, messages: Sequence[Message]) -> list[Refused | None]:
        answers = [self._queues.refusal(message) for message in messages]
        taken = [message for message, refusal in zip(messages, answers, strict=True) if refusal is None]

        def script() -> Script[set[str]]:
            seen = yield Fetch(statements.SEEN, [[message.id for message in taken]])
            known = {(row[0], row[1]) for row in seen}
            new = [message for message in taken if not any((message.id, i) in known for i in self._topic_ids(message))]
            unique: dict[tuple[str, str], Message] = {}
            for message in new:
                unique.setdefault((message.topic, message.id), message)
            yield from self.enlisted(list(unique.values()), ())
            return {message.id for message in unique.values()}

        if taken:
            new = await self._store.write(script)
            self.committed([message for message in taken if message.id in new], ())
        return answers

    def enlisted(self, messages: Sequence[Message], settled: Sequence[DeliveryRef]) -> Script[None]:
        """Publish and settle as part of somebody's transaction; `committed` makes it take effect."""
        now = self._clock.now()
        rows = [row for message in messages for row in self._rows(message, now)]
        if rows:
            yield Run(statements.PUBLISH, rows)
        if settled:
            yield Run(statements.SETTLE, [(*key, now) for key in self._keyed(settled)])

    def committed(self, messages: Sequence[Message], settled: Sequence[DeliveryRef]) -> None:
        for message in messages:
            if self._bodies_bytes + len(message.body) > BODIES_BYTES_MAX:
                message = msgspec.structs.replace(message, body=b"")
            self._bodies_bytes += len(message.body) * len(self._queues.wanting(message))
            self._queues.add(message)
        for ref in settled:
            queue = self._queues.find(ref.topic, ref.subscription)
            held = queue.remove(ref.message_id) if queue is not None else None
            if held is not None:
                self._bodies_bytes -= len(held.body or b"")

    def _topic_ids(self, message: Message) -> list[int]:
        return [self._ids[q.subscription.topic, q.subscription.name] for q in self._queues.wanting(message)]

    def _rows(self, message: Message, now: Instant) -> Iterable[tuple[Any, ...]]:
        properties = _encode(message.properties).decode()
        for queue in self._queues.wanting(message):
            subscription = queue.subscription
            subscription_id = self._ids[subscription.topic, subscription.name]
            expires_at = after(now, subscription.ttl_seconds)
            visible_at = message.deliver_at or now
            yield (subscription_id, message.id, message.body, properties, now, visible_at, expires_at)

    def _keyed(self, refs: Sequence[DeliveryRef]) -> list[tuple[str, int]]:
        keys = ((ref.message_id, self._ids.get((ref.topic, ref.subscription))) for ref in refs)
        return [(message_id, known) for message_id, known in keys if known is not None]

    # --- Delivering --------------------------------------------------------------------------------------------------

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        await self._set_aside(topics, subscription)
        taken = await self._queues.receive(topics, subscription, limit, lock_seconds, wait_seconds)
        again = [
            (held.delivery_count, held.message_id, self._id_of(queue))
            for queue, held in taken
            if held.delivery_count > 1
        ]
        if again:
            await self._store.run_each(statements.COUNT_DELIVERY, again)
        bodies = await self._bodies([(queue, held) for queue, held in taken if not held.body])
        # Meanwhile a callback that a service sent before the last crash may have settled one of them.
        return [
            delivery(queue, held, body)
            for queue, held in taken
            if queue.held.get(held.message_id) is held
            and (body := held.body or bodies.get((held.message_id, self._id_of(queue)))) is not None
        ]

    async def _bodies(self, missing: Sequence[tuple[Queue, Held]]) -> dict[tuple[str, int], bytes]:
        if not missing:
            return {}
        found = await self._store.fetch(statements.BODIES, [held.message_id for _, held in missing])
        return {(row[0], row[1]): bytes(row[2]) for row in found}

    async def _set_aside(self, topics: Sequence[str], subscription: str) -> None:
        now = self._clock.now()
        for topic in topics:
            queue = self._queues.find(topic, subscription)
            if queue is None or not queue.held:
                continue
            for held, reason in queue.spent(now):
                await self._bury(queue, held.message_id, reason)

    async def _bury(self, queue: Queue, message_id: str, reason: str) -> None:
        now = self._clock.now()
        held = queue.held.get(message_id)
        if held is not None:
            row = (message_id, self._id_of(queue), now, reason, held.delivery_count)
            await self._store.run_each(statements.BURY_COUNTED, [row])
            queue.bury(message_id, now, reason)
            self._bodies_bytes -= len(held.body or b"")

    def _id_of(self, queue: Queue) -> int:
        return self._ids[queue.subscription.topic, queue.subscription.name]

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        await self._store.write(lambda: self.enlisted((), refs))
        self.committed((), refs)

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        now = self._clock.now()
        visible_at = after(now, delay_seconds)
        found = [one for ref in refs if (one := self._queues.held(ref)) is not None]
        if delay_seconds:
            rows = [(held.message_id, self._id_of(queue), visible_at) for queue, held in found]
            await self._store.run_each(statements.UNLOCK, rows)
        for queue, held in found:
            queue.release(held, now, visible_at)

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        return [self._queues.renew(ref, lock_seconds) for ref in refs]

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        for ref in refs:
            found = self._queues.held(ref)
            if found is not None:
                await self._bury(found[0], ref.message_id, reason)

    # --- Looking -----------------------------------------------------------------------------------------------------

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        return {ref for ref in refs if self._queues.is_waiting(ref)}

    async def depths(self) -> list[Depth]:
        now = self._clock.now()
        dead = {row[0]: row[1] for row in await self._store.fetch(statements.DEAD_COUNTS)}
        return [
            msgspec.structs.replace(queue.depth(now), dead=dead.get(self._id_of(queue), 0)) for queue in self._queues
        ]

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        by_id = {known: key for key, known in self._ids.items()}
        return [
            DeadLetter(
                ref=DeliveryRef(*by_id[row[0]], row[1]),
                properties=_decode(row[2]),
                delivery_count=row[3],
                reason=row[4],
                dead_at=row[5],
            )
            for row in await self._store.fetch(statements.DEAD_LETTERS, limit)
        ]

    async def upkeep(self) -> None:
        for queue in list(self._queues):
            queue.dead.clear()  # They are in the database; memory need not keep them too.
            for held, reason in queue.spent(self._clock.now()):
                await self._bury(queue, held.message_id, reason)
        await self._store.write(self._upkeep.forget_script)
