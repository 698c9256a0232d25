"""The bus in a database that this process alone owns: queues in memory, every message in the ledger's own database.

Publishing and settling are written, inside the ledger's transaction where there is one, before they take effect here. A
lock is only remembered: after a crash its message is delivered again, as it would be once the lock ran out. So a pull
costs no write and no read; only a message that is delivered a second time has its count written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from lucius.buses.queues import Queue, QueuedMessage, Queues, delivery
from lucius.buses.sql import statements
from lucius.buses.sql.store import (
    MessageStore,
    read_properties,
    read_subscription,
    settle_script,
    subscription_row,
)
from lucius.buses.sql.upkeep import Upkeep
from lucius.domain.time import Instant, after
from lucius.ports.bus import (
    DEAD_LETTER_SECONDS,
    BusUnavailable,
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

WITHDRAWAL_SECONDS_MAX = 60.0
"""How long a message that is being withdrawn is kept back, should nobody see the end of it."""

_encode = msgspec.json.Encoder().encode


class JournaledBus:
    takes_turns = True

    def __init__(
        self,
        database: Database,
        clock: Clock,
        message_bytes_max: int = 262_144,
        dead_seconds: float = DEAD_LETTER_SECONDS,
    ) -> None:
        if database.is_shared:
            raise ValueError("other processes may write to this database: use SqlBus")
        self.database = database
        self._store = MessageStore(database)
        self.message_bytes_max = message_bytes_max
        self._clock = clock
        self._queues = Queues(clock, message_bytes_max)
        self._ids: dict[tuple[str, str], int] = {}
        self._upkeep = Upkeep(clock, dead_seconds)
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
            self._ids[row[1], row[2]] = row[0]
            by_id[row[0]] = self._queues.declare(read_subscription(row))
        now = self._clock.now()
        for row in await self._store.fetch(statements.QUEUED):
            queue = by_id.get(row[0])
            if queue is not None:
                properties = read_properties(row[2], row[1])
                queue.add(QueuedMessage(row[1], None, properties, row[3], row[4], row[6], row[5]), now)

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        wanted = [s for s in subscriptions if (q := self._queues.find(s.topic, s.name)) is None or q.subscription != s]
        if not wanted:
            return

        def script() -> Script[Sequence[Row]]:
            yield Run(statements.DECLARE, [subscription_row(one) for one in wanted])
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

    def enlisted(
        self,
        messages: Sequence[Message],
        settled: Sequence[DeliveryRef],
        are_unique: bool = False,
        at_once: bool = False,
    ) -> Script[None]:
        """Publish and settle as part of somebody's transaction; `committed` makes it take effect. `are_unique`: nobody
        publishes these ids again, so they need not be remembered to find duplicates. `at_once` changes nothing: nothing
        is read here."""
        now = self._clock.now()
        rows = [row for message in messages for row in self._rows(message, now, are_unique)]
        if rows:
            yield Run(statements.PUBLISH, rows)
        yield from settle_script(self._keyed(settled), now)

    def committed(self, messages: Sequence[Message], settled: Sequence[DeliveryRef]) -> None:
        for message in messages:
            if self._bodies_bytes + len(message.body) > BODIES_BYTES_MAX:
                message = msgspec.structs.replace(message, body=b"")
            self._bodies_bytes += len(message.body) * self._queues.add(message)
        for ref in settled:
            queue = self._queues.find(ref.topic, ref.subscription)
            if queue is not None:
                self._bodies_bytes -= queue.remove(ref.message_id)

    def _topic_ids(self, message: Message) -> list[int]:
        return [self._ids[q.subscription.topic, q.subscription.name] for q in self._queues.wanting(message)]

    def _rows(self, message: Message, now: Instant, is_unique: bool) -> Iterable[tuple[Any, ...]]:
        properties = _encode(message.properties).decode()
        for queue in self._queues.wanting(message):
            subscription = queue.subscription
            subscription_id = self._ids[subscription.topic, subscription.name]
            expires_at = after(now, subscription.ttl_seconds)
            visible_at = message.deliver_at or now
            yield (subscription_id, message.id, message.body, properties, now, visible_at, expires_at, int(is_unique))

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

    async def _bodies(self, missing: Sequence[tuple[Queue, QueuedMessage]]) -> dict[tuple[str, int], bytes]:
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
            keeps = int(queue.subscription.keeps_dead_bodies)
            row = (message_id, self._id_of(queue), now, reason, keeps, held.delivery_count)
            await self._store.run_each(statements.BURY_COUNTED, [row])
            self._bodies_bytes -= queue.remove(message_id)  # The table keeps it; memory need not.

    def _id_of(self, queue: Queue) -> int:
        return self._ids[queue.subscription.topic, queue.subscription.name]

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        await self._store.write(lambda: self.enlisted((), refs))
        self.committed((), refs)

    async def withdraw(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        waiting = await self.still_queued(refs)
        # Not deliverable until that is written, so that nobody receives it meanwhile.
        self._queues.release(waiting, after(self._clock.now(), WITHDRAWAL_SECONDS_MAX))
        try:
            await self.settle(list(waiting))
        except BusUnavailable:
            self._queues.release(waiting, self._clock.now())
            raise
        return waiting

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        visible_at = after(self._clock.now(), delay_seconds)
        if delay_seconds:
            await self._store.run_each(statements.UNLOCK, [(*key, visible_at) for key in self._keyed(refs)])
        self._queues.release(refs, visible_at)

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        return [self._queues.renew(ref, lock_seconds) for ref in refs]

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        for ref in refs:
            found = self._queues.held(ref)
            if found is not None:
                await self._bury(found[0], ref.message_id, reason)

    async def send_again(self, letters: Mapping[DeliveryRef, bytes | None]) -> set[DeliveryRef]:
        now = self._clock.now()
        queues = {ref: self._queues.find(ref.topic, ref.subscription) for ref in letters}

        def script() -> Script[list[tuple[DeliveryRef, Queue, QueuedMessage]]]:
            back = []
            for ref, queue in queues.items():
                if queue is None:
                    continue
                expires_at = after(now, queue.subscription.ttl_seconds)
                args = (ref.message_id, self._id_of(queue), now, expires_at, letters[ref])
                for row in (yield Fetch(statements.SEND_AGAIN, args)):
                    properties = read_properties(row[0], ref.message_id)
                    back.append((ref, queue, QueuedMessage(ref.message_id, None, properties, now, now, expires_at)))
            return back

        back = await self._store.write(script)
        for _, queue, held in back:
            queue.add(held, now)
            self._queues.wake(queue)
        return {ref for ref, _, _ in back}

    # --- Looking -----------------------------------------------------------------------------------------------------

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        return {ref for ref in refs if self._queues.is_waiting(ref)}

    async def depths(self) -> list[Depth]:
        now = self._clock.now()
        dead = {row[0]: row[1] for row in await self._store.fetch(statements.DEAD_COUNTS)}
        return [
            msgspec.structs.replace(queue.depth(now), dead=dead.get(self._id_of(queue), 0)) for queue in self._queues
        ]

    async def dead_letters(self, limit: int, topics: Sequence[str] = ()) -> list[DeadLetter]:
        return await self._store.dead_letters(limit, topics, {known: key for key, known in self._ids.items()})

    async def health(self) -> str:
        return await self._store.health()

    async def upkeep(self) -> None:
        for queue in list(self._queues):
            for held, reason in queue.spent(self._clock.now()):
                await self._bury(queue, held.message_id, reason)
        await self._store.write(self._upkeep.forget_script)
