"""The consumer: takes directives from their source, no more than there is room for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from lucius.platform.health import Health
from lucius.platform.orchestrator import TRY_AGAIN, PullFailed, backoff_seconds
from lucius.platform.sources import Delivery, Source

REFUSED_PULL_SECONDS = 10.0
HINTS = {
    "UNREACHABLE": "; is the server up, and is LUCIUS_ORCHESTRATOR_URL its address?",
    "UNAUTHENTICATED": "; set LUCIUS_API_KEY, or start the service in the folder that `lucius up` was started in",
}
"""What a person can do about a refusal, as the end of the line that tells it."""

log = logging.getLogger("lucius.platform")

T = TypeVar("T")


class Room:
    """How many attempts may still be taken up; a busy service leaves directives on the bus for others."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self.taken = 0
        self._changed = asyncio.Event()

    @property
    def free(self) -> int:
        return self._count_max - self.taken

    def take(self) -> None:
        self.taken += 1

    def give_back(self) -> None:
        self.taken -= 1
        self._changed.set()

    async def wait(self) -> None:
        while self.free <= 0:
            self._changed.clear()
            await self._changed.wait()


class Consumer:
    def __init__(
        self, service: str, source: Source, rooms: tuple[Room, ...], take: Callable[[Delivery], None], health: Health
    ) -> None:
        self._service = service
        self._source = source
        self._rooms = rooms
        self._take = take
        self._health = health

    async def run(self, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            full = [room for room in self._rooms if room.free <= 0]
            if full:
                await unless(stop, full[0].wait())
                continue
            count_max = min(room.free for room in self._rooms)
            try:
                deliveries = await unless(stop, self._source.receive(count_max))
            except PullFailed as error:
                # A wrong key or a missing right is for a person to mend: keep asking, but seldom.
                wait = REFUSED_PULL_SECONDS
                if error.answer.code in TRY_AGAIN:
                    wait = backoff_seconds(failures, error.answer.retry_after_seconds)
                failures += 1
                self._health.pull_failed(str(error))
                hint = HINTS.get(error.answer.code, "")
                log.warning("%s: no directives, next try in %.1f s: %s%s", self._service, wait, error, hint)
                await unless(stop, asyncio.sleep(wait))
                continue
            failures = 0
            self._health.pulled()
            for delivery in deliveries or ():
                self._take(delivery)


async def unless(stop: asyncio.Event, doing: Coroutine[Any, Any, T]) -> T | None:
    """The outcome of `doing`, or `None` as soon as `stop` is set."""
    task = asyncio.ensure_future(doing)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, stopping):
            one.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)
