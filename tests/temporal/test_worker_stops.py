"""A worker that is stopped while it begins: the SDK's pollers would outlive a `Worker.run` that is cancelled then."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from temporalio.client import Client
from tests.temporal.shapes import quick_settings

from lucius.engines.temporal import worker as worker_module
from lucius.engines.temporal.activities import JobActivities
from lucius.engines.temporal.worker import run_worker


class BeginningWorker:
    """Asks for its namespace first, as the SDK's worker does, and ends when it is told to."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.answered = asyncio.Event()
        self.was_told = asyncio.Event()
        self.has_ended = asyncio.Event()

    async def run(self) -> None:
        self.began.set()
        await self.answered.wait()
        await self.was_told.wait()
        self.has_ended.set()

    async def shutdown(self) -> None:
        self.was_told.set()
        self.answered.set()
        await self.has_ended.wait()


async def test_worker_that_is_stopped_while_it_begins_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = BeginningWorker()
    monkeypatch.setattr(worker_module, "make_worker", lambda *parts: worker)
    unused = cast(Client, None), cast(JobActivities, None), quick_settings("127.0.0.1:1")
    running = asyncio.create_task(run_worker(*unused))
    await worker.began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert worker.has_ended.is_set()
