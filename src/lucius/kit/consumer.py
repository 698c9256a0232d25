"""The loop of both kits: pulls work up to the free capacity, and continues after failures."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from lucius.client.backoff import backoff_seconds
from lucius.kit.health import Health

EMPTY_PULL_SECONDS = 0.1
"""An empty pull that returns sooner than this is followed by a pause: some servers do not hold calls open."""
SAME_FAILURE_SECONDS = 60.0
"""How often an unchanged failure is logged again."""

T = TypeVar("T")
D = TypeVar("D")


class PullFailed(Exception):
    """No work could be pulled; the pull is retried."""

    retry_after_seconds: float | None = None
    is_refused = False
    """An operator has to change something before it can succeed."""
    is_reachable = False
    """The server does respond, so the service stays ready."""
    hint = ""
    """What an operator can do about it, appended to the log line."""


class HasCapacity(Protocol):
    @property
    def free(self) -> int:
        """How many more items may be taken."""
        ...

    async def wait(self) -> None:
        """Wait until something is free."""


class Capacity:
    """Free capacity for attempts; a busy service leaves directives on the bus for others."""

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


class Consumer(Generic[D]):
    def __init__(
        self,
        name: str,
        work: str,
        receive: Callable[[int], Coroutine[Any, Any, Sequence[D]]],
        capacities: Sequence[HasCapacity],
        take: Callable[[D], None],
        health: Health,
        log: logging.Logger,
        pace: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """`receive` returns at most that many items and raises `PullFailed`. `work` is the noun for an item in logs.
        `pace` is awaited before each pull."""
        self._name = name
        self._work = work
        self._receive = receive
        self._capacities = capacities
        self._take = take
        self._health = health
        self._log = log
        self._pace = pace
        self._failures = 0
        self._last_logged: tuple[str, float] = ("", 0.0)

    async def run(self, stop: asyncio.Event) -> None:
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                await self._pull(stopping)
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)

    async def _pull(self, stopping: asyncio.Future[Any]) -> None:
        full = [capacity for capacity in self._capacities if capacity.free <= 0]
        if full:
            await unless(stopping, full[0].wait())
            return
        if self._pace is not None:
            await self._pace()
        began = time.monotonic()
        try:
            received = await unless(stopping, self._receive(min(capacity.free for capacity in self._capacities)))
        except Exception as error:
            await unless(stopping, asyncio.sleep(self._failed(error)))
            return
        if received is None:
            return
        self._succeeded()
        for one in received:
            self._take(one)
        if not received and time.monotonic() - began < EMPTY_PULL_SECONDS:
            await unless(stopping, asyncio.sleep(EMPTY_PULL_SECONDS))

    def _failed(self, error: Exception) -> float:
        """Returns how long to wait before the next pull."""
        failure = error if isinstance(error, PullFailed) else None
        wait = backoff_seconds(self._failures, failure.retry_after_seconds if failure else None)
        self._failures += 1
        if failure is None or not failure.is_reachable:
            self._health.pull_failed(str(error) or type(error).__name__)
        text, at = str(error), time.monotonic()
        if text != self._last_logged[0] or at - self._last_logged[1] >= SAME_FAILURE_SECONDS:
            self._last_logged = (text, at)
            if failure is None:
                self._log.error(
                    "%s: no %s, a bug in their source; trying again", self._name, self._work, exc_info=error
                )
            else:
                level = logging.ERROR if failure.is_refused else logging.WARNING
                self._log.log(
                    level, "%s: no %s, next try in %.1f s: %s%s", self._name, self._work, wait, text, failure.hint
                )
        return wait

    def _succeeded(self) -> None:
        if self._failures:
            self._log.info("%s: %s can be pulled again", self._name, self._work)
        self._failures, self._last_logged = 0, ("", 0.0)
        self._health.pulled()


async def unless(stopping: asyncio.Future[Any], doing: Coroutine[Any, Any, T]) -> T | None:
    """The outcome of `doing`, or `None` as soon as `stopping` is done."""
    task = asyncio.ensure_future(doing)
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return None
