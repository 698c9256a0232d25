"""A disk on which a sync never ends: 503 in time, `/healthz` answers, and all is well when the disk is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

ANSWER_SECONDS_MAX = 10.0
FROZEN_SECONDS_MAX = 20.0
"""After so long the disk works again, whatever the test found."""


class SyncedFile(apsw.VFSFile):
    def xSync(self, flags: int) -> None:
        SlowDisk.works.wait()
        super().xSync(flags)


class SlowDisk(apsw.VFS):
    """The real file system, whose syncs hang while a test says so."""

    works = threading.Event()

    def __init__(self) -> None:
        super().__init__("lucius-slow-disk", "unix")

    def xOpen(self, name: Any, flags: Any) -> SyncedFile:
        return SyncedFile("unix", name, flags)

    def freeze(self) -> None:
        self.works.clear()
        self._thaw = threading.Timer(FROZEN_SECONDS_MAX, self.thaw)
        self._thaw.start()

    def thaw(self) -> None:
        self._thaw.cancel()
        self.works.set()


DISK = SlowDisk()
"""Stays registered while the process lives: connections must not outlive it."""


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    apsw.set_default_vfs("lucius-slow-disk")
    SlowDisk.works.set()
    yield DISK
    SlowDisk.works.set()
    apsw.set_default_vfs("unix")


async def test_frozen_disk_is_answered_for_in_time(disk: SlowDisk, open_api: Any) -> None:
    api = await open_api()
    job_id = await api.accepted()
    directive = await api.take()
    disk.freeze()
    began = time.monotonic()
    envelope = api.envelope()
    first = asyncio.create_task(api.submit(envelope))
    await asyncio.sleep(0.2)
    calls = [asyncio.create_task(call) for call in (api.ack(directive), api.operate(job_id, "pause"), api.submit())]
    healthy = await asyncio.wait_for(api.look("/healthz"), ANSWER_SECONDS_MAX)
    assert healthy.status_code == 200
    assert time.monotonic() - began < ANSWER_SECONDS_MAX, "the event loop was blocked"
    for answer in await asyncio.gather(first, *calls):
        api.assert_problem(answer, 503, "UNAVAILABLE")
    assert time.monotonic() - began < ANSWER_SECONDS_MAX
    assert (await api.readiness())[0] == 503
    again = time.monotonic()
    api.assert_problem(await api.submit(), 503, "UNAVAILABLE")
    assert time.monotonic() - again < 1.0, "what is known to be frozen is not waited for"
    disk.thaw()
    async with asyncio.timeout(60):
        while (await api.readiness())[0] != 200:
            await asyncio.sleep(0.05)
    assert (await api.submit(envelope)).status_code == 202
    assert (await api.ack(directive)).status_code == 200
    assert (await api.result(directive)).json()["outcome"] == "APPLIED"
    assert (await api.ended(job_id))["status"] == "SUCCEEDED"
    await api.work()
    assert await api.count() == 2
