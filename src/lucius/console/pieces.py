"""Pieces of pages that are rendered once for everybody who may see the same, until something changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable

from msgspec import Struct

from lucius.usecases.changes import Changes

KEPT_MAX = 512
KEPT_BYTES_MAX = 32_000_000


class _Rendered(Struct):
    number: int
    """Of the newest change when it was begun."""
    begun_at: float
    html: asyncio.Task[str]


class Pieces:
    def __init__(self, changes: Changes, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._changes = changes
        self._monotonic = monotonic
        self._kept: dict[Hashable, _Rendered] = {}
        self.rendered = 0
        """How often something was rendered."""

    async def get(
        self,
        key: Hashable,
        names: tuple[str, ...],
        seconds_max: float,
        render: Callable[[], Awaitable[str]],
        seconds_min: float = 0.0,
    ) -> str:
        """What `render` returns, or what it returned for the same key, if nothing of these names has changed since
        then and that is at most `seconds_max` ago. Those who ask while it is being rendered wait for it. Renderings of
        one key begin at least `seconds_min` apart: those who ask earlier wait for the next. With 0 nobody waits."""
        number, now = self._changes.last(names), self._monotonic()
        kept = self._kept.get(key)
        if kept is not None and kept.begun_at > now:
            if seconds_min:
                kept.number = number  # It begins later, so it will show what has changed until now.
            else:
                kept = None
        if kept is not None and kept.number == number and now - kept.begun_at <= seconds_max:
            return await asyncio.shield(kept.html)
        self._make_room()
        self.rendered += 1
        delay = 0.0 if kept is None else max(0.0, kept.begun_at + seconds_min - now)
        task = asyncio.ensure_future(_after(delay, render))
        self._kept[key] = _Rendered(number, now + delay, task)
        try:
            return await asyncio.shield(task)
        except BaseException:
            if self._kept.get(key) is not None and self._kept[key].html is task:
                del self._kept[key]
            raise

    def _make_room(self) -> None:
        while len(self._kept) >= KEPT_MAX or self._size() > KEPT_BYTES_MAX:
            del self._kept[next(iter(self._kept))]

    def _size(self) -> int:
        return sum(
            len(one.html.result())
            for one in self._kept.values()
            if one.html.done() and not one.html.cancelled() and one.html.exception() is None
        )


async def _after(delay_seconds: float, render: Callable[[], Awaitable[str]]) -> str:
    if delay_seconds:
        await asyncio.sleep(delay_seconds)
    return await render()
