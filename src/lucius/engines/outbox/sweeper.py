"""The sweeper: the one clock. It finds jobs whose `wake_at` has come and tells them so; nothing waits without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lucius.domain.directive import message_id
from lucius.domain.inputs import DeadlinePassed, Input
from lucius.domain.job import Job
from lucius.domain.step import StepStatus
from lucius.ports.bus import Bus, BusUnavailable, DeliveryRef
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer

SWEEP_MAX = 500
"""Jobs woken in one round; where there are more, the next round follows at once."""

Tell = Callable[[str, Input], "asyncio.Future[object]"]


class Sweeper:
    def __init__(self, ledger: Ledger, bus: Bus, clock: Clock, observer: Observer, tell: Tell) -> None:
        self._ledger = ledger
        self._bus = bus
        self._clock = clock
        self._observer = observer
        self._tell = tell

    async def sweep(self) -> int:
        """Wake what is due; how many jobs that were."""
        job_ids = await self._ledger.due(self._clock.now(), SWEEP_MAX)
        if not job_ids:
            return 0
        jobs = await self._ledger.load(job_ids)
        queued = await self._still_queued(list(jobs.values()))
        for told in [self._tell(job_id, DeadlinePassed(job_id in queued)) for job_id in jobs]:
            await told
        self._observer.swept("deadline", len(jobs))
        return len(job_ids)

    async def _still_queued(self, jobs: list[Job]) -> set[str]:
        """Of jobs whose ack deadline has come, those whose directive provably still waits on the bus."""
        refs: dict[DeliveryRef, str] = {}
        for job in jobs:
            step = job.current_step
            if step.status is StepStatus.INITIATED:
                name = message_id(job.job_id, step.spec.step_id, step.attempt_no)
                refs[DeliveryRef(job.spec.routing.topic, step.spec.service, name)] = job.job_id
        if not refs:
            return set()
        try:
            return {refs[ref] for ref in await self._bus.still_queued(list(refs))}
        except BusUnavailable:
            # Nobody can have picked it up from a bus that is out of reach: wait rather than burn the attempt.
            return set(refs.values())
