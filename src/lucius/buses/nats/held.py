"""What a process may do with a message that somebody has received or that still waits, whoever that was."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct

from lucius.buses.nats.jetstream import JetStream, Stored, all_of
from lucius.buses.nats.locks import Held, LockEntry, Locks
from lucius.buses.nats.names import Names
from lucius.buses.nats.receiving import Taken, hold_for
from lucius.domain.time import after
from lucius.ports.bus import DeliveryRef
from lucius.ports.clock import Clock

RECEIPTS_MAX = 100_000


class Place(Struct, frozen=True):
    """A message in its stream, and the last entry of its lock."""

    stored: Stored
    held: Held | None
    is_undelivered: bool
    """Whether its consumer has certainly not delivered it yet."""


class Receipts:
    """The locks that this process has taken: what it would otherwise have to read again. The oldest are forgotten."""

    def __init__(self) -> None:
        self._held: OrderedDict[DeliveryRef, Held] = OrderedDict()

    def add(self, ref: DeliveryRef, held: Held) -> None:
        self._held[ref] = held
        self._held.move_to_end(ref)
        if len(self._held) > RECEIPTS_MAX:
            self._held.popitem(last=False)

    def get(self, ref: DeliveryRef) -> Held | None:
        return self._held.get(ref)

    def remove(self, ref: DeliveryRef) -> Held | None:
        return self._held.pop(ref, None)


class HeldMessages:
    def __init__(self, jetstream: JetStream, names: Names, locks: Locks, clock: Clock) -> None:
        self._jetstream = jetstream
        self._names = names
        self._locks = locks
        self._clock = clock
        self._receipts = Receipts()

    def received(self, taken: Sequence[Taken]) -> None:
        for one in taken:
            self._receipts.add(one.delivery.ref, one.held)

    def receipt(self, ref: DeliveryRef) -> Held | None:
        return self._receipts.get(ref)

    def forget(self, ref: DeliveryRef) -> None:
        self._receipts.remove(ref)

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        """Delete messages wherever they are in their lives. An acknowledgement would do nothing for a message that has
        not been delivered, or whose delivery the server has forgotten."""
        held = {ref: self._receipts.remove(ref) for ref in refs}
        unknown = [ref for ref, one in held.items() if one is None]
        held |= zip(unknown, await all_of([self._locks.read(ref) for ref in unknown]), strict=True)
        delivered = {ref: one for ref, one in held.items() if one is not None and not one.entry.is_withdrawn}
        messages = [(self._names.topic(ref.topic), one.entry.message_seq) for ref, one in delivered.items()]
        locks = [(self._names.locks, one.seq) for one in delivered.values()]
        were_there = await self._jetstream.delete_all([*messages, *locks])
        gone = {ref for ref, was_there in zip(delivered, were_there, strict=False) if was_there}
        await all_of([self._settle_by_subject(ref) for ref in refs if ref not in gone])

    async def _settle_by_subject(self, ref: DeliveryRef) -> None:
        stored = await self._find(ref)
        if stored is not None:
            await self._jetstream.delete(self._names.topic(ref.topic), stored.seq)

    async def release(self, ref: DeliveryRef, delay_seconds: float) -> bool:
        """Give up a lock; whether there was one."""
        held = self._receipts.get(ref) or await self._locks.read(ref)
        if held is None or held.entry.is_withdrawn:
            return False
        entry = self._until(held, delay_seconds)
        if await self._locks.write(ref, entry, held.seq, delay_seconds) is None:
            return False  # Somebody else has it by now.
        self._receipts.remove(ref)
        await self._jetstream.connection.request(
            entry.ack_subject, hold_for(delay_seconds) if delay_seconds else b"-NAK"
        )
        return True

    async def renew(self, ref: DeliveryRef, lock_seconds: float) -> bool:
        held = self._receipts.get(ref) or await self._locks.read(ref)
        if held is None or held.entry.is_withdrawn or held.entry.until <= self._clock.now():
            return False
        stored = await self._find(ref)
        if stored is None or stored.seq != held.entry.message_seq:
            self._receipts.remove(ref)
            return False
        renewed = await self._locks.write(ref, self._until(held, lock_seconds), held.seq, lock_seconds)
        if renewed is None:
            self._receipts.remove(ref)
            return False
        await self._jetstream.connection.request(held.entry.ack_subject, hold_for(lock_seconds))
        self._receipts.add(ref, renewed)
        return True

    def _until(self, held: Held, seconds: float) -> LockEntry:
        entry, until = held.entry, after(self._clock.now(), seconds)
        return LockEntry(entry.message_seq, until, entry.delivery_count, entry.ack_subject)

    # --- Messages that nobody holds -----------------------------------------------------------------------------------

    async def waiting(self, refs: Sequence[DeliveryRef]) -> dict[DeliveryRef, Place | None]:
        """Those of these messages that certainly wait; None for one whose time has not come."""
        undelivered = await self._delivered_until(refs)
        places = await all_of([self._place(ref, undelivered.get((ref.topic, ref.subscription))) for ref in refs])
        now = self._clock.now()
        found: dict[DeliveryRef, Place | None] = {}
        not_queued = []
        for ref, place in zip(refs, places, strict=True):
            if place is None:
                not_queued.append(ref)
            elif is_waiting(place, now):
                found[ref] = place
        later = await all_of([self._later(ref) for ref in not_queued])
        found.update({ref: None for ref, stored in zip(not_queued, later, strict=True) if stored is not None})
        return found

    async def withdraw(self, ref: DeliveryRef, place: Place | None) -> bool:
        """Take back a message that waits, unless a receiver is quicker."""
        stream = self._names.topic(ref.topic)
        if place is None:
            stored = await self._later(ref)
            return stored is not None and await self._jetstream.delete(stream, stored.seq)
        entry = LockEntry(place.stored.seq, is_withdrawn=True)
        # The entry stays: a receiver may have pulled the message already and not tried to lock it yet.
        written = await self._locks.write(ref, entry, 0 if place.held is None else place.held.seq, 0)
        if written is None and place.is_undelivered:
            # An earlier message with the same id may have left its entry.
            left = await self._locks.read(ref)
            if left is not None and left.entry.message_seq != place.stored.seq:
                written = await self._locks.write(ref, entry, left.seq, 0)
        return written is not None and await self._jetstream.delete(stream, place.stored.seq)

    async def _delivered_until(self, refs: Sequence[DeliveryRef]) -> dict[tuple[str, str], int]:
        """For each subscription the last sequence that its consumer has delivered."""
        keys = sorted({(ref.topic, ref.subscription) for ref in refs})
        infos = await all_of(
            [self._jetstream.consumer(self._names.topic(topic), self._names.consumer(name)) for topic, name in keys]
        )
        return {key: int(info["delivered"]["stream_seq"]) for key, info in zip(keys, infos, strict=True)}

    async def _place(self, ref: DeliveryRef, delivered_seq: int | None) -> Place | None:
        stored = await self._find(ref)
        if stored is None or delivered_seq is None:
            return None
        is_undelivered = stored.seq > delivered_seq
        return Place(stored, None if is_undelivered else await self._locks.read(ref), is_undelivered)

    async def _find(self, ref: DeliveryRef) -> Stored | None:
        return await self._jetstream.last(self._names.topic(ref.topic), self._names.queued(ref))

    async def find(self, ref: DeliveryRef) -> tuple[Stored, Held | None] | None:
        """A message that is queued, locked or not, and its lock."""
        stored = await self._find(ref)
        if stored is None:
            return None
        held = self._receipts.get(ref) or await self._locks.read(ref)
        is_current = held is not None and held.entry.message_seq == stored.seq
        return stored, held if is_current else None

    async def _later(self, ref: DeliveryRef) -> Stored | None:
        return await self._jetstream.last(self._names.topic(ref.topic), self._names.later(ref))


def is_waiting(place: Place, now: int) -> bool:
    """Whether a message certainly waits for delivery, unlocked."""
    held = place.held
    if held is None or held.entry.message_seq != place.stored.seq:
        return place.is_undelivered
    return not held.entry.is_withdrawn and held.entry.until <= now
