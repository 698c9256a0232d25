"""Looking into subscriptions and their dead letters without taking anything out: peeking.

A browser is a connection of its own, so few are kept open: the ones that were used last.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import suppress

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from lucius.buses.servicebus.faults import CALL_ERRORS, Problems, sdk_call

PAGE = 250
CALL_SECONDS = 10.0
HARD_SECONDS = 20.0
CLOSE_SECONDS = 5.0
OPEN_MAX = 256

Place = tuple[str, str, bool]
"""Topic, subscription, and whether its dead letters are meant."""


class _Browser:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.receiver: ServiceBusReceiver | None = None


class Browsing:
    def __init__(self, client: ServiceBusClient, problems: Problems) -> None:
        self._client = client
        self._problems = problems
        self._browsers: OrderedDict[Place, _Browser] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def page(self, place: Place, from_number: int = 1, count: int = PAGE) -> list[ServiceBusReceivedMessage]:
        """The messages from a sequence number on; fewer than `count` does not mean that there are no more. Raises
        `BusUnavailable`."""
        browser = self._browsers.setdefault(place, _Browser())
        self._browsers.move_to_end(place)
        self._close_oldest()
        async with browser.lock:
            try:
                async with sdk_call(HARD_SECONDS):
                    if browser.receiver is None:
                        browser.receiver = self.receiver(place)
                    # 0 would continue where the receiver was last.
                    found = await browser.receiver.peek_messages(
                        count, sequence_number=max(from_number, 1), timeout=CALL_SECONDS
                    )
            except CALL_ERRORS as error:
                self._drop(browser)
                raise self._problems.met(entity_of(place), error) from error
        self._problems.gone(entity_of(place))
        return list(found)

    async def all(self, place: Place, from_number: int, limit: int) -> AsyncIterator[ServiceBusReceivedMessage]:
        """At most `limit` messages, in order."""
        while limit > 0:
            page = await self.page(place, from_number, min(PAGE, limit))
            for message in page:
                yield message
            if not page:
                return
            limit -= len(page)
            from_number = (page[-1].sequence_number or 0) + 1

    def receiver(self, place: Place) -> ServiceBusReceiver:
        topic, name, is_dead = place
        sub_queue = ServiceBusSubQueue.DEAD_LETTER if is_dead else None
        return self._client.get_subscription_receiver(topic, name, sub_queue=sub_queue)

    async def close(self) -> None:
        for browser in self._browsers.values():
            self._drop(browser)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _close_oldest(self) -> None:
        for place in list(self._browsers)[: max(0, len(self._browsers) - OPEN_MAX)]:
            if not self._browsers[place].lock.locked():
                self._drop(self._browsers.pop(place))

    def _drop(self, browser: _Browser) -> None:
        receiver, browser.receiver = browser.receiver, None
        if receiver is not None:
            task = asyncio.create_task(close_quietly(receiver))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def entity_of(place: Place) -> str:
    return f"subscription {place[0]}/{place[1]}"


async def close_quietly(receiver: ServiceBusReceiver) -> None:
    with suppress(*CALL_ERRORS):
        async with sdk_call(CLOSE_SECONDS):
            await receiver.close()
