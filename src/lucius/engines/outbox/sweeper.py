"""The sweeper: the only timer. It finds jobs whose `wake_at` has passed and feeds them `DeadlinePassed`."""

from __future__ import annotations

from lucius.domain.inputs import DeadlinePassed
from lucius.domain.job import Job
from lucius.domain.step import StepStatus
from lucius.engines.directives import current_directive_ref
from lucius.engines.outbox.work import Tell, raise_first, tell_all
from lucius.ports.bus import Bus, BusUnavailable
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer

SWEEP_MAX = 500
"""Jobs woken in one round; if there are more, the next round follows at once."""


class Sweeper:
    def __init__(self, ledger: Ledger, bus: Bus, clock: Clock, observer: Observer, tell: Tell) -> None:
        self._ledger = ledger
        self._bus = bus
        self._clock = clock
        self._observer = observer
        self._tell = tell

    async def sweep(self) -> int:
        """Wake the jobs that are due; returns their number."""
        job_ids = await self._ledger.due(self._clock.now(), SWEEP_MAX)
        if not job_ids:
            return 0
        jobs = await self._ledger.load(job_ids)
        queued = await self._still_queued(list(jobs.values()))
        raise_first(await tell_all(self._tell, ((job_id, DeadlinePassed(job_id in queued)) for job_id in jobs)))
        self._observer.swept("deadline", len(jobs))
        return len(jobs)

    async def _still_queued(self, jobs: list[Job]) -> set[str]:
        """Of jobs whose ack deadline has passed, those whose directive certainly still waits on the bus."""
        waiting = [job for job in jobs if job.current_step.status is StepStatus.INITIATED]
        refs = {current_directive_ref(job): job.job_id for job in waiting}
        if not refs:
            return set()
        try:
            return {refs[ref] for ref in await self._bus.still_queued(list(refs))}
        except BusUnavailable:
            # No service can have picked it up from an unreachable bus: wait rather than use up the attempt.
            return set(refs.values())
