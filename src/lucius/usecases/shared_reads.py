"""Reads that many followers of the same thing share.

When a job changes, everybody who follows it wants to read it. One reads at a time, and whoever waited meanwhile takes
over what was read, if that read began after it wanted to know: a hundred followers cost two reads, not a hundred.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec import Struct

T = TypeVar("T")


class _Reading(Struct, frozen=True):
    what: Hashable
    began_at: float
    value: Any = None
    error: Exception | None = None


class Followed:
    """One thing that is followed, and the latest that was read of it."""

    def __init__(self) -> None:
        self.followers = 0
        self._latest: dict[str, _Reading] = {}
        self._turn = asyncio.Lock()

    async def read(self, kind: str, what: Hashable, since: float, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` answers, or what it answered to another follower who asked for the same after `since` (a time of
        `time.monotonic`). Failures are shared too: a database that hangs keeps nobody waiting once for each of them. Of
        each kind only the latest is kept."""
        async with self._turn:
            latest = self._latest.get(kind)
            if latest is None or latest.what != what or latest.began_at < since:
                began_at = time.monotonic()
                try:
                    latest = _Reading(what, began_at, await read())
                except Exception as error:
                    latest = _Reading(what, began_at, None, error)
                self._latest[kind] = latest
        if latest.error is not None:
            raise latest.error.with_traceback(None)
        value: T = latest.value
        return value


class SharedReads:
    def __init__(self) -> None:
        self._followed: dict[Hashable, Followed] = {}

    @contextmanager
    def following(self, key: Hashable) -> Iterator[Followed]:
        """Nothing is kept of what nobody follows."""
        followed = self._followed.setdefault(key, Followed())
        followed.followers += 1
        try:
            yield followed
        finally:
            followed.followers -= 1
            if not followed.followers:
                del self._followed[key]
