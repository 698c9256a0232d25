"""Jobs and results over the bus itself, for a function worker with a bus client instead of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from lucius.functions.source import SourceFailed
from lucius.ports.bus import Bus, BusUnavailable, Message
from lucius.runbooks.core.messages import JOBS_TOPIC, RESULT_PREFIX, RESULTS_TOPIC, job_ref, worker_subscription

LOCK_SECONDS = 60.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class BusSource:
    """A `JobSource` of the function kit. It publishes a result before it settles the job: after a crash in between, the
    job is redelivered and its second result changes nothing."""

    def __init__(
        self,
        worker_id: str,
        bus: Bus,
        lock_seconds: float = LOCK_SECONDS,
        saw: Callable[[int], None] = lambda in_work: None,
    ) -> None:
        """`saw` is told whenever the worker shows that it is there, with the number of jobs that it has."""
        self._saw = saw
        self._in_work: set[str] = set()
        self._worker_id = worker_id
        self._bus = bus
        self._lock_seconds = lock_seconds

    async def __aenter__(self) -> BusSource:
        await self._bus.declare([worker_subscription(self._worker_id)])
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def pull(self, count_max: int, wait_seconds: float, /) -> list[Any]:
        self._saw(len(self._in_work))
        try:
            deliveries = await self._bus.receive(
                [JOBS_TOPIC], self._worker_id, count_max, self._lock_seconds, wait_seconds
            )
        except BusUnavailable as error:
            raise SourceFailed(str(error)) from error
        jobs = [_decode(delivery.body) for delivery in deliveries]
        self._in_work |= {str(job.get("jobId")) for job in jobs if isinstance(job, dict)}
        self._saw(len(self._in_work))
        return jobs

    async def renew(self, job_ids: Sequence[str], /) -> list[bool]:
        self._saw(len(self._in_work))
        try:
            return await self._bus.renew([job_ref(self._worker_id, job_id) for job_id in job_ids], self._lock_seconds)
        except BusUnavailable as error:
            raise SourceFailed(str(error)) from error

    async def answer(self, results: Sequence[dict[str, Any]], /) -> list[Any]:
        messages = [
            Message(id=RESULT_PREFIX + one["jobId"], topic=RESULTS_TOPIC, body=_encode(one), properties={})
            for one in results
        ]
        try:
            answers = await self._bus.publish(messages)
            taken = [one["jobId"] for one, refused in zip(results, answers, strict=True) if refused is None]
            await self._bus.settle([job_ref(self._worker_id, job_id) for job_id in taken])
        except BusUnavailable as error:
            raise SourceFailed(str(error)) from error
        self._in_work -= {str(one["jobId"]) for one in results}
        return [
            {"jobId": one["jobId"], "outcome": "RECEIVED"}
            if refused is None
            else {"jobId": one["jobId"], "code": "REFUSED", "detail": refused.reason}
            for one, refused in zip(results, answers, strict=True)
        ]
