"""Turns that a frozen disk or database keeps from ending: their callers are answered anyway.

Such a turn continues, and takes effect as a whole if its commit succeeds later. But its callers no longer wait, and no
new caller has to wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lucius.engines.outbox.work import Pending

ANSWER_SECONDS = 8.0
"""Maximum time that a caller waits for a turn."""


class LateTurns:
    def __init__(self, turns_at_once: int, on_late: Callable[[Sequence[Pending]], None]) -> None:
        """`on_late` is called with the inputs of a turn that has become late."""
        self._turns_at_once = turns_at_once
        self._on_late = on_late
        self._late = 0
        self._late_jobs: set[str] = set()

    @contextmanager
    def watched(self, batch: Sequence[Pending]) -> Iterator[None]:
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = True
            self._late += 1
            self._late_jobs.update(pending.job_id for pending in batch)
            self._on_late(batch)

        timer = asyncio.get_running_loop().call_later(ANSWER_SECONDS, give_up)
        try:
            yield
        finally:
            timer.cancel()
            if is_late:
                self._late -= 1
                self._late_jobs.difference_update(pending.job_id for pending in batch)

    def keeps_waiting(self, job_id: str) -> bool:
        """Whether an input about this job would have to wait for a turn that is late."""
        return self._late >= self._turns_at_once or job_id in self._late_jobs
