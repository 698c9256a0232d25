"""Splits long work in the event loop into slices."""

from __future__ import annotations

import asyncio
import time

SLICE_SECONDS = 0.005


class Pace:
    """Between two pieces of work: `if pace.is_over(): await pace.rest()` lets other tasks run."""

    def __init__(self) -> None:
        self._end = time.monotonic() + SLICE_SECONDS

    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    async def rest(self) -> None:
        await asyncio.sleep(0)
        self._end = time.monotonic() + SLICE_SECONDS
