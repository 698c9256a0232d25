from __future__ import annotations

import asyncio
import threading

import pytest

from lucius.runbooks.sources import deadline
from lucius.runbooks.sources.deadline import ABANDONED_MAX, Stop, in_thread
from lucius.runbooks.sources.limits import SourceError


async def test_what_the_work_returns_or_raises_comes_back(source_threads_end: None) -> None:
    assert await in_thread(lambda stop: stop.seconds, 30) == 30

    def failing(stop: Stop) -> None:
        raise ValueError("as it was")

    with pytest.raises(ValueError, match="as it was"):
        await in_thread(failing, 30)


async def test_a_reader_that_is_cancelled_stops_its_work(source_threads_end: None) -> None:
    begun, woken = threading.Event(), threading.Event()

    def work(stop: Stop) -> None:
        stop.wakes(woken.set)
        begun.set()
        woken.wait(60)

    task = asyncio.create_task(in_thread(work, 60))
    assert await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(woken.wait, 30)


async def test_threads_that_hang_are_left_behind_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, source_threads_end: None
) -> None:
    monkeypatch.setattr(deadline, "MARGIN_SECONDS", 0.05)
    released = threading.Event()
    try:
        for _ in range(ABANDONED_MAX):
            with pytest.raises(SourceError, match="its thread was abandoned"):
                await in_thread(lambda stop: released.wait(60), 0.05)
        with pytest.raises(SourceError, match=f"{ABANDONED_MAX} earlier reads hang"):
            await in_thread(lambda stop: None, 0.05)
    finally:
        released.set()
    for thread in list(deadline._abandoned):
        await asyncio.to_thread(thread.join, 30)
    monkeypatch.setattr(deadline, "MARGIN_SECONDS", 30.0)
    assert await in_thread(lambda stop: "again", 0.05) == "again"


async def test_a_driver_that_cannot_be_woken_is_left_behind_as_well(
    monkeypatch: pytest.MonkeyPatch, source_threads_end: None
) -> None:
    monkeypatch.setattr(deadline, "MARGIN_SECONDS", 0.05)
    released = threading.Event()

    def work(stop: Stop) -> None:
        stop.wakes(lambda: 1 / 0)
        released.wait(60)

    with pytest.raises(SourceError, match="was abandoned"):
        await in_thread(work, 0.05)
    released.set()
