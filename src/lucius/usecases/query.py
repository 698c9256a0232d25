"""Queries for jobs, steps, attempts and events. Reads only the ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from lucius.domain.attempt import Attempt
from lucius.domain.effects import Event
from lucius.domain.errors import CallerError, InfrastructureError
from lucius.domain.job import Job, approximate_bytes
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobFilter, Ledger, LedgerUnavailable, UnreadableJob
from lucius.usecases.shared_reads import Followed, SharedReads

SLICE_JOBS = 25
"""Jobs of a list that are read at once: a few milliseconds of work."""
PAGE_BYTES_MAX = 4_194_304
"""A page ends before its `limit` with the slice that exceeds this size."""

LOOKS_PER_SECOND_MAX = 100
"""How often all followers of jobs together read the ledger."""
LOOK_PLACES, LOOK_PLACE_SECONDS = 100_000, 0.001
"""Moments over which the looks at different jobs are spread."""

UNREADABLE_TEXT = "the ledger's rows of this job cannot be read: the server's log has the reason"

Sees = Callable[[str], bool]
"""Whether the caller may see a tenant's jobs."""


class Queries:
    def __init__(self, ledger: Ledger, engine: Engine) -> None:
        self._ledger = ledger
        self._engine = engine
        self._followers = 0
        self._shared = SharedReads()

    async def job(self, job_id: str, sees: Sees) -> Job:
        """The job, or `JOB_NOT_FOUND`: another tenant's job is not found, not forbidden."""
        return await self._shown(job_id, await self._find(job_id), sees)

    async def _shown(self, job_id: str, job: Job | None, sees: Sees) -> Job:
        if job is None:
            await self._check_readable(job_id, sees)
        if job is None or not sees(job.spec.tenant_id):
            raise CallerError.of("JOB_NOT_FOUND", "there is no such job")
        return job

    async def _check_readable(self, job_id: str, sees: Sees) -> None:
        """Raise INTERNAL for a job that exists but cannot be read, as lists show it."""
        found, _ = await self.jobs(JobFilter(job_id=job_id), 1, None)
        if any(isinstance(job, UnreadableJob) and sees(job.tenant_id) for job in found):
            raise InfrastructureError.of("INTERNAL", UNREADABLE_TEXT)

    async def job_when_ended(
        self, job_id: str, sees: Sees, wait_seconds: float, should_stop_waiting: Callable[[], Awaitable[bool]]
    ) -> Job:
        """The job once it has ended, or after `wait_seconds`, or once `should_stop_waiting` is true."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        with self.following(job_id) as followed:
            while True:
                # The waiter must be registered before the job is read, or its end could be missed.
                left = max(0.0, deadline - loop.time())
                waiter = self._engine.wait_for_change(job_id, min(left, self.look_seconds(job_id)), True)
                since = time.monotonic()
                try:
                    stops = await should_stop_waiting()
                    found = await followed.read("job", job_id, since, lambda: self._find(job_id))
                    job = await self._shown(job_id, found, sees)
                    if job.is_terminal or not left or stops:
                        return job
                    await waiter
                finally:
                    waiter.cancel()

    @contextmanager
    def following(self, job_id: str, caller: str = "") -> Iterator[Followed]:
        """For a follower of a job, while it waits for changes. Followers with the same caller share what they read."""
        self._followers += 1
        try:
            with self._shared.following((caller, job_id)) as followed:
                yield followed
        finally:
            self._followers -= 1

    def look_seconds(self, job_id: str) -> float:
        """How long a follower waits for a notification before it reads the ledger. Changes by this process are notified
        at once; with many followers, each reads less often for changes by other processes. All followers of one job
        look at the same time, so that they can share what they read; those of another job at another time."""
        crowded_seconds = self._followers / LOOKS_PER_SECOND_MAX
        period = self._engine.changes_elsewhere_seconds
        if crowded_seconds <= period:
            return period
        while period < crowded_seconds:
            period *= 2  # Moments of a longer period are also moments of the shorter ones of those who came earlier.
        left = (hash(job_id) % LOOK_PLACES * LOOK_PLACE_SECONDS - time.monotonic()) % period
        return left if left >= period / 2 else left + period

    async def jobs(
        self, filter_: JobFilter, limit: int, before_id: str | None
    ) -> tuple[list[Job | UnreadableJob], str | None]:
        """A page of jobs, newest first, and where the next page begins. Read a slice at a time, so that one list does
        not occupy the ledger's readers or the event loop for long; large jobs make a page shorter."""
        found: list[Job | UnreadableJob] = []
        size, is_last = 0, False
        while not is_last and len(found) <= limit and size < PAGE_BYTES_MAX:
            count = min(SLICE_JOBS, limit + 1 - len(found))
            try:
                some = await self._ledger.jobs(filter_, count, found[-1].job_id if found else before_id)
            except LedgerUnavailable as error:
                raise InfrastructureError.unavailable(str(error)) from error
            found += some
            size += sum(approximate_bytes(job) for job in some if isinstance(job, Job))
            is_last = len(some) < count
        page = found[:limit]
        return page, page[-1].job_id if page and (len(found) > limit or not is_last) else None

    async def attempts(self, job_id: str) -> dict[str, list[Attempt]]:
        try:
            return await self._ledger.attempts(job_id)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error

    async def events(self, job_id: str, after_seq: int, limit: int) -> tuple[list[Event], int | None]:
        try:
            found = await self._ledger.events(job_id, after_seq, limit + 1)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        page = found[:limit]
        return page, page[-1].seq if len(found) > limit else None

    async def _find(self, job_id: str) -> Job | None:
        try:
            return (await self._ledger.load([job_id])).get(job_id)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
