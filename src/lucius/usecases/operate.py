"""Operations on jobs: cancel, pause, resume, redrive, dismiss."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from lucius.domain.effects import Outcome
from lucius.domain.envelope import NOT_REGISTERED
from lucius.domain.errors import CallerError, InfrastructureError
from lucius.domain.inputs import Accepted, Operation
from lucius.domain.job import RULES_VERSION, Job, JobStatus
from lucius.domain.step import Step, StepStatus
from lucius.domain.time import after
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine, NewJob, Started
from lucius.ports.ledger import Claim, Closing, Duplicate, Ledger, LedgerUnavailable, Limit, Saturated
from lucius.ports.observer import Observer
from lucius.usecases.accept import SATURATED_RETRY_SECONDS
from lucius.usecases.operation_keys import EVENT_OF, REDRIVEN, was_applied, was_made_by
from lucius.usecases.query import Queries, Sees

REDRIVES_MAX = 100
"""How often one job may be redriven."""
REDRIVABLE = (JobStatus.FAILED_FINAL, JobStatus.CANCELLED)

LimitsOf = Callable[[Job], tuple[Limit, ...]]
IsAdmitted = Callable[[str], bool]
"""Whether commands of a tenant are accepted."""


class Done(Struct, frozen=True):
    """The result of an operation: its job, or the job that a redrive created."""

    job_id: str
    status: JobStatus
    replayed: bool = False
    """It was already applied, with the same key."""


class Operations:
    def __init__(
        self,
        engine: Engine,
        queries: Queries,
        ledger: Ledger,
        clock: Clock,
        observer: Observer,
        limits_of: LimitsOf,
        is_admitted: IsAdmitted = lambda tenant_id: True,
    ) -> None:
        self._engine = engine
        self._queries = queries
        self._ledger = ledger
        self._clock = clock
        self._observer = observer
        self._limits_of = limits_of
        self._is_admitted = is_admitted

    async def apply(self, job_id: str, operation: Operation, sees: Sees) -> Done:
        """Cancel, pause or resume. An operation whose key was applied before is not applied again."""
        job = await self._queries.job(job_id, sees)
        key = operation.key
        if key is not None and await was_applied(self._ledger, job_id, key, EVENT_OF[type(operation)]):
            return Done(job_id, job.status, replayed=True)
        reply = await self._engine.tell(job_id, job.spec.tenant_id, operation)
        if reply is None:
            raise CallerError.of("JOB_NOT_FOUND", "there is no such job")
        if reply.outcome is Outcome.JOB_TERMINAL:
            raise CallerError.of("JOB_TERMINAL", f"the job has ended: it is {reply.status.value}")
        if reply.outcome is Outcome.CONFLICT:
            raise CallerError.of("CONFLICT", f"not possible while the job is {reply.status.value}")
        return Done(job_id, reply.status)

    async def redrive(
        self,
        job_id: str,
        sees: Sees,
        key: str | None = None,
        only_once: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> Done:
        """A new job that starts at the first unfinished step of one that failed or was cancelled. `only_once`: not if
        it was redriven before, however that ended."""
        old = await self._queries.job(job_id, sees)
        if not self._is_admitted(old.spec.tenant_id):
            raise CallerError.of("TENANT_FORBIDDEN", NOT_REGISTERED)
        if old.status not in REDRIVABLE:
            old = await self._engine.newest(old)
        if old.status not in REDRIVABLE:
            detail = f"only a job that failed or was cancelled can be redriven; this one is {old.status.value}"
            raise CallerError.of("CONFLICT", detail)
        if all(step.status is StepStatus.SUCCEEDED for step in old.steps):
            raise CallerError.of("CONFLICT", "every step of this job succeeded before it ended: nothing is left to do")
        if key is not None:
            await was_applied(self._ledger, job_id, key, REDRIVEN)
        for number in range(1, REDRIVES_MAX + 1):
            claim = Claim(_claim_key(job_id, number), old.spec.idempotency_hash)
            holder = await self._holder(claim)
            if holder is None:
                return await self._start(old, claim, key, by, reason)
            if key is not None and await was_made_by(self._ledger, holder.job_id, key):
                return Done(holder.job_id, JobStatus(holder.status), replayed=True)
            if only_once:
                detail = f"it was redriven before, as job {holder.job_id}, which is {holder.status}"
                raise CallerError.of("CONFLICT", detail)
            if holder.status not in (JobStatus.FAILED_FINAL, JobStatus.CANCELLED, JobStatus.SUCCEEDED):
                raise CallerError.of("CONFLICT", f"job {holder.job_id} already redrives this one, and is still open")
        raise CallerError.of("CONFLICT", f"the job was already redriven {REDRIVES_MAX} times")

    async def dismiss(self, job_id: str, by: str, reason: str, sees: Sees) -> Closing:
        """Take a job off the list of dead letters. The first dismissal counts; the job itself is not touched."""
        job = await self._queries.job(job_id, sees)
        if job.status is not JobStatus.FAILED_FINAL:
            detail = f"only a job that failed for good is a dead letter; this one is {job.status.value}"
            raise CallerError.of("CONFLICT", detail)
        try:
            closing = await self._ledger.dismiss(Closing(job_id=job_id, at=self._clock.now(), by=by, reason=reason))
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        if closing.redriven_as is not None:
            detail = f"job {closing.redriven_as} redrives this one, which is not among the dead letters any more"
            raise CallerError.of("CONFLICT", detail)
        self._observer.dismissed(job_id, job.spec.tenant_id)
        return closing

    async def _holder(self, claim: Claim) -> Duplicate | None:
        try:
            return await self._ledger.find_claim(claim.key)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error

    async def _start(self, old: Job, claim: Claim, key: str | None, by: str | None, reason: str | None) -> Done:
        now, job_id = self._clock.now(), self._clock.job_id()
        term = (old.spec.deadline_at - max(old.spec.created_at, old.spec.not_before or 0)) / 1000
        spec = replace(
            old.spec,
            job_id=job_id,
            created_at=now,
            not_before=None,
            deadline_at=after(now, term),
            redrive_of=old.spec.job_id,
            rules_version=RULES_VERSION,
        )
        steps = tuple(
            replace(step.spec, workspace_ref=step.spec.workspace_ref.replace(old.spec.job_id, job_id))
            for step in old.steps
        )
        done = tuple(
            Step(
                spec=new_spec,
                created_at=now,
                updated_at=now,
                status=StepStatus.SUCCEEDED,
                progress=1.0,
                artifacts=step.artifacts,
                output_ref=step.output_ref,
                started_at=step.started_at,
                completed_at=step.completed_at,
            )
            for step, new_spec in zip(old.steps, steps, strict=True)
            if step.status is StepStatus.SUCCEEDED
        )
        new = NewJob(fact=Accepted(spec, steps, done, key, by, reason), claim=claim, limits=self._limits_of(old))
        outcome = await self._engine.submit(new)
        match outcome:
            case Started():
                return Done(outcome.job_id, outcome.status)
            case Saturated(limit=limit):
                detail = f"{limit.maximum} jobs are already in flight in scope {limit.scope}"
                raise CallerError.of(limit.code, detail, retry_after_seconds=SATURATED_RETRY_SECONDS)
            case Duplicate(job_id=other, status=status):
                if key is not None and await was_made_by(self._ledger, other, key):
                    return Done(other, JobStatus(status), replayed=True)
                raise CallerError.of("CONFLICT", f"job {other} already redrives this one")


def first_redrive_claim(job_id: str) -> bytes:
    """The claim that a job's first redrive has."""
    return _claim_key(job_id, 1)


def _claim_key(job_id: str, number: int) -> bytes:
    return hashlib.sha256(f"redrive\n{job_id}\n{number}".encode()).digest()
