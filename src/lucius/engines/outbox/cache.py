"""A cache of aggregates that were just written, which saves the next turn a read.

Safe with any number of writers: a commit compares revisions, and a stale entry only costs a conflict and a reload.
"""

from __future__ import annotations

from collections import OrderedDict

from lucius.domain.job import Job, approximate_bytes


class JobCache:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._jobs: OrderedDict[str, tuple[Job, int]] = OrderedDict()

    def get(self, job_id: str) -> Job | None:
        entry = self._jobs.get(job_id)
        if entry is None:
            return None
        self._jobs.move_to_end(job_id)
        return entry[0]

    def put(self, job: Job) -> None:
        """Keep a job that is still open; a job that has ended is rarely needed again."""
        job_id = job.spec.job_id
        entry = self._jobs.pop(job_id, None)
        if entry is not None:
            self._bytes -= entry[1]
        if job.is_terminal:
            return
        weight = entry[1] if entry is not None else approximate_bytes(job)
        self._jobs[job_id] = (job, weight)
        self._bytes += weight
        while self._bytes > self._bytes_max and self._jobs:
            _, (_, dropped) = self._jobs.popitem(last=False)
            self._bytes -= dropped

    def drop(self, job_id: str) -> None:
        entry = self._jobs.pop(job_id, None)
        if entry is not None:
            self._bytes -= entry[1]
