"""Waiting in this process for a job to change."""

from __future__ import annotations

import asyncio

from lucius.domain.job import Job


class JobWatchers:
    def __init__(self) -> None:
        self._by_job: dict[str, dict[asyncio.Future[bool], bool]] = {}
        """Each watcher, and whether it waits for the job's end only."""

    def wait(self, job_id: str, timeout_seconds: float, until_ended: bool) -> asyncio.Future[bool]:
        """Whether the job changed, or ended, in time. Changes count from this call on, not only once it is awaited."""
        loop = asyncio.get_running_loop()
        watcher: asyncio.Future[bool] = loop.create_future()
        self._by_job.setdefault(job_id, {})[watcher] = until_ended
        timer = loop.call_later(timeout_seconds, _end, watcher, False)

        def forget(_: asyncio.Future[bool]) -> None:
            timer.cancel()
            watchers = self._by_job.get(job_id, {})
            watchers.pop(watcher, None)
            if not watchers:
                self._by_job.pop(job_id, None)

        watcher.add_done_callback(forget)
        return watcher

    def notify(self, job: Job) -> None:
        for watcher, until_ended in self._by_job.get(job.job_id, {}).items():
            if job.is_terminal or not until_ended:
                _end(watcher, True)

    def release_all(self) -> None:
        for watchers in self._by_job.values():
            for watcher in watchers:
                _end(watcher, True)


def _end(watcher: asyncio.Future[bool], has_changed: bool) -> None:
    if not watcher.done():
        watcher.set_result(has_changed)
