"""Who holds a message: one entry for each delivered message, in a stream that the servers keep in memory.

JetStream itself tells nobody which messages are locked. A receiver therefore writes an entry before it hands out a
message, and whoever withdraws a message writes one too; each is written only if the previous entry is still the last
(compare and set), so exactly one of them wins. The entry has the subject that JetStream expects acknowledgements on,
so any process can renew or release the lock. If the servers lose their memory, nothing is known of the messages that
had been delivered before: nobody can prove that they wait, and they come back when their lock has run out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from lucius.buses.nats.connection import NoResponders, Request
from lucius.buses.nats.jetstream import WRONG_LAST_SEQUENCE, ApiError, JetStream, PublishedAs
from lucius.buses.nats.names import Names
from lucius.domain.time import Instant
from lucius.ports.bus import DeliveryRef

ENTRY_SECONDS = 86_400
"""Entries go with their messages; one that was left behind goes after this time."""


class LockEntry(Struct, frozen=True, omit_defaults=True):
    message_seq: int
    """Of the message in its topic's stream. An entry for another one is out of date."""
    until: Instant = 0
    delivery_count: int = 0
    ack_subject: str = ""
    is_withdrawn: bool = False


class Held(Struct, frozen=True):
    """A lock entry and its place in the stream of locks."""

    seq: int
    entry: LockEntry


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LockEntry).decode


def _held(published: PublishedAs | ApiError | NoResponders, entry: LockEntry) -> Held | None:
    if isinstance(published, PublishedAs):
        return Held(published.seq, entry)
    if isinstance(published, ApiError) and published.code == WRONG_LAST_SEQUENCE:
        return None
    raise published


class Locks:
    def __init__(self, jetstream: JetStream, names: Names) -> None:
        self._jetstream = jetstream
        self._names = names

    async def read(self, ref: DeliveryRef) -> Held | None:
        stored = await self._jetstream.last(self._names.locks, self._names.lock(ref))
        return None if stored is None else Held(stored.seq, _decode(stored.body))

    async def write(self, ref: DeliveryRef, entry: LockEntry, after_seq: int, lock_seconds: float) -> Held | None:
        """None if another entry has been written after `after_seq` (0: if there is any)."""
        return (await self.write_all({ref: entry}, after_seq, lock_seconds))[0]

    async def write_all(
        self, entries: Mapping[DeliveryRef, LockEntry], after_seq: int, lock_seconds: float
    ) -> list[Held | None]:
        """The same for several messages."""
        headers = {
            "Nats-Expected-Last-Subject-Sequence": str(after_seq),
            "Nats-TTL": f"{round(lock_seconds) + ENTRY_SECONDS}s",
        }
        requests = [Request(self._names.lock(ref), _encode(entry), headers) for ref, entry in entries.items()]
        published = await self._jetstream.publish_all(requests)
        return [_held(one, entry) for one, entry in zip(published, entries.values(), strict=True)]

    async def remove(self, seq: int) -> None:
        await self._jetstream.delete(self._names.locks, seq)
