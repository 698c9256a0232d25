"""Detects that jobs have ended, at a cost to the server that does not distort the measurement.

A long poll per job is exact, and is used when few are in flight. But the server reads each job twice for it. Looking
for young jobs in the newest pages of `GET /v1/jobs`, all at once and no more often than the answers allow, was cheaper
on both sides: a job took 2.7 ms of CPU instead of 2.8 in the server and 2.6 instead of 3.5 in this program with 50 in
flight, and 1.8 instead of 2.7 and 2.0 instead of 3.0 with 300 (medians of three runs each, on two busy cores; a job
that is not followed took the server about 1.3). Each end is then seen up to one poll later than it happened, and counts
from when it is seen. A job that takes too long for that, or has dropped out of the newest pages, gets a long poll.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lucius.client.call import Call, get
from lucius.client.calls.jobs import job_path
from lucius.client.errors import ClientError
from lucius.client.statuses import JOB_TERMINAL
from lucius.load.account import Account
from lucius.load.connections import Connections

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
    def __init__(self, connections: Connections, account: Account, in_flight: int, tenant_id: str | None) -> None:
        """With a `tenant_id` only that tenant's jobs are listed."""
        self._connections = connections
        self._account = account
        self._is_listed = in_flight >= LISTED_FROM_IN_FLIGHT
        # The server may have accepted this many more than this program knows of, and they come first in the list.
        self._unread_max = in_flight
        self._rows_max = max(PAGE_SIZE_MAX, 2 * in_flight)
        self._filter = {} if tenant_id is None else {"tenant_id": tenant_id}
        self._waiting: dict[str, tuple[int, asyncio.Future[End | None]]] = {}
        self._accepted = 0
        self._wanted = asyncio.Event()

    async def end_of(self, job_id: str) -> End:
        return (await self._listed(job_id) if self._is_listed else None) or await self._polled(job_id)

    async def run(self) -> None:
        """Poll while jobs are waited for, until cancelled."""
        looked_at: float | None = None
        while True:
            if not self._waiting:
                looked_at = None
                self._wanted.clear()
                await self._wanted.wait()
            began = time.monotonic()
            if looked_at is not None:
                self._account.looks.add(began - looked_at)
            looked_at = began
            await self._look()
            # A slow server is busy with the measured load, so it is not polled again at once.
            await asyncio.sleep(max(LOOK_SECONDS, (time.monotonic() - began) / 2))

    async def _listed(self, job_id: str) -> End | None:
        """The end, if it is seen in a list; None once the job needs its own long poll."""
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

    async def _look(self) -> None:
        """Read the newest jobs, back to the oldest that is waited for."""
        left = self._leave_behind()
        cursor = ""
        while left > 0 and self._waiting:
            query = {**self._filter, "limit": str(min(left, PAGE_SIZE_MAX))} | ({"cursor": cursor} if cursor else {})
            page = await self._read(get("/v1/jobs", query))
            if page is None:
                return
            now = time.monotonic()
            for job in page["items"]:
                _, found = self._waiting.get(job["jobId"], (0, None))
                if found is not None and not found.done() and job["status"] in JOB_TERMINAL:
                    found.set_result(End(job["status"], retries_of(job), now))
            left -= len(page["items"])
            cursor = page["next"] or ""
            if not cursor:
                return

    def _leave_behind(self) -> int:
        """Give up on jobs that are too far back; returns how many rows the others need."""
        oldest = self._accepted
        for number, found in self._waiting.values():
            if self._accepted - number >= self._rows_max and not found.done():
                found.set_result(None)
            else:
                oldest = min(oldest, number)
        return self._accepted - oldest + 1 + self._unread_max

    async def _read(self, call: Call) -> dict[str, Any] | None:
        """The response; None if the server could not serve it this time."""
        try:
            return await self._connections.ask(call)
        except ClientError as error:
            await self._connections.pause_or_give_up(error, self._account.retry_call)
            return None

    async def _polled(self, job_id: str) -> End:
        call = get(job_path(job_id), {"wait_seconds": f"{WAIT_SECONDS:g}"}, wait_seconds=WAIT_SECONDS)
        while True:
            asked_at = time.monotonic()
            job = await self._read(call)
            if job is None:
                continue
            now = time.monotonic()
            if job["status"] in JOB_TERMINAL:
                return End(job["status"], retries_of(job), now)
            if now - asked_at < QUICK_SECONDS:
                # A server that responds at once in spite of `wait_seconds` must not be polled in a tight loop.
                await asyncio.sleep(PAUSE_SECONDS)


def retries_of(job: Mapping[str, Any]) -> int:
    """Attempts beyond the first, over all steps."""
    return sum(max(0, int(step.get("attempt_no") or 0) - 1) for step in job.get("steps") or ())
