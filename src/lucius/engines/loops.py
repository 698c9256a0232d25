"""Loops of engines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lucius.ports.observer import Observer


def every(seconds: float, name: str, act: Callable[[], Awaitable[object]], observer: Observer) -> asyncio.Task[None]:
    """A task that acts again and again, with a pause after each time; failures are reported and do not end it."""

    async def loop() -> None:
        while True:
            try:
                await act()
            except Exception as error:
                observer.loop_failed(name, error)
            else:
                observer.loop_worked(name)
            await asyncio.sleep(seconds)

    return asyncio.create_task(loop(), name=name)
