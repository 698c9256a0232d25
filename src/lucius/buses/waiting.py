"""Receivers that wait for messages: few of them look, however many wait.

A published message wakes one receiver. Messages that become deliverable unannounced (a lock or a delay ends, another
process publishes) are found by one receiver per queue that is woken at an interval. A receiver that finds as many as it
can take wakes two more, so a backlog is taken up quickly, and a crowd with nothing to do stays asleep. One whose time
is over looks a last time only where nobody else waits. A message that is published while a receiver looks may come too
late for that look: the receiver looks once more.

Where every message is announced, a receiver that comes back soon after its queues were emptied need not look: it waits
as if it had never been away.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable
from enum import Enum, auto
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

WOKEN_BY_A_FULL_TAKE = 2


class Reason(Enum):
    """Why a receiver wakes."""

    LOOK = auto()
    """Something was announced, or nobody has looked for a while."""
    MORE = auto()
    """Another one took as many as it could."""
    TIME_OVER = auto()


class Waiting(Generic[K]):
    """The waiting receivers of a bus, each known under the keys of all the queues it receives from."""

    def __init__(
        self,
        look_seconds: float,
        interval: Callable[[float], float] = float,
        are_announced: Callable[[], bool] = lambda: False,
    ) -> None:
        """`interval` says how long to wait until the next look now, given `look_seconds`; `are_announced`, whether
        this process is told of every message that another one publishes now."""
        self._are_announced = are_announced
        self._wakes: Counter[K] = Counter()
        """How often something was announced in each queue."""
        self._emptied: dict[K, tuple[float, int]] = {}
        """When a look left nothing in a queue, and how often something had been announced until then."""
        self._look_seconds = look_seconds
        self._interval = interval
        self._asleep: dict[K, dict[asyncio.Future[Reason], Collection[K]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._unnoticed: Counter[K] = Counter()
        """How often a message of each queue woke nobody: somebody may be looking, and too early to see it."""
        self._woken_all = 0

    def wake(self, key: K, count: int = 1) -> bool:
        """Wake those who have waited longest for this queue; whether somebody was."""
        self._wakes[key] += 1
        for woken in range(count):
            receiver = next(iter(self._asleep.get(key, ())), None)
            if receiver is None:
                self._unnoticed[key] += not woken
                return woken > 0
            self._wake(receiver, self._asleep[key][receiver])
        return True

    def wake_all(self) -> None:
        """Something may have been published anywhere: one receiver of every queue looks."""
        self._woken_all += 1
        self._emptied.clear()
        self._wake_one_each()

    def _wake_one_each(self) -> None:
        seen: set[K] = set()
        for key in list(self._asleep):
            if key not in seen and key in self._asleep:
                receiver, keys = next(iter(self._asleep[key].items()))
                seen.update(keys)
                self._wake(receiver, keys)

    async def receive(
        self,
        keys: Collection[K],
        limit: int,
        seconds: float,
        take: Callable[[], Awaitable[list[T]]],
        take_more: Callable[[], Awaitable[list[T]]] | None = None,
    ) -> list[T]:
        """What `take`, which takes at most `limit`, finds now or within so many seconds. `take_more` is what a receiver
        does instead that was woken only because another one took as many as it could."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        waits_at_once = seconds > 0 and keys and (self._others_wait(keys) or self._are_empty(keys, loop.time()))
        taken = [] if waits_at_once else await self._look(keys, limit, take)
        while not taken and keys and loop.time() < deadline:
            reason = await self._sleep(keys, deadline)
            if reason is Reason.MORE and take_more is not None:
                taken = await self._look(keys, limit, take_more, sees_all=False)
            elif reason is not Reason.TIME_OVER or not self._others_wait(keys):
                taken = await self._look(keys, limit, take)
        if len(taken) >= limit:
            self._wake_more(keys)
        return taken

    def _wake_more(self, keys: Collection[K]) -> None:
        """There may be more in each of these queues. Most receivers wait for several of them, and count for each."""
        woken: Counter[K] = Counter()
        for key in keys:
            self._wakes[key] += 1
            while woken[key] < WOKEN_BY_A_FULL_TAKE and key in self._asleep:
                receiver, its_keys = next(iter(self._asleep[key].items()))
                woken.update(its_keys)
                self._wake(receiver, its_keys, Reason.MORE)
            self._unnoticed[key] += not woken[key]

    async def _look(
        self, keys: Collection[K], limit: int, take: Callable[[], Awaitable[list[T]]], sees_all: bool = True
    ) -> list[T]:
        loop = asyncio.get_running_loop()
        while True:
            before, began_at = self._count_unnoticed(keys), loop.time()
            wakes = {key: self._wakes[key] for key in keys}
            woken_all = self._woken_all
            taken = await take()
            if sees_all and len(taken) < limit and self._woken_all == woken_all:
                self._emptied |= {key: (began_at, count) for key, count in wakes.items()}
            if taken or self._count_unnoticed(keys) == before:
                return taken

    def _are_empty(self, keys: Collection[K], now: float) -> bool:
        """Whether a look would find nothing but what becomes deliverable unannounced: for that, somebody has looked
        within half the interval."""
        if not self._are_announced():
            return False
        since = now - self._interval(self._look_seconds) / 2
        for key in keys:
            emptied_at, wakes = self._emptied.get(key, (-math.inf, 0))
            if emptied_at < since or wakes != self._wakes[key]:
                return False
        return True

    def _count_unnoticed(self, keys: Collection[K]) -> int:
        return self._woken_all + sum(self._unnoticed[key] for key in keys)

    def _others_wait(self, keys: Collection[K]) -> bool:
        """Whether others wait for each of these queues already: the next message is theirs."""
        return all(key in self._asleep for key in keys)

    async def _sleep(self, keys: Collection[K], deadline: float) -> Reason:
        """Why this receiver was woken."""
        loop = asyncio.get_running_loop()
        receiver: asyncio.Future[Reason] = loop.create_future()
        for key in keys:
            self._asleep.setdefault(key, {})[receiver] = keys
        self._look_later(loop)
        timer = loop.call_at(deadline, self._wake, receiver, keys, Reason.TIME_OVER)
        try:
            return await receiver
        finally:
            timer.cancel()
            self._forget(receiver, keys)

    def _wake(self, receiver: asyncio.Future[Reason], keys: Collection[K], reason: Reason = Reason.LOOK) -> None:
        self._forget(receiver, keys)
        if not receiver.done():
            receiver.set_result(reason)

    def _forget(self, receiver: asyncio.Future[Reason], keys: Collection[K]) -> None:
        for key in keys:
            asleep = self._asleep.get(key)
            if asleep is not None:
                asleep.pop(receiver, None)
                if not asleep:
                    del self._asleep[key]

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            self._timer = loop.call_later(self._interval(self._look_seconds), self._look_now, loop)

    def _look_now(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._asleep:
            self._wake_one_each()
            self._look_later(loop)
