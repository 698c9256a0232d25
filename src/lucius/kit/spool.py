"""Batches results and callbacks for sending.

Items that arrive during a call are sent together in the next; a single item is sent at once. So latency is low when
idle, and overhead is low under load. Another call begins beside one that takes long, or for a whole batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

T = TypeVar("T")

PACE_SECONDS_MAX = 0.02
ALONE_SECONDS = 0.05
"""How long a call is the only one: what arrives meanwhile is sent together, but must not wait for a call that hangs."""


class Spool(Generic[T]):
    """Items are sent while `running` is entered."""

    def __init__(self, send: Callable[[list[T]], Awaitable[float]], batch_max: int, calls_max: int) -> None:
        """`send` handles every item of a batch, adds those again that must be resent, and returns the seconds to wait
        before the next batch. At most `calls_max` batches are sent concurrently."""
        self._send = send
        self._calls_max = calls_max
        self._waiting: deque[T] = deque()
        self._under_way = 0
        self._calls = 0
        self._is_due = asyncio.Event()
        self._overdue: asyncio.TimerHandle | None = None
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self.batch_max = batch_max

    def __len__(self) -> int:
        return len(self._waiting) + self._under_way

    def add(self, item: T) -> None:
        self._waiting.append(item)
        self._is_empty.clear()
        self._plan()

    async def emptied(self) -> None:
        await self._is_empty.wait()

    async def pace(self) -> None:
        """Whoever pulls work waits for what is being sent, but not long: so that under load, what arrives meanwhile is
        pulled together, and its answers are sent together."""
        if len(self):
            with suppress(TimeoutError):
                async with asyncio.timeout(PACE_SECONDS_MAX):
                    await self._is_empty.wait()

    async def send_forever(self) -> None:
        """One sender; ends only by cancellation, or by a bug in `send`."""
        while True:
            await self._is_due.wait()
            batch = self._take()
            if not batch:
                continue
            try:
                pause_seconds = await self._send(batch)
            finally:
                self._calls -= 1
                self._under_way -= len(batch)
                if not len(self):
                    self._is_empty.set()
                self._plan()
            if pause_seconds > 0:
                await asyncio.sleep(pause_seconds)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[list[asyncio.Task[None]]]:
        """Yields the senders' tasks."""
        callers = [asyncio.create_task(self.send_forever()) for _ in range(self._calls_max)]
        try:
            yield callers
        finally:
            for caller in callers:
                caller.cancel()
            await asyncio.gather(*callers, return_exceptions=True)

    def _take(self) -> list[T]:
        self._is_due.clear()
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        batch = [self._waiting.popleft() for _ in range(min(self.batch_max, len(self._waiting)))]
        if batch:
            self._calls += 1
            self._under_way += len(batch)
        self._plan()
        return batch

    def _plan(self) -> None:
        """Whether the next batch is sent now, and if not, when at the latest."""
        if self._waiting and (not self._calls or len(self._waiting) >= self.batch_max):
            self._is_due.set()
        elif self._waiting and self._overdue is None:
            self._overdue = asyncio.get_running_loop().call_later(ALONE_SECONDS, self._is_due.set)
