"""Jobs and results over the bus itself, for a worker with a bus client instead of HTTP."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from lucius.functions.source import SourceFailed
from lucius.kit.bus import BusFailed, KitBus, Outgoing

LOCK_SECONDS = 60.0
JOBS_TOPIC = "jobs"
RESULTS_TOPIC = "results"
RESULT_PREFIX = "result-"
WORKER_PROPERTY = "WorkerId"

log = logging.getLogger("lucius.functions")


class BusSource:
    """A `JobSource`. It publishes a result before it settles the job: after a crash in between, the job is redelivered
    and its second result changes nothing."""

    def __init__(
        self,
        worker_id: str,
        bus: KitBus,
        lock_seconds: float = LOCK_SECONDS,
        saw: Callable[[int], None] | None = None,
    ) -> None:
        """`saw` is told whenever the worker shows that it is there, with the number of jobs that it has. Without it,
        somebody else has to tell the server."""
        self.tells = saw is not None
        self._saw = saw or (lambda in_work: None)
        self._in_work: set[str] = set()
        self._worker_id = worker_id
        self._bus = bus
        self._lock_seconds = lock_seconds

    @property
    def in_work(self) -> int:
        """The jobs that it has."""
        return len(self._in_work)

    async def __aenter__(self) -> BusSource:
        await self._bus.declare(JOBS_TOPIC, self._worker_id, {WORKER_PROPERTY: self._worker_id})
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def pull(self, count_max: int, wait_seconds: float, /) -> list[Any]:
        self._saw(self.in_work)
        try:
            found = await self._bus.receive([JOBS_TOPIC], self._worker_id, count_max, self._lock_seconds, wait_seconds)
            jobs = []
            for one in found:
                try:
                    jobs.append(json.loads(one.body))
                except (ValueError, RecursionError):
                    log.error("a message for %s is not JSON; it is a dead letter now", self._worker_id)
                    await self._bus.dead_letter([one.ref], "not a job: not JSON")
        except BusFailed as error:
            raise SourceFailed(str(error)) from error
        self._in_work |= {str(job.get("jobId")) for job in jobs if isinstance(job, dict)}
        self._saw(self.in_work)
        return jobs

    async def renew(self, job_ids: Sequence[str], /) -> list[bool]:
        self._saw(self.in_work)
        try:
            return await self._bus.renew([self._ref(job_id) for job_id in job_ids], self._lock_seconds)
        except BusFailed as error:
            raise SourceFailed(str(error)) from error

    async def answer(self, results: Sequence[dict[str, Any]], /) -> list[Any]:
        messages = [
            Outgoing(RESULT_PREFIX + one["jobId"], RESULTS_TOPIC, json.dumps(one).encode(), {}) for one in results
        ]
        try:
            answers = await self._bus.publish(messages)
            taken = [one["jobId"] for one, not_taken in zip(results, answers, strict=True) if not_taken is None]
            await self._bus.settle([self._ref(job_id) for job_id in taken])
        except BusFailed as error:
            raise SourceFailed(str(error)) from error
        for not_taken in answers:
            if not_taken is not None and not not_taken.is_final:
                raise SourceFailed(not_taken.reason)
        self._in_work -= {str(one["jobId"]) for one in results}
        return [
            {"jobId": one["jobId"], "outcome": "RECEIVED"}
            if not_taken is None
            else {"jobId": one["jobId"], "code": "REFUSED", "detail": not_taken.reason}
            for one, not_taken in zip(results, answers, strict=True)
        ]

    def _ref(self, job_id: str) -> Any:
        return self._bus.ref(JOBS_TOPIC, self._worker_id, job_id)
