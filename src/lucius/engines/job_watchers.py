"""Waiting in this process for a job to change."""

from __future__ import annotations

import asyncio

from lucius.domain.job import Job


class JobWatchers:
    def __init__(self) -> None:
        self._by_job: dict[str, dict[asyncio.Event, bool]] = {}
        """Each watcher's event, and whether it waits for the job's end only."""

    async def wait(self, job_id: str, timeout_seconds: float, until_ended: bool) -> bool:
        """Whether the job changed, or ended, in time."""
        event = asyncio.Event()
        watchers = self._by_job.setdefault(job_id, {})
        watchers[event] = until_ended
        try:
            await asyncio.wait_for(event.wait(), timeout_seconds)
            return True
        except TimeoutError:
            return False
        finally:
            del watchers[event]
            if not watchers:
                self._by_job.pop(job_id, None)

    def notify(self, job: Job) -> None:
        for event, until_ended in self._by_job.get(job.job_id, {}).items():
            if job.is_terminal or not until_ended:
                event.set()

    def release_all(self) -> None:
        for watchers in self._by_job.values():
            for event in watchers:
                event.set()
