"""Learning that jobs have ended, at a price to the server that does not spoil what is measured.

A long poll for each job is exact, and is what happens where few are in flight. But the server reads each job twice for
it. Looking for young jobs in the newest pages of `GET /v1/jobs`, all at once and no more often than the answers allow,
was cheaper on both sides: of CPU, a job took the server 2.7 ms instead of 2.8 and this program 2.6 instead of 3.5 with
50 in flight, and 1.8 instead of 2.7 and 2.0 instead of 3.0 with 300 (medians of three runs each, on two busy cores; a
job that nobody follows took the server about 1.3). Each end is then seen up to a look later than it happened, and
counts as seen. A job that lasts too long for that, or has fallen behind the newest pages, gets a long poll of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from lucius.load.account import Account
from lucius.load.wire import NoAnswer, Wire, Wires

TERMINAL = frozenset({"SUCCEEDED", "FAILED_FINAL", "CANCELLED"})
NO_ANSWER = "NO_ANSWER"
LISTED_FROM_IN_FLIGHT = 10
LISTED_SECONDS_MAX = 5.0
PAGE_SIZE_MAX = 500
LOOK_SECONDS = 0.01
WAIT_SECONDS = 10.0
QUICK_SECONDS = 1.0
PAUSE_SECONDS = 0.25


@dataclass(frozen=True)
class End:
    status: str
    retries: int
    seen_at: float


class Following:
    def __init__(self, wires: Wires, account: Account, in_flight: int, tenant_id: str | None) -> None:
        """With a `tenant_id` only that tenant's jobs are listed."""
        self._wires = wires
        self._account = account
        self._is_listed = in_flight >= LISTED_FROM_IN_FLIGHT
        # As many may have been accepted by the server without this program having read so, and stand first in the list.
        self._unread_max = in_flight
        self._rows_max = max(PAGE_SIZE_MAX, 2 * in_flight)
        self._filter = {} if tenant_id is None else {"tenant_id": tenant_id}
        self._waiting: dict[str, tuple[int, asyncio.Future[End | None]]] = {}
        self._accepted = 0
        self._wanted = asyncio.Event()

    async def end_of(self, job_id: str) -> End:
        return (await self._listed(job_id) if self._is_listed else None) or await self._polled(job_id)

    async def run(self) -> None:
        """Look again and again while somebody waits, until cancelled."""
        looked_at: float | None = None
        async with self._wires.take() as wire:
            while True:
                if not self._waiting:
                    looked_at = None
                    self._wanted.clear()
                    await self._wanted.wait()
                began = time.monotonic()
                if looked_at is not None:
                    self._account.looks.add(began - looked_at)
                looked_at = began
                await self._look(wire)
                # A server that takes its time is busy with what is to be measured, so it is not asked at once again.
                await asyncio.sleep(max(LOOK_SECONDS, (time.monotonic() - began) / 2))

    async def _listed(self, job_id: str) -> End | None:
        """The end, if it is seen in a list; None once the job is better followed alone."""
        self._accepted += 1
        found: asyncio.Future[End | None] = asyncio.get_running_loop().create_future()
        self._waiting[job_id] = (self._accepted, found)
        self._wanted.set()
        try:
            async with asyncio.timeout(LISTED_SECONDS_MAX):
                return await found
        except TimeoutError:
            return None
        finally:
            self._waiting.pop(job_id, None)

    async def _look(self, wire: Wire) -> None:
        """Read as many of the newest jobs as there are since the oldest that is waited for."""
        left = self._leave_behind()
        cursor = ""
        while left > 0 and self._waiting:
            query = {**self._filter, "limit": str(min(left, PAGE_SIZE_MAX))} | ({"cursor": cursor} if cursor else {})
            page = await self._read(wire, f"/v1/jobs?{urlencode(query)}")
            if page is None:
                return
            now = time.monotonic()
            for job in page["items"]:
                _, found = self._waiting.get(job["jobId"], (0, None))
                if found is not None and not found.done() and job["status"] in TERMINAL:
                    found.set_result(End(job["status"], retries_of(job), now))
            left -= len(page["items"])
            cursor = page["next"] or ""
            if not cursor:
                return

    def _leave_behind(self) -> int:
        """Give up on jobs that are too many acceptances ago; how many rows the others need."""
        oldest = self._accepted
        for number, found in self._waiting.values():
            if self._accepted - number >= self._rows_max and not found.done():
                found.set_result(None)
            else:
                oldest = min(oldest, number)
        return self._accepted - oldest + 1 + self._unread_max

    async def _read(self, wire: Wire, path: str) -> dict[str, Any] | None:
        """A page; None if the server could not serve it this time."""
        try:
            answer = await wire.get(path)
        except NoAnswer as error:
            self._account.retry_call(NO_ANSWER)
            await self._wires.reached.pause_or_give_up(error)
            return None
        if answer.is_busy:
            self._account.retry_call(answer.code)
            await asyncio.sleep(answer.retry_seconds)
            return None
        return answer.expect_success()

    async def _polled(self, job_id: str) -> End:
        path = f"/v1/jobs/{quote(job_id, safe='')}?wait_seconds={WAIT_SECONDS:g}"
        async with self._wires.take() as wire:
            while True:
                asked_at = time.monotonic()
                try:
                    answer = await wire.get(path, WAIT_SECONDS)
                except NoAnswer as error:
                    self._account.retry_call(NO_ANSWER)
                    await self._wires.reached.pause_or_give_up(error)
                    continue
                if answer.is_busy:
                    self._account.retry_call(answer.code)
                    await asyncio.sleep(answer.retry_seconds)
                    continue
                job, now = answer.expect_success(), time.monotonic()
                if job["status"] in TERMINAL:
                    return End(job["status"], retries_of(job), now)
                if now - asked_at < QUICK_SECONDS:
                    # A server that answers at once in spite of `wait_seconds` must not be asked in a tight loop.
                    await asyncio.sleep(PAUSE_SECONDS)


def retries_of(job: Mapping[str, Any]) -> int:
    """Attempts beyond the first, over all steps."""
    return sum(max(0, int(step.get("attempt_no") or 0) - 1) for step in job.get("steps") or ())
