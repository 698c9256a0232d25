"""Dead letters: a stream of their own, with the reason in a header, and the body only where it may be kept."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lucius.buses.nats import messages
from lucius.buses.nats.jetstream import WRONG_LAST_SEQUENCE, ApiError, JetStream, PublishedAs, Stored, all_of
from lucius.buses.nats.messages import Pulled
from lucius.buses.nats.names import Names
from lucius.domain.time import Instant, after
from lucius.ports.bus import DeadLetter, DeliveryRef, Subscription
from lucius.ports.clock import Clock

EXPIRED_MAX = 1_000
"""Expired messages of one subscription that are set aside in one go."""
PAGE = 500
PAGES_MAX = 200
"""Pages read to find the newest dead letters of some topics."""


class DeadLetters:
    def __init__(self, jetstream: JetStream, names: Names, clock: Clock) -> None:
        self._jetstream = jetstream
        self._names = names
        self._clock = clock
        self._no_expiry_before: dict[tuple[str, str], Instant] = {}

    async def bury_pulled(self, one: Subscription, ref: DeliveryRef, pulled: Pulled, reason: str) -> None:
        count = pulled.delivery_count - 1  # This delivery reaches nobody.
        stored = Stored(pulled.seq, pulled.message.subject, pulled.headers, pulled.message.data, pulled.stored_at)
        await self.bury(one, ref, stored, count, reason)

    async def bury(
        self,
        one: Subscription,
        ref: DeliveryRef,
        stored: Stored,
        delivery_count: int,
        reason: str,
        ack_subject: str = "",
    ) -> None:
        """Write the dead letter, then delete the message: if this is interrupted, the message is not lost."""
        keeps_body = one.keeps_dead_bodies
        headers = {
            **messages.headers_of(ref.message_id, messages.read_properties(stored.headers)),
            **messages.kept_for_others(stored.headers),
            messages.REASON: json.dumps(reason),
            messages.DELIVERIES: str(delivery_count),
            messages.HAS_BODY: "yes" if keeps_body else "no",
        }
        body = stored.body if keeps_body else b""
        await self._jetstream.publish(self._names.dead_letter(ref), body, headers)
        if ack_subject:
            await self._jetstream.connection.request(ack_subject, b"+ACK")
        await self._jetstream.delete(self._names.topic(ref.topic), stored.seq)

    async def newest(self, limit: int, topics: Sequence[str]) -> list[DeadLetter]:
        """Newest first. A stream is read forwards, so this goes back a page at a time."""
        state = (await self._jetstream.stream(self._names.dead))["state"]
        first, end = int(state["first_seq"]), int(state["last_seq"]) + 1
        found: list[DeadLetter] = []
        size = PAGE if topics else min(PAGE, limit)
        for _ in range(PAGES_MAX):
            start = max(first, end - size)
            if end <= start or len(found) >= limit:
                break
            page = await self._jetstream.page(self._names.dead, self._names.every_dead_letter(), start, end - start)
            letters = [self._letter(stored) for stored in page if start <= stored.seq < end]
            found += [one for one in reversed(letters) if not topics or one.ref.topic in topics]
            end = start
        return found[:limit]

    def _letter(self, stored: Stored) -> DeadLetter:
        headers = stored.headers
        return DeadLetter(
            ref=ref_of(stored.subject),
            properties=messages.read_properties(headers),
            delivery_count=int(headers.get(messages.DELIVERIES, "0")),
            reason=json.loads(headers.get(messages.REASON, '""')),
            dead_at=stored.stored_at,
            body=stored.body if headers.get(messages.HAS_BODY) == "yes" else None,
        )

    async def send_again(self, ref: DeliveryRef, body: bytes | None) -> bool:
        """Queue a dead letter anew; whether this call did it."""
        stored = await self._jetstream.last(self._names.dead, self._names.dead_letter(ref))
        if stored is None:
            return False
        kept = self._letter(stored)
        body = kept.body if body is None else body
        if body is None:
            return False
        # Whoever tries the same at the same time publishes the same id, which is taken once.
        headers = {
            **messages.headers_of(ref.message_id, kept.properties),
            **messages.kept_for_others(stored.headers),
            "Nats-Msg-Id": f"{self._names.dead_letter(ref)} {stored.seq}",
            "Nats-Expected-Last-Subject-Sequence": "0",
        }
        published = await self._queue(self._names.queued(ref), body, headers)
        if published is None:
            return False
        await self._jetstream.delete(self._names.dead, stored.seq)
        return not published.is_duplicate

    async def _queue(self, subject: str, body: bytes, headers: dict[str, str]) -> PublishedAs | None:
        """None if a message with this id is queued already."""
        try:
            return await self._jetstream.publish(subject, body, headers)
        except ApiError as error:
            if error.code == WRONG_LAST_SEQUENCE:
                return None
            raise

    async def expire(self, subscriptions: Sequence[Subscription]) -> None:
        """Make dead letters of messages that have waited for longer than their subscription lets them."""
        now = self._clock.now()
        due = [one for one in subscriptions if self._no_expiry_before.get((one.topic, one.name), 0) <= now]
        await all_of([self._expire(one, now) for one in due])

    async def _expire(self, one: Subscription, now: Instant) -> None:
        stream, subjects = self._names.topic(one.topic), self._names.queue(one.topic, one.name)
        from_seq = 1
        for _ in range(EXPIRED_MAX):
            page = await self._jetstream.page(stream, subjects, from_seq, 1)
            expires_at = after(page[0].stored_at if page else now, one.ttl_seconds)
            if expires_at > now:
                # What is queued later expires later.
                self._no_expiry_before[one.topic, one.name] = expires_at
                return
            stored = page[0]
            ref = DeliveryRef(one.topic, one.name, messages.id_in(stored.subject))
            await self.bury(one, ref, stored, 0, "EXPIRED")
            from_seq = stored.seq + 1

    def declared(self, one: Subscription) -> None:
        """Its time to live may be another now."""
        self._no_expiry_before.pop((one.topic, one.name), None)


def ref_of(subject: str) -> DeliveryRef:
    """From the subject of a dead letter."""
    topic, name, message_id = (messages.id_in(word) for word in subject.split(".")[-3:])
    return DeliveryRef(topic, name, message_id)
