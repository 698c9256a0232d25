"""The subscriptions that any process has declared, as every process must know them to publish."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec

from lucius.buses.nats.jetstream import JetStream
from lucius.buses.nats.names import Names
from lucius.ports.bus import Message, Subscription

log = logging.getLogger("lucius.bus")

PAGE = 256

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Subscription).decode


class Subscriptions:
    def __init__(self, jetstream: JetStream, names: Names) -> None:
        self._jetstream = jetstream
        self._names = names
        self._known: dict[tuple[str, str], Subscription] = {}
        self._by_topic: dict[str, list[Subscription]] = {}
        self.version = 0
        """The newest entry of the stream that has been read."""

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._known.values()))

    @property
    def topics(self) -> list[str]:
        return sorted(self._by_topic)

    def find(self, topic: str, name: str) -> Subscription | None:
        return self._known.get((topic, name))

    def has_topic(self, topic: str) -> bool:
        return topic in self._by_topic

    def has(self, subscription: Subscription) -> bool:
        return self._known.get((subscription.topic, subscription.name)) == subscription

    def wanting(self, message: Message) -> list[Subscription]:
        """The subscriptions whose filter a message passes."""
        properties = message.properties
        return [
            one
            for one in self._by_topic.get(message.topic, ())
            if all(properties.get(name) == value for name, value in one.where.items())
        ]

    async def save(self, subscription: Subscription) -> None:
        subject = self._names.subscription(subscription.topic, subscription.name)
        await self._jetstream.publish(subject, _encode(subscription), {})

    async def refresh(self) -> None:
        """Read what has been declared since this process last looked."""
        newest = await self._jetstream.last(self._names.subscriptions, self._names.every_subscription())
        if newest is None or newest.seq == self.version:
            return
        if newest.seq < self.version:  # The stream was deleted and made anew.
            self.version = 0
        page = None
        while page is None or len(page) == PAGE:
            page = await self._jetstream.page(
                self._names.subscriptions, self._names.every_subscription(), self.version + 1, PAGE
            )
            for stored in page:
                self.version = stored.seq
                try:
                    one = _decode(stored.body)
                except msgspec.MsgspecError as error:
                    log.error("the subscription %s on NATS cannot be read and is left out: %s", stored.subject, error)
                    continue
                self._known[one.topic, one.name] = one
        self._by_topic = {}
        for one in self._known.values():
            self._by_topic.setdefault(one.topic, []).append(one)
