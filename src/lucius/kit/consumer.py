"""The loop of both kits: pulls work up to the free capacity, and continues after failures."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
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
    ) -> None:
        """`receive` returns at most that many items and raises `PullFailed`. `work` is the noun for an item in logs."""
        self._name = name
        self._work = work
        self._receive = receive
        self._capacities = capacities
        self._take = take
        self._health = health
        self._log = log
        self._failures = 0
        self._last_logged: tuple[str, float] = ("", 0.0)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            full = [capacity for capacity in self._capacities if capacity.free <= 0]
            if full:
                await unless(stop, full[0].wait())
                continue
            began = time.monotonic()
            try:
                received = await unless(stop, self._receive(min(capacity.free for capacity in self._capacities)))
            except Exception as error:
                await unless(stop, asyncio.sleep(self._failed(error)))
                continue
            if stop.is_set() and received is None:
                return
            self._succeeded()
            for one in received or ():
                self._take(one)
            if not received and time.monotonic() - began < EMPTY_PULL_SECONDS:
                await unless(stop, asyncio.sleep(EMPTY_PULL_SECONDS))

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


async def unless(stop: asyncio.Event, doing: Awaitable[T]) -> T | None:
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
