"""The bus in a database that several processes share: every lock is a row that was updated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, cast

import msgspec

from lucius.buses.sql import statements
from lucius.buses.sql.store import (
    MessageStore,
    read_subscription,
    settle_script,
    subscription_row,
)
from lucius.buses.sql.taking import Taking
from lucius.buses.sql.upkeep import Upkeep
from lucius.buses.sql.vacuum import Vacuum
from lucius.buses.waiting import Waiting
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
    tenant_of,
)
from lucius.ports.clock import Clock
from lucius.sql.database import Check, Database, Fetch, Row, Run, RunAgain, Script
from lucius.sql.together import together
from lucius.sql.wakeups import wakeups_of

T = TypeVar("T")

LOOK_SECONDS = 0.05
"""How often one of the receivers looks for what another process published, if that process cannot wake it; what is
published here wakes one at once."""
SUBSCRIPTION = "s"
"""The kind of the names by which processes wake each other's receivers: the rest is the id of a subscription."""

_encode = msgspec.json.Encoder().encode


class _Known(msgspec.Struct, frozen=True):
    """A subscription as the database has it."""

    id: int
    subscription: Subscription
    filter: str


class SqlBus:
    takes_turns = True

    def __init__(
        self,
        database: Database,
        clock: Clock,
        message_bytes_max: int = 262_144,
        dead_seconds: float = DEAD_LETTER_SECONDS,
    ) -> None:
        self.database = database
        self._store = MessageStore(database)
        self.message_bytes_max = message_bytes_max
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}
        self._by_topic: dict[str, list[_Known]] = {}
        self._wakeups = wakeups_of(database)
        self._waiting: Waiting[int] = Waiting(
            LOOK_SECONDS, self._wakeups.look_seconds, lambda: self._wakeups.is_working
        )
        self._stop_listening: Callable[[], None] = lambda: None
        self._taking = Taking(self._store, clock)
        self._upkeep = Upkeep(clock, dead_seconds)
        self._vacuum = Vacuum(self._store)
        self._vacuuming: asyncio.Task[None] | None = None

    async def __aenter__(self) -> SqlBus:
        await self._refresh()
        self._vacuuming = asyncio.create_task(self._vacuum.run(), name="vacuum of messages")
        self._stop_listening = self._wakeups.listen(
            SUBSCRIPTION, lambda subscription_id: self._waiting.wake(int(subscription_id)), self._waiting.wake_all
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_listening()
        if self._vacuuming is not None:
            self._vacuuming.cancel()
            await asyncio.gather(self._vacuuming, return_exceptions=True)

    async def declare(self, subscriptions: Sequence[Subscription]) -> None:
        wanted = sorted(subscriptions, key=lambda s: (s.topic, s.name))
        current = {key: known.subscription for key, known in self._known.items()}
        if all(current.get((s.topic, s.name)) == s for s in wanted):
            return

        def script() -> Script[None]:
            yield Run(statements.DECLARE, [subscription_row(one) for one in wanted])

        await self._store.write(script)
        await self._refresh()

    async def _refresh(self) -> None:
        await self._store.read(self._refresh_script)

    def _refresh_script(self) -> Script[None]:
        known: dict[tuple[str, str], _Known] = {}
        by_topic: dict[str, list[_Known]] = {}
        for row in sorted((yield Fetch(statements.SUBSCRIPTIONS)), key=_subscription_id):
            one = _Known(row[0], read_subscription(row), row[3])
            known[row[1], row[2]] = one
            by_topic.setdefault(row[1], []).append(one)
        self._known, self._by_topic = known, by_topic

    # --- Publishing --------------------------------------------------------------------------------------------------

    async def publish(self, messages: Sequence[Message]) -> list[Refused | None]:
        if any(message.topic not in self._by_topic for message in messages):
            await self._refresh()
        answers = [self.refusal(message) for message in messages]
        taken = [message for message, refusal in zip(messages, answers, strict=True) if refusal is None]
        if taken:
            await self._store.write(lambda: self.enlisted(taken, ()))
            self.committed(taken, ())
        return answers

    def refusal(self, message: Message) -> Refused | None:
        if len(message.body) > self.message_bytes_max:
            return Refused(f"the message has {len(message.body)} bytes; the bus takes {self.message_bytes_max}")
        if message.topic not in self._by_topic:
            return Refused(f"nobody subscribes to topic {message.topic}")
        return None

    def enlisted(
        self,
        messages: Sequence[Message],
        settled: Sequence[DeliveryRef],
        are_unique: bool = False,
        at_once: bool = False,
    ) -> Script[None]:
        """Publish and settle as part of somebody's transaction. `are_unique`: nobody publishes these ids again, so they
        need not be remembered to find duplicates. `at_once`: as part of one statement, which nothing can be read
        before, and which checks that the subscriptions are the known ones."""
        yield from self._learn(settled)
        written = self._written(messages, settled, are_unique)
        if at_once:
            yield from written
            yield from self._check({message.topic for message in messages})
        else:
            yield from together([self._with_subscriptions(written, messages)], self.database.is_shared)

    def _written(self, messages: Sequence[Message], settled: Sequence[DeliveryRef], are_unique: bool) -> Script[None]:
        now = self._clock.now()
        if messages or settled:
            self._vacuum.used()
        if are_unique:
            # What is settled in the transaction that publishes it was never there. It could not be settled by a
            # statement that is run together with the one that publishes it.
            gone = {ref.message_id for ref in settled}
            messages = [message for message in messages if message.id not in gone]
        rows = [
            row
            for message in messages
            for row in _rows(message, self._by_topic.get(message.topic, ()), now, are_unique)
        ]
        if rows:
            yield Run(statements.PUBLISH_BY_TENANT, rows, in_one_statement=True)
        yield from settle_script(self._keyed(settled), now)

    def _check(self, topics: Collection[str]) -> Script[None]:
        if topics:
            known = [one for topic in sorted(topics) for one in self._by_topic.get(topic, ())]
            columns = [one.id for one in known], [one.filter for one in known]
            times = [one.subscription.ttl_seconds for one in known]
            yield cast("Fetch", Check(statements.SUBSCRIPTIONS_ARE, (sorted(topics), *columns, times)))

    def _with_subscriptions(self, written: Script[None], messages: Sequence[Message]) -> Script[None]:
        yield from written
        if messages:
            topics = sorted({message.topic for message in messages})
            found = yield Fetch(statements.SUBSCRIPTIONS_OF, [topics])
            if self._note(topics, found):
                raise RunAgain("another process has declared a subscription since this one last looked")

    def _note(self, topics: Sequence[str], rows: Sequence[Row]) -> bool:
        """Remember the subscriptions of these topics; whether others were remembered before."""
        by_topic: dict[str, list[_Known]] = {topic: [] for topic in topics}
        for row in sorted(rows, key=_subscription_id):
            by_topic[row[1]].append(_Known(row[0], read_subscription(row), row[3]))
        if all(self._by_topic.get(topic, []) == known for topic, known in by_topic.items()):
            return False
        self._by_topic |= {topic: known for topic, known in by_topic.items() if known}
        self._known |= {
            (one.subscription.topic, one.subscription.name): one for known in by_topic.values() for one in known
        }
        return True

    def committed(self, messages: Sequence[Message], settled: Sequence[DeliveryRef]) -> None:
        """Wake a receiver for each message."""
        self._wake(
            known.id
            for message in messages
            for known in self._by_topic.get(message.topic, ())
            if _wants(known.subscription, message)
        )

    def _learn(self, refs: Sequence[DeliveryRef]) -> Script[None]:
        """Look again if one of these is in a subscription that another process has declared since."""
        if any((ref.topic, ref.subscription) not in self._known for ref in refs):
            yield from self._refresh_script()

    def _keyed(self, refs: Sequence[DeliveryRef]) -> list[tuple[str, int]]:
        """Message id and subscription of each, in the order in which rows are locked."""
        keys = {
            (ref.message_id, known.id)
            for ref in refs
            if (known := self._known.get((ref.topic, ref.subscription))) is not None
        }
        return sorted(keys)

    # --- Receiving ---------------------------------------------------------------------------------------------------

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        if any((topic, subscription) not in self._known for topic in topics):
            await self._refresh()
        wanted = [known for topic in topics if (known := self._known.get((topic, subscription))) is not None]
        by_id = {known.id: known.subscription for known in wanted}
        taken = await self._waiting.receive(
            by_id.keys(), limit, wait_seconds, lambda: self._taking.take(by_id, limit, lock_seconds)
        )
        if len(taken) >= limit:
            self._tell(by_id)  # There may be more than the receivers of this process can take.
        return taken

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        await self._store.write(lambda: self.enlisted((), refs))

    async def withdraw(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        # A receiver that locks the row first makes this statement wait for it, and then find the message locked.
        return await self._store.write(lambda: self._matching(statements.WITHDRAW, refs))

    async def abandon(self, refs: Sequence[DeliveryRef], delay_seconds: float = 0.0) -> None:
        visible_at = after(self._clock.now(), delay_seconds) if delay_seconds else 0
        keys = self._keyed(refs)
        await self._store.run_each(statements.UNLOCK, [(*key, visible_at) for key in keys])
        self._wake(subscription_id for _, subscription_id in keys)

    def _wake(self, subscription_ids: Iterable[int]) -> None:
        """Wake a receiver of this process for each message; only if none waits here, those of other processes."""
        counts = Counter(subscription_ids)
        woken_here = {id_ for id_, count in counts.items() if self._waiting.wake(id_, count)}
        self._tell(id_ for id_ in counts if id_ not in woken_here)

    def _tell(self, subscription_ids: Iterable[int]) -> None:
        self._wakeups.tell(f"{SUBSCRIPTION}{subscription_id}" for subscription_id in subscription_ids)

    async def renew(self, refs: Sequence[DeliveryRef], lock_seconds: float) -> list[bool]:
        now = self._clock.now()

        def script() -> Script[set[tuple[str, int]]]:
            yield from self._learn(refs)
            held = set()
            for message_id, subscription_id in self._keyed(refs):
                args = (message_id, subscription_id, now, after(now, lock_seconds))
                if (yield Fetch(statements.RENEW, args)):
                    held.add((message_id, subscription_id))
            return held

        held = await self._store.write(script)
        return [any(key in held for key in self._keyed([ref])) for ref in refs]

    async def dead_letter(self, refs: Sequence[DeliveryRef], reason: str) -> None:
        now = self._clock.now()
        keeps = {one.id: int(one.subscription.keeps_dead_bodies) for one in self._known.values()}
        rows = [(*key, now, reason, keeps[key[1]]) for key in self._keyed(refs)]
        await self._store.run_each(statements.BURY, rows)

    async def send_again(self, letters: Mapping[DeliveryRef, bytes | None]) -> set[DeliveryRef]:
        now = self._clock.now()

        def script() -> Script[set[DeliveryRef]]:
            yield from self._learn(list(letters))
            back = set()
            for ref in sorted(letters, key=lambda ref: ref.message_id):
                known = self._known.get((ref.topic, ref.subscription))
                if known is not None:
                    expires_at = after(now, known.subscription.ttl_seconds)
                    args = (ref.message_id, known.id, now, expires_at, letters[ref])
                    if (yield Fetch(statements.SEND_AGAIN, args)):
                        back.add(ref)
            return back

        back = await self._store.write(script)
        self._wake(self._known[ref.topic, ref.subscription].id for ref in back)
        return back

    # --- Looking -----------------------------------------------------------------------------------------------------

    async def still_queued(self, refs: Sequence[DeliveryRef]) -> set[DeliveryRef]:
        return await self._store.read(lambda: self._matching(statements.WAITING, refs))

    def _matching(self, statement: str, refs: Sequence[DeliveryRef]) -> Script[set[DeliveryRef]]:
        """Those of these messages for which a statement about one message at this moment finds a row."""
        yield from self._learn(refs)
        now = self._clock.now()
        by_key = {key: ref for ref in refs for key in self._keyed([ref])}
        found = set()
        for key in sorted(by_key):
            if (yield Fetch(statement, (*key, now))):
                found.add(by_key[key])
        return found

    async def depths(self) -> list[Depth]:
        queued = {row[0]: row for row in await self._store.fetch(statements.DEPTHS, self._clock.now())}
        dead = {row[0]: row[1] for row in await self._store.fetch(statements.DEAD_COUNTS)}
        depths = []
        for (topic, name), known in sorted(self._known.items()):
            _, ready, held, oldest_at, redelivered = queued.get(known.id, (0, 0, 0, None, 0))
            depths.append(
                Depth(
                    topic=topic,
                    subscription=name,
                    ready=int(ready),
                    locked=int(held) - int(ready),
                    dead=dead.get(known.id, 0),
                    oldest_at=oldest_at,
                    redelivered=int(redelivered),
                )
            )
        return depths

    async def dead_letters(self, limit: int, topics: Sequence[str] = ()) -> list[DeadLetter]:
        return await self._store.dead_letters(limit, topics, {known.id: key for key, known in self._known.items()})

    async def health(self) -> str:
        return await self._store.health()

    async def upkeep(self) -> None:
        await self._refresh()
        await self._store.write(self._upkeep.expire_script)


def _subscription_id(row: Row) -> int:
    return int(row[0])


def _wants(subscription: Subscription, message: Message) -> bool:
    return subscription.where.items() <= message.properties.items()


def _rows(message: Message, wanting: Sequence[_Known], now: Instant, is_unique: bool) -> Iterable[tuple[Any, ...]]:
    """A row for each subscription whose filter the message passes."""
    properties: str | None = None
    for known in wanting:
        if not _wants(known.subscription, message):
            continue
        properties = properties or _encode(message.properties).decode()
        visible_at = message.deliver_at or now
        expires_at = after(now, known.subscription.ttl_seconds)
        row = (known.id, message.id, message.body, properties, now, visible_at, expires_at, int(is_unique))
        yield (*row, tenant_of(message.properties))
