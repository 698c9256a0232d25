"""Readiness: all is looked at at once, what hangs holds nobody up, and what is not vital keeps nobody from serving."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from lucius.domain.errors import InfrastructureError
from lucius.ports.readiness import Check, NotReady
from lucius.usecases.readiness import DETAIL_CHARS_MAX, Readiness


def failing(error: Exception) -> Callable[[], Awaitable[str]]:
    async def look() -> str:
        raise error

    return look


async def good() -> str:
    return "fine"


async def test_status_is_that_of_the_worst_vital_dependency() -> None:
    vital, other = Check(name="ledger", look=good), Check(name="bus", look=good, is_vital=False)
    broken = failing(NotReady("gone"))
    for checks, status, is_ready in (
        ([vital, other], "ok", True),
        ([vital, Check(name="bus", look=broken, is_vital=False)], "degraded", True),
        ([Check(name="ledger", look=broken), other], "unavailable", False),
    ):
        report = await Readiness(checks).look()
        assert (report.status, report.is_ready) == (status, is_ready)


async def test_each_is_named_with_what_is_wrong_with_it() -> None:
    checks = [
        Check(name="one", look=failing(InfrastructureError.unavailable("Temporal at x is out of reach"))),
        Check(name="two", look=failing(RuntimeError())),
        Check(name="three", look=failing(NotReady("x" * 10_000))),
        Check(name="four", look=good),
    ]
    found = (await Readiness(checks).look()).checks
    assert [(name, one.ok) for name, one in found.items()] == [
        ("one", False), ("two", False), ("three", False), ("four", True),
    ]  # fmt: skip
    assert found["one"].detail == "Temporal at x is out of reach"
    assert found["two"].detail == "RuntimeError"
    assert len(found["three"].detail) == DETAIL_CHARS_MAX
    assert found["four"].detail == "fine"


async def test_what_hangs_holds_nobody_up_and_is_looked_at_once() -> None:
    looks, released = 0, asyncio.Event()

    async def hangs() -> str:
        nonlocal looks
        looks += 1
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue  # As a driver does that must first hear from its server.
        return "back"

    readiness = Readiness([Check(name="stuck", look=hangs), Check(name="other", look=good)], seconds_max=0.2)
    began = time.monotonic()
    reports = await asyncio.gather(*(readiness.look() for _ in range(50)))
    assert time.monotonic() - began < 10
    reports.append(await readiness.look())
    for report in reports:
        assert report.checks["stuck"].detail == "no answer within 0.2 s"
        assert (report.checks["stuck"].ok, report.checks["other"].ok) == (False, True)
    assert looks == 1
    released.set()
    async with asyncio.timeout(20):
        while not (await readiness.look()).is_ready:
            await asyncio.sleep(0.01)
    readiness.close()
