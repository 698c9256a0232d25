"""The Service Bus test server for tests of the bus: in a thread with a loop of its own, once for all tests."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lucius.buses.servicebus import ServiceBus, ServiceBusOptions
from lucius.ports.bus import Depth, Subscription
from lucius.testing.samples import ShiftedClock
from lucius.testing.servicebus.filters import CorrelationFilter, Rule
from lucius.testing.servicebus.https import AdministrationServer
from lucius.testing.servicebus.message import DATA, Message, sections
from lucius.testing.servicebus.refusals import Refusal
from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.settings import QueueSettings, SubscriptionSettings, TopicSettings
from lucius.testing.servicebus.tokens import SharedKey

T = TypeVar("T")

SDK_LEAVES_SOCKETS = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore:Exception ignored in. <function (StreamWriter|_SelectorTransport).__del__"
    ":pytest.PytestUnraisableExceptionWarning",
    "ignore:coroutine 'ManagementLink.(open|close)' was never awaited:RuntimeWarning",
    "ignore:Exception ignored in. <coroutine object ManagementLink.(open|close)"
    ":pytest.PytestUnraisableExceptionWarning",
)
"""For tests that break connections, or give up opening one on a slow machine: Azure's SDK does not close the sockets of
such, nor await the opening and closing of all links. Python notices, which may be in any later test on the same event
loop."""
START_SECONDS = 15.0
AHEAD_SECONDS_MAX = 2_000.0


class ServerThread:
    """`run` does something in the server's own loop: every access to it goes that way."""

    def __init__(self, shared_key: SharedKey | None = None) -> None:
        self.server = ServiceBusServer(shared_key=shared_key)
        self.ahead_seconds = 0.0
        self._administration: AdministrationServer | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="service bus test server", daemon=True)
        self._thread.start()
        self.start()

    @property
    def options(self) -> ServiceBusOptions:
        return ServiceBusOptions(connection=self.server.connection_string)

    def run(self, call: Callable[[], T]) -> T:
        async def inside() -> T:
            return call()

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(START_SECONDS)

    def start(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(START_SECONDS)

    def stop(self) -> None:
        """As a broker that is killed; messages are there again after `start`."""
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(START_SECONDS)

    def administration(self, folder: Path) -> ServiceBusOptions:
        """Serves the administration API too; returns options that reach it."""
        if self._administration is None:
            self._administration = AdministrationServer(self.server, folder)
            asyncio.run_coroutine_threadsafe(self._administration.__aenter__(), self._loop).result(START_SECONDS)
        served = self._administration
        return ServiceBusOptions(
            connection=self.server.connection_string,
            administration=served.connection_string.replace("UseDevelopmentEmulator=true;", ""),
            administration_ca_file=str(served.ca_file),
        )

    def end(self) -> None:
        if self._administration is not None:
            asyncio.run_coroutine_threadsafe(self._administration.__aexit__(), self._loop).result(START_SECONDS)
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.close()

    def advance(self, seconds: float) -> None:
        self.ahead_seconds += seconds
        self.run(lambda: self.server.advance(seconds))

    def catch_up(self) -> None:
        """A new server if this one is so far ahead that tokens are about to expire there."""
        if self.ahead_seconds > AHEAD_SECONDS_MAX:
            self.stop()
            self.server, self.ahead_seconds = ServiceBusServer(), 0.0
            self.start()

    def clock(self) -> ShiftedClock:
        """One that agrees with the server's."""
        clock = ShiftedClock()
        clock.shift_seconds = self.ahead_seconds
        return clock

    def declare(
        self, subscriptions: Iterable[Subscription], duplicate_seconds: float, lock_seconds: float | None
    ) -> None:
        self.run(lambda: self._declare(list(subscriptions), duplicate_seconds, lock_seconds))

    def _declare(self, wanted: list[Subscription], duplicate_seconds: float, lock_seconds: float | None) -> None:
        namespace = self.server.namespace
        for one in wanted:
            if one.topic.lower() not in namespace.entities:
                namespace.create_topic(one.topic, TopicSettings(duplicate_seconds=duplicate_seconds))
            rules = [Rule("where", CorrelationFilter({}, dict(one.where)))] if one.where else [Rule.default()]
            queue = QueueSettings(
                lock_seconds=one.lock_seconds if lock_seconds is None else lock_seconds,
                max_delivery_count=one.delivery_max,
                ttl_seconds=one.ttl_seconds,
                dead_letters_expired=True,
            )
            topic = namespace.topic(one.topic)
            known = topic.subscriptions.get(one.name.lower()) or topic.subscriptions.get(one.name)
            if known is None:
                namespace.create_subscription(one.topic, one.name, SubscriptionSettings(queue, rules))
            else:
                known.rules.clear()
                known.rules.update({rule.name: rule for rule in rules})
                for name in ("lock_seconds", "max_delivery_count", "ttl_seconds"):
                    setattr(known.queue.settings, name, getattr(queue, name))

    def bodies(self) -> list[bytes]:
        """Of every message that waits, dead letters aside."""

        def read() -> list[bytes]:
            queues = [queue for queue in self.server.namespace.queues() if queue.dead_letters is not None]
            return [body_of(stored.message) for queue in queues for stored in queue]

        return self.run(read)

    def depths(self) -> list[Depth]:
        def read() -> list[Depth]:
            found = []
            for topic in self.server.namespace.entities.values():
                for one in getattr(topic, "subscriptions", {}).values():
                    locked = one.queue.counts()["locked"]
                    dead = len(one.queue.dead_letters or ())
                    ready = len(one.queue) - locked
                    depth = Depth(
                        topic=topic.name, subscription=one.name, ready=ready, locked=locked, dead=dead, oldest_at=None
                    )
                    found.append(depth)
            return found

        return self.run(read)

    def empty(self) -> None:
        """Remove every message, and leave the entities and the links."""

        def clear() -> None:
            for queue in self.server.namespace.queues():
                queue.clear()

        self.run(clear)

    def forget(self) -> None:
        """Delete every entity, and end all faults."""

        def clear() -> None:
            self.server.faults.clear()
            for name in [entity.name for entity in self.server.namespace.entities.values()]:
                self.server.namespace.delete(name)
                self.server.drop_links(name)

        self.run(clear)

    def drop_links(self, entity: str | None = None, refusal: Refusal | None = None) -> int:
        return self.run(lambda: self.server.drop_links(entity, refusal))


class ProvisionedBus(ServiceBus):
    """Creates on the server what it declares, as `lucius bus provision` would have."""

    def __init__(
        self,
        thread: ServerThread,
        clock: Any,
        duplicate_seconds: float = 600.0,
        queue_lock_seconds: float | None = None,
        **given: Any,
    ) -> None:
        given = {"tick_seconds": 0.05, "dead_look_seconds": 0.0, **given}
        super().__init__(given.pop("options", thread.options), clock, **given)
        self.thread = thread
        self._given = (duplicate_seconds, queue_lock_seconds)

    async def declare(self, subscriptions: Any) -> None:
        await asyncio.to_thread(self.thread.declare, subscriptions, *self._given)
        await super().declare(subscriptions)

    async def __aexit__(self, *error: Any) -> None:
        await super().__aexit__(*error)
        await close_broken_sockets(self.thread.server.port)

    def forget_messages(self) -> None:
        """After the server has lost them all."""
        for ref, one in list(self._held._held.items()):
            self._held._forget(ref, one)
        self._held._noted.clear()
        self._held._over.clear()
        self._proof._read.clear()
        for lane in self._receiving.lanes.values():
            lane.buffer.clear()


def body_of(message: Message) -> bytes:
    return b"".join(value for code, value, _ in sections(message.body) if code == DATA)


async def close_broken_sockets(port: int) -> None:
    """The SDK never closes the sockets of connections that broke."""
    for one in gc.get_objects():
        if isinstance(one, asyncio.StreamWriter):
            with suppress(Exception):
                if (one.get_extra_info("peername") or (0, 0))[1] == port:
                    one.close()
    await asyncio.sleep(0)
    gc.collect()
