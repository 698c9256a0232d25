"""Decides facts about jobs and writes them to a ledger, one after another, like the simplest possible engine."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from lucius.domain.attempt import Failure, Verdict
from lucius.domain.decide import decide
from lucius.domain.effects import Event
from lucius.domain.inputs import Accepted, Acked, CancelAsked, HeartbeatSeen, Input, Published, Resulted
from lucius.domain.job import Job
from lucius.ports.ledger import Change, CommitOutcome, Committed, Ledger, Limit, Webhook
from lucius.testing.samples import ManualClock, accepted, claim_of


class LedgerDriver:
    def __init__(self, ledger: Ledger, clock: ManualClock) -> None:
        self.ledger = ledger
        self.clock = clock

    # --- Changes that are not written yet ----------------------------------------------------------------------------

    def creation(
        self, *, limits: tuple[Limit, ...] = (), fact: Accepted | None = None, claims: bool = True, **wishes: Any
    ) -> Change:
        fact = fact or accepted(self.clock, **wishes)
        decision = decide(None, fact, self.clock.now(), self.clock)
        claim = claim_of(fact.spec) if claims else None
        return Change(before=None, after=decision.job, events=decision.events, claim=claim, limits=limits)

    def change(self, job: Job, *facts: Input, webhook: Webhook | None = None) -> Change:
        after = job
        events: list[Event] = []
        for fact in facts:
            decision = decide(after, fact, self.clock.now(), self.clock)
            after = decision.job
            events.extend(decision.events)
        return Change(before=job, after=after, events=tuple(events), webhook=webhook)

    # --- Changes that are written ------------------------------------------------------------------------------------

    async def commit(self, change: Change) -> CommitOutcome:
        return (await self.ledger.commit([change]))[0]

    async def write(self, change: Change) -> Job:
        """Commit a change, which must succeed; returns the job afterwards."""
        outcome = await self.commit(change)
        assert isinstance(outcome, Committed), outcome
        return standing(change)

    async def create(self, **wishes: Any) -> Job:
        return await self.write(self.creation(**wishes))

    async def tell(self, job: Job, *facts: Input) -> Job:
        return await self.write(self.change(job, *facts))

    async def succeed(self, job: Job, webhook: Webhook | None = None) -> Job:
        """Complete every step of a job."""
        while not job.is_terminal:
            fact = result(job)
            ends = job.current_index + 1 == len(job.steps)
            job = await self.write(self.change(job, published(job), fact, webhook=webhook if ends else None))
        return job

    async def fail(self, job: Job) -> Job:
        return await self.tell(job, result(job, Verdict.FAILED, retryable=False, error=Failure("BROKEN", "it broke")))

    async def cancel(self, job: Job) -> Job:
        """Cancel, and send the RESULT of the live attempt if there is one, so that the job ends."""
        job = await self.tell(job, CancelAsked("operator"))
        return job if job.is_terminal else await self.tell(job, result(job))

    async def read(self, job: Job) -> Job:
        return (await self.ledger.load([job.job_id]))[job.job_id]


def standing(change: Change) -> Job:
    """The job after its change was committed."""
    return replace(change.after, revision=change.after.revision + 1)


def published(job: Job) -> Published:
    step = job.current_step
    return Published(step.spec.step_id, step.attempt_no)


def ack(job: Job) -> Acked:
    return Acked(*_current(job), acked_by="instance-1")


def heartbeat(job: Job, progress: float | None = None, note: str | None = None) -> HeartbeatSeen:
    return HeartbeatSeen(*_current(job), progress=progress, note=note)


def result(job: Job, verdict: Verdict = Verdict.SUCCEEDED, **fields: Any) -> Resulted:
    if verdict is Verdict.SUCCEEDED:
        fields.setdefault("artifacts", Raw(b'{"pages":2}'))
    return Resulted(*_current(job), verdict=verdict, **fields)


def _current(job: Job) -> tuple[str, int, str]:
    step = job.current_step
    assert step.attempt is not None, f"step {step.spec.step_id} has no attempt yet"
    return step.spec.step_id, step.attempt.attempt_no, step.attempt.lease_id
