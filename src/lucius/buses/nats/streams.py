"""The streams and consumers of the bus: how they are configured, and making those that are missing.

A topic is a stream in which every message waits until it is settled, one copy for each subscription that wants it; a
subscription is a durable pull consumer of its own copies. Beside them are three streams for the whole bus: the
subscriptions, the dead letters and, in the servers' memory, the locks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from lucius.buses.nats.jetstream import CONSUMER_EXISTS, NANOSECONDS, STREAM_EXISTS, ApiError, JetStream, all_of
from lucius.buses.nats.names import Names
from lucius.ports.bus import BusUnavailable, Subscription

log = logging.getLogger("lucius.bus")

ACK_WAIT_SECONDS = 30.0
"""For how long a message is locked whose receiver has not said otherwise yet."""


class Streams:
    def __init__(
        self,
        jetstream: JetStream,
        names: Names,
        replicas: int,
        duplicate_seconds: float,
        dead_seconds: float,
        changes_streams: bool = True,
    ) -> None:
        """`changes_streams`: whether existing streams get this configuration."""
        self._jetstream = jetstream
        self._names = names
        self._replicas = replicas
        self._changes_streams = changes_streams
        self._duplicate_seconds = duplicate_seconds
        self._dead_seconds = dead_seconds

    async def make_shared(self) -> None:
        """The streams that the whole bus has one of."""
        names = self._names
        dead = {
            **self._kept(names.dead, [names.every_dead_letter()]),
            "max_age": round(self._dead_seconds * NANOSECONDS),
        }
        locks = {
            **self._kept(names.locks, [names.every_lock()]),
            "storage": "memory",
            "allow_msg_ttl": True,
        }
        kept = self._kept(names.subscriptions, [names.every_subscription()])
        await all_of([self._make_stream(config) for config in (kept, dead, locks)])

    async def make(self, subscriptions: Iterable[Subscription]) -> None:
        """The streams of these topics and the consumers of these subscriptions."""
        wanted = list(subscriptions)
        await all_of([self._make_stream(self._topic(topic)) for topic in sorted({one.topic for one in wanted})])
        await all_of([self._make_consumer(one) for one in wanted])
        await all_of([self._make_dead_consumer(one) for one in wanted])

    async def missing(self, topics: Iterable[str]) -> list[str]:
        """The streams that should be there and are not."""
        names = self._names
        expected = {names.subscriptions, names.dead, names.locks, *(names.topic(topic) for topic in topics)}
        return sorted(expected - await self._jetstream.stream_names(names.everything()))

    async def repair(self, subscriptions: Iterable[Subscription]) -> bool:
        """Make again what somebody else has deleted; whether there was anything."""
        wanted = list(subscriptions)
        missing = await self.missing({one.topic for one in wanted})
        if not missing:
            return False
        log.error(
            "streams %s are missing on NATS and are made again; the messages that they held are lost",
            ", ".join(missing),
        )
        await self.make_shared()
        await self.make(wanted)
        return True

    async def shorten_ack_wait(self, topic: str, name: str, seconds: float) -> float:
        """Make a consumer's ack wait no longer than this; what it is now."""
        stream, consumer = self._names.topic(topic), self._names.consumer(name)
        config = (await self._jetstream.consumer(stream, consumer))["config"]
        current = config["ack_wait"] / NANOSECONDS
        if current <= seconds:
            return float(current)
        config["ack_wait"] = round(seconds * NANOSECONDS)
        await self._create_consumer(stream, consumer, config, "update")
        return seconds

    def _kept(self, name: str, subjects: list[str]) -> dict[str, Any]:
        """A stream that has one message for each subject: the last."""
        return {
            "name": name,
            "subjects": subjects,
            "retention": "limits",
            "storage": "file",
            "max_msgs_per_subject": 1,
            "discard": "old",
            "allow_direct": True,
            "num_replicas": self._replicas,
        }

    def _topic(self, topic: str) -> dict[str, Any]:
        return {
            "name": self._names.topic(topic),
            "subjects": self._names.topic_subjects(topic),
            "retention": "workqueue",
            "storage": "file",
            "discard": "old",
            "duplicate_window": round(self._duplicate_seconds * NANOSECONDS),
            "allow_direct": True,
            "allow_msg_schedules": True,
            "num_replicas": self._replicas,
        }

    async def _make_stream(self, config: dict[str, Any]) -> None:
        """Create it, or change its configuration to this one."""
        name = config["name"]
        try:
            await self._jetstream.call(f"STREAM.CREATE.{name}", config)
        except ApiError as error:
            if error.code != STREAM_EXISTS:
                raise
            if not self._changes_streams:
                return
            current = (await self._jetstream.stream(name))["config"]
            if any(current.get(key) != value for key, value in config.items()):
                await self._jetstream.call(f"STREAM.UPDATE.{name}", {**current, **config})

    async def _make_consumer(self, subscription: Subscription) -> None:
        stream, name = self._names.topic(subscription.topic), self._names.consumer(subscription.name)
        config = {
            "filter_subject": self._names.queue(subscription.topic, subscription.name),
            "ack_policy": "explicit",
            "ack_wait": round(ACK_WAIT_SECONDS * NANOSECONDS),
            # Which deliveries are too many is checked by receivers, who make dead letters of such messages.
            "max_deliver": -1,
            "max_ack_pending": -1,
        }
        await self._make_missing_consumer(stream, name, config)

    async def _make_dead_consumer(self, subscription: Subscription) -> None:
        """It is never read: JetStream counts what it has to deliver, which are the dead letters of a subscription."""
        config = {
            "filter_subject": self._names.dead_letters(subscription.topic, subscription.name),
            "ack_policy": "none",
        }
        name = self._names.dead_consumer(subscription.topic, subscription.name)
        await self._make_missing_consumer(self._names.dead, name, config)

    async def _make_missing_consumer(self, stream: str, name: str, config: dict[str, Any]) -> None:
        try:
            await self._create_consumer(stream, name, config, "create")
        except ApiError as error:
            if error.code not in CONSUMER_EXISTS:
                raise

    async def _create_consumer(self, stream: str, name: str, config: dict[str, Any], action: str) -> None:
        config = {**config, "name": name, "durable_name": name}
        subject = f"CONSUMER.CREATE.{stream}.{name}.{config['filter_subject']}"
        await self._jetstream.call(subject, {"stream_name": stream, "config": config, "action": action})


def too_old(version: tuple[int, int], needed: tuple[int, int]) -> BusUnavailable:
    have, need = (".".join(map(str, each)) for each in (version, needed))
    return BusUnavailable(f"the NATS server has version {have}; LUCIUS needs {need} or newer")
