"""Batches results and callbacks for sending.

Items that arrive during a call are sent together in the next; a single item is sent at once. So latency is low when
idle, overhead is low under load, and there is no timer to tune.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

T = TypeVar("T")

PACE_SECONDS_MAX = 0.02


class Spool(Generic[T]):
    """Items are sent while `running` is entered."""

    def __init__(self, send: Callable[[list[T]], Awaitable[float]], batch_max: int, calls_max: int) -> None:
        """`send` handles every item of a batch, adds those again that must be resent, and returns the seconds to wait
        before the next batch. At most `calls_max` batches are sent concurrently."""
        self._send = send
        self._calls_max = calls_max
        self._waiting: deque[T] = deque()
        self._under_way = 0
        self._something_waits = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self.batch_max = batch_max

    def __len__(self) -> int:
        return len(self._waiting) + self._under_way

    def add(self, item: T) -> None:
        self._waiting.append(item)
        self._something_waits.set()
        self._is_empty.clear()

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
            await self._something_waits.wait()
            batch = self._take()
            if not batch:
                continue
            try:
                pause_seconds = await self._send(batch)
            finally:
                self._under_way -= len(batch)
                if not len(self):
                    self._is_empty.set()
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
        batch = [self._waiting.popleft() for _ in range(min(self.batch_max, len(self._waiting)))]
        self._under_way += len(batch)
        if not self._waiting:
            self._something_waits.clear()
        return batch
