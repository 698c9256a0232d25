"""A few slots, shared fairly between their owners.

An owner holds at most its share. If no slot is free, the caller waits, and owners are served round-robin: an owner with
a thousand requests waits for its own, and another owner waits for at most one of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NoSlot(Exception):
    """Too many are already waiting, or no slot became free in time."""


class FairSlots:
    def __init__(self, slots_max: int, per_owner_max: int, waiting_per_owner_max: int, wait_seconds_max: float) -> None:
        self._free = slots_max
        self._per_owner_max = per_owner_max
        self._waiting_max = waiting_per_owner_max
        self._wait_seconds_max = wait_seconds_max
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """In the order in which owners are served next."""

    @asynccontextmanager
    async def slot(self, owner: str) -> AsyncIterator[None]:
        """Hold a slot; raises `NoSlot`."""
        if not self._take(owner):
            await self._wait(owner)
        try:
            yield
        finally:
            self._give_back(owner)

    def _take(self, owner: str) -> bool:
        if self._free == 0 or self._held[owner] >= self._per_owner_max:
            return False
        self._free -= 1
        self._held[owner] += 1
        return True

    async def _wait(self, owner: str) -> None:
        queue = self._waiting.setdefault(owner, deque())
        if len(queue) >= self._waiting_max:
            raise NoSlot(f"{self._waiting_max} are already waiting")
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._give_back(owner)  # The slot arrived just as the wait ended.
            else:
                self._forget(owner, turn)
            if isinstance(error, TimeoutError):
                raise NoSlot(f"none became free within {self._wait_seconds_max:g} s") from None
            raise

    def _forget(self, owner: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting[owner]
        queue.remove(turn)
        if not queue:
            del self._waiting[owner]

    def _give_back(self, owner: str) -> None:
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        for waiting in list(self._waiting):
            if self._take(waiting):
                queue = self._waiting.pop(waiting)
                queue.popleft().set_result(None)
                if queue:
                    self._waiting[waiting] = queue  # Behind every other owner.
                return
