"""Readiness: checks every dependency concurrently, each within a deadline.

A check that hangs does not delay the report and is not started a second time: while it runs, its dependency counts as
not ready. So each dependency is checked by one task at a time, however often readiness is requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from lucius.domain.errors import LuciusError
from lucius.ports.readiness import Check

CHECK_SECONDS_MAX = 3.0
DETAIL_CHARS_MAX = 500


class Status(StrEnum):
    OK = "ok"
    DEGRADED = "degraded"
    """Something is wrong, but the process can still serve."""
    UNAVAILABLE = "unavailable"


class Finding(Struct, frozen=True, kw_only=True):
    ok: bool
    vital: bool
    detail: str


class Report(Struct, frozen=True):
    checks: dict[str, Finding]

    @property
    def status(self) -> Status:
        failed = [finding for finding in self.checks.values() if not finding.ok]
        if any(finding.vital for finding in failed):
            return Status.UNAVAILABLE
        return Status.DEGRADED if failed else Status.OK

    @property
    def is_ready(self) -> bool:
        return self.status is not Status.UNAVAILABLE


class Readiness:
    def __init__(self, checks: Iterable[Check], seconds_max: float = CHECK_SECONDS_MAX) -> None:
        self._checks = tuple(checks)
        self._seconds_max = seconds_max
        self._running: dict[str, asyncio.Task[Finding]] = {}

    async def look(self) -> Report:
        tasks = {check.name: self._started(check) for check in self._checks}
        await asyncio.wait(tasks.values(), timeout=self._seconds_max)
        late = f"no answer within {self._seconds_max:g} s"
        return Report(
            {
                check.name: tasks[check.name].result()
                if tasks[check.name].done()
                else Finding(ok=False, vital=check.is_vital, detail=late)
                for check in self._checks
            }
        )

    def close(self) -> None:
        """Cancel the checks that hang."""
        for task in self._running.values():
            task.cancel()

    async def stop(self, seconds_max: float = CHECK_SECONDS_MAX) -> None:
        """The same, and wait until they have let go of what they use."""
        self.close()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=seconds_max)

    def _started(self, check: Check) -> asyncio.Task[Finding]:
        task = self._running.get(check.name)
        if task is None or task.done():
            task = self._running[check.name] = asyncio.create_task(_run(check), name=f"readiness: {check.name}")
        return task


async def _run(check: Check) -> Finding:
    try:
        detail, ok = await check.look(), True
    except Exception as error:
        detail, ok = (error.detail if isinstance(error, LuciusError) else str(error)) or type(error).__name__, False
    return Finding(ok=ok, vital=check.is_vital, detail=detail[:DETAIL_CHARS_MAX])
