"""Receiving: pull what is due from the consumers of several topics, fairly, and lock it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from lucius.buses.nats.connection import NoResponders
from lucius.buses.nats.dead_letters import DeadLetters
from lucius.buses.nats.jetstream import MISSING, NANOSECONDS, ApiError, JetStream, all_of
from lucius.buses.nats.locks import Held, LockEntry, Locks
from lucius.buses.nats.messages import Pulled, id_in, is_ours, read_properties, read_pulled
from lucius.buses.nats.names import Names
from lucius.buses.nats.streams import Streams
from lucius.domain.time import Instant, after
from lucius.ports.bus import Delivery, DeliveryRef, Subscription
from lucius.ports.clock import Clock
from lucius.ports.observer import Observer

log = logging.getLogger("lucius.bus")

WITHOUT_HINTS_EVERY = 4
"""Every so many takes, topics of which nobody said that they have something come first as well."""
LOCK_TRIES = 3
NO_ID = "FOREIGN: it has no header Lucius-Message-Id, so LUCIUS did not publish it"


class Taken(Struct, frozen=True):
    delivery: Delivery
    held: Held


class Receiving:
    def __init__(
        self,
        jetstream: JetStream,
        names: Names,
        streams: Streams,
        locks: Locks,
        dead: DeadLetters,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._jetstream = jetstream
        self._names = names
        self._streams = streams
        self._locks = locks
        self._dead = dead
        self._clock = clock
        self._observer = observer
        self._turn = 0
        self._hints: set[tuple[str, str]] = set()
        self._ack_waits: dict[tuple[str, str], float] = {}
        self._missing: set[tuple[str, str]] = set()

    def hint(self, topic: str, name: str) -> None:
        """There is probably something to take in this subscription."""
        self._hints.add((topic, name))

    def forget_ack_waits(self) -> None:
        """Consumers may have been made anew."""
        self._ack_waits.clear()

    async def take(
        self, wanted: Sequence[Subscription], limit: int, lock_seconds: float, only_hinted: bool = False
    ) -> list[Taken]:
        """Take and lock up to `limit` messages: a fair share of every topic first, then whatever is left.
        `only_hinted`: only of topics that probably have something, because each look at one is a request."""
        taken: list[Taken] = []
        order = self._order([one for one in wanted if not only_hinted or (one.topic, one.name) in self._hints])
        while order and len(taken) < limit:
            room = limit - len(taken)
            share = max(1, room // len(order))
            now_asked, later = order[: room // share], order[room // share :]
            still_full = []
            answers = await all_of([self._take_from(one, share, lock_seconds) for one in now_asked])
            for one, (found, is_full) in zip(now_asked, answers, strict=True):
                taken += found
                if is_full:
                    still_full.append(one)
                    self.hint(one.topic, one.name)
                else:
                    self._hints.discard((one.topic, one.name))
            order = [*later, *still_full]
        return taken

    def _order(self, wanted: Sequence[Subscription]) -> list[Subscription]:
        self._turn += 1
        start = self._turn % len(wanted) if wanted else 0
        order = [*wanted[start:], *wanted[:start]]
        if self._hints and self._turn % WITHOUT_HINTS_EVERY:
            order.sort(key=lambda one: (one.topic, one.name) not in self._hints)
        return order

    async def _take_from(self, one: Subscription, limit: int, lock_seconds: float) -> tuple[list[Taken], bool]:
        """What one subscription has, and whether it may have more."""
        stream, consumer = self._names.topic(one.topic), self._names.consumer(one.name)
        try:
            ack_wait = await self._ack_wait(one, lock_seconds)
            now = self._clock.now()
            messages = await self._jetstream.pull(stream, consumer, limit)
        except (NoResponders, ApiError) as error:
            if isinstance(error, ApiError) and error.code not in MISSING:
                raise
            self._say_missing(stream, consumer)
            return [], False
        self._missing.discard((stream, consumer))
        pulled = [read_pulled(message) for message in messages]
        return await self._accept(one, pulled, now, lock_seconds, ack_wait), len(pulled) == limit

    def _say_missing(self, stream: str, consumer: str) -> None:
        if (stream, consumer) not in self._missing:
            log.error("stream %s or its consumer %s is missing on NATS: nothing is received from it", stream, consumer)
            self._missing.add((stream, consumer))

    async def _ack_wait(self, one: Subscription, lock_seconds: float) -> float:
        """How long JetStream locks what this subscription delivers, unless told otherwise: no longer than asked for. A
        message whose delivery was lost on its way comes back after that time."""
        key = (one.topic, one.name)
        known = self._ack_waits.get(key)
        if known is None or known > lock_seconds:
            known = self._ack_waits[key] = await self._streams.shorten_ack_wait(one.topic, one.name, lock_seconds)
        return known

    async def _accept(
        self, one: Subscription, pulled: Sequence[Pulled], now: Instant, lock_seconds: float, ack_wait: float
    ) -> list[Taken]:
        """Lock pulled messages; those that are not to be delivered are left out."""
        refs = [DeliveryRef(one.topic, one.name, id_in(each.message.subject)) for each in pulled]
        reasons = [self._unfit(one, each, now) for each in pulled]
        found = list(zip(refs, pulled, reasons, strict=True))
        await all_of([self._bury(one, ref, each, why) for ref, each, why in found if why is not None])
        until = after(now, lock_seconds)
        fit = {ref: each for ref, each, why in found if why is None}
        entries = {
            ref: LockEntry(each.seq, until, each.delivery_count, each.message.reply) for ref, each in fit.items()
        }
        taken = []
        for (ref, each), held in zip(fit.items(), await self._lock_all(entries, lock_seconds), strict=True):
            if held is None:
                continue
            if lock_seconds != ack_wait:
                await self._jetstream.connection.send(each.message.reply, hold_for(lock_seconds))
            delivery = Delivery(
                ref=ref,
                body=each.message.data,
                properties=read_properties(each.headers),
                delivery_count=each.delivery_count,
                locked_until=until,
            )
            taken.append(Taken(delivery, held))
        return taken

    async def _bury(self, one: Subscription, ref: DeliveryRef, pulled: Pulled, reason: str) -> None:
        await self._dead.bury_pulled(one, ref, pulled, reason)
        if reason == NO_ID:
            log.warning("message %s in %s/%s is a dead letter now: %s", ref.message_id, one.topic, one.name, reason)
            self._observer.message_refused(one.topic, "FOREIGN")

    def _unfit(self, one: Subscription, pulled: Pulled, now: Instant) -> str | None:
        if not is_ours(pulled.headers):
            return NO_ID
        if pulled.delivery_count > one.delivery_max:
            return "DELIVERED_TOO_OFTEN"
        return "EXPIRED" if after(pulled.stored_at, one.ttl_seconds) <= now else None

    async def _lock_all(self, entries: Mapping[DeliveryRef, LockEntry], lock_seconds: float) -> list[Held | None]:
        """A message that is delivered for the first time hardly ever has an entry, so it is written without looking."""
        held: dict[DeliveryRef, Held | None] = dict.fromkeys(entries)
        first = {ref: entry for ref, entry in entries.items() if entry.delivery_count == 1}
        held |= zip(first, await self._locks.write_all(first, 0, lock_seconds), strict=True)
        others = [ref for ref in entries if held[ref] is None]
        held |= zip(others, await all_of([self._lock(ref, entries[ref], lock_seconds) for ref in others]), strict=True)
        return list(held.values())

    async def _lock(self, ref: DeliveryRef, entry: LockEntry, lock_seconds: float) -> Held | None:
        for _ in range(LOCK_TRIES):
            last = await self._locks.read(ref)
            if last is not None and last.entry.is_withdrawn and last.entry.message_seq == entry.message_seq:
                await self._jetstream.delete(self._names.topic(ref.topic), entry.message_seq)
                return None
            held = await self._locks.write(ref, entry, 0 if last is None else last.seq, lock_seconds)
            if held is not None:
                return held
        return None


def hold_for(seconds: float) -> bytes:
    """Tells JetStream to deliver a message again after this time: a negative acknowledgement with a delay."""
    return b"-NAK " + msgspec.json.encode({"delay": round(seconds * NANOSECONDS)})
