"""Waiting for a job to change: in this process, or in another one that shares the ledger and can tell.

Jobs are told to other processes by a hash of their id: names stay short, and a watcher that is woken for another job
with the same hash only reads its own once too often.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from zlib import crc32

from lucius.domain.job import Job
from lucius.sql.wakeups import Wakeups

CHANGED, ENDED = "c", "e"
"""The kinds of the names by which processes tell of jobs; the rest is a hash."""
HASHES = 1 << 16
RELEASED_AT_ONCE_MAX = 200
"""If any job may have changed elsewhere, so many watchers look at once; the others look when their time comes."""


class JobWatchers:
    def __init__(self, wakeups: Wakeups | None = None) -> None:
        self._by_job: dict[str, dict[asyncio.Future[bool], bool]] = {}
        """Each watcher, and whether it waits for the job's end only."""
        self._by_hash: dict[str, set[str]] = {}
        """The ids of watched jobs."""
        self._wakeups = wakeups or Wakeups()

    def listen(self) -> None:
        """From now on, what other processes tell counts too."""
        self._wakeups.listen(CHANGED, lambda hashed: self._end_hashed(hashed, has_ended=False), self._release_some)
        self._wakeups.listen(ENDED, lambda hashed: self._end_hashed(hashed, has_ended=True), lambda: None)

    def look_seconds(self, polling_seconds: float) -> float:
        """How often a watcher must look for changes by other processes."""
        return self._wakeups.look_seconds(polling_seconds)

    def wait(self, job_id: str, timeout_seconds: float, until_ended: bool) -> asyncio.Future[bool]:
        """Whether the job changed, or ended, in time. Changes count from this call on, not only once it is awaited."""
        loop = asyncio.get_running_loop()
        watcher: asyncio.Future[bool] = loop.create_future()
        self._by_job.setdefault(job_id, {})[watcher] = until_ended
        hashed = _hash(job_id)
        self._by_hash.setdefault(hashed, set()).add(job_id)
        timer = loop.call_later(timeout_seconds, _end, watcher, False)

        def forget(_: asyncio.Future[bool]) -> None:
            timer.cancel()
            watchers = self._by_job.get(job_id, {})
            watchers.pop(watcher, None)
            if not watchers:
                self._by_job.pop(job_id, None)
                others = self._by_hash.get(hashed, set())
                others.discard(job_id)
                if not others:
                    self._by_hash.pop(hashed, None)

        watcher.add_done_callback(forget)
        return watcher

    def notify(self, job: Job) -> None:
        self._end_watchers(job.job_id, job.is_terminal)
        self._wakeups.tell((f"{ENDED if job.is_terminal else CHANGED}{_hash(job.job_id)}",))

    def _end_hashed(self, hashed: str, has_ended: bool) -> None:
        for job_id in self._by_hash.get(hashed, ()):
            self._end_watchers(job_id, has_ended)

    def _end_watchers(self, job_id: str, has_ended: bool) -> None:
        for watcher, until_ended in self._by_job.get(job_id, {}).items():
            if has_ended or not until_ended:
                _end(watcher, True)

    def _release_some(self) -> None:
        for job_id in islice(self._by_job, RELEASED_AT_ONCE_MAX):
            self._end_watchers(job_id, has_ended=True)

    def release_all(self) -> None:
        for watchers in self._by_job.values():
            for watcher in watchers:
                _end(watcher, True)


def _hash(job_id: str) -> str:
    return f"{crc32(job_id.encode()) % HASHES:x}"


def _end(watcher: asyncio.Future[bool], has_changed: bool) -> None:
    if not watcher.done():
        watcher.set_result(has_changed)
