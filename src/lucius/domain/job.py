"""The job machine, and the aggregate: a job, its steps and their current attempts."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Raw, Struct

from lucius.domain.attempt import Failure
from lucius.domain.routing import Routing
from lucius.domain.search import SearchValue
from lucius.domain.step import Step, StepStatus
from lucius.domain.time import Instant

RULES_VERSION = 4
"""Incremented when `decide` changes in a way that affects jobs in flight; a job keeps the version it was accepted
under.

2: a job that is being cancelled has its directive withdrawn, and its ack deadline is not moved on; a directive that
waits in its queue beyond its ack deadline is recorded once; callbacks that repeat each other leave one event.

3: on Temporal, a lease id depends on the revision that the attempt was decided on.

4: a step that waits because the bus refused its directive can be made due.

A new input needs no new rules: no job has met it, so every job takes it, whatever its rules (`ForceCancelAsked`).
"""
WITHDRAWS_DIRECTIVES = 2
"""The first rules under which a cancelled job's directive is withdrawn."""
RECORDS_WAITING_ONCE = 2
"""The first rules under which extending an ack deadline is not an event."""
REPEATS_ONCE = 2
"""The first rules under which callbacks that repeat each other leave one event."""
LEASES_FROM_REVISION = 3
"""The first rules under which a workflow derives lease ids from the job's revision."""
RETRIES_REFUSED_EARLY = 4
"""The first rules under which a step that waits because the bus refused its directive can be made due."""


OUTBOX, TEMPORAL = "outbox", "temporal"


class JobStatus(StrEnum):
    QUEUED = "QUEUED"
    DISPATCHING = "DISPATCHING"
    IN_PROGRESS = "IN_PROGRESS"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED_FINAL = "FAILED_FINAL"
    CANCELLED = "CANCELLED"


class JobMove(StrEnum):
    """What can happen to a job, as the outcome of an input."""

    STARTED = "STARTED"  # an attempt of one of its steps was created
    RAN = "RAN"  # a directive was published or acknowledged
    SUCCEEDED = "SUCCEEDED"  # its last step succeeded
    FAILED = "FAILED"  # a step failed for good, or the deadline passed
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"  # back in the queue; STARTED and RAN follow at once if its steps have got that far
    CANCEL_ASKED = "CANCEL_ASKED"  # while an attempt is live
    CANCEL_FORCED = "CANCEL_FORCED"  # without waiting for the live attempt
    CANCELLED = "CANCELLED"


S, M = JobStatus, JobMove

JOB_TRANSITIONS: dict[tuple[JobStatus, JobMove], JobStatus] = {
    (S.QUEUED, M.STARTED): S.DISPATCHING,
    (S.QUEUED, M.RAN): S.IN_PROGRESS,
    (S.QUEUED, M.FAILED): S.FAILED_FINAL,
    (S.QUEUED, M.PAUSED): S.PAUSED,
    (S.QUEUED, M.CANCEL_FORCED): S.CANCELLED,
    (S.QUEUED, M.CANCELLED): S.CANCELLED,
    (S.DISPATCHING, M.STARTED): S.DISPATCHING,
    (S.DISPATCHING, M.RAN): S.IN_PROGRESS,
    (S.DISPATCHING, M.SUCCEEDED): S.SUCCEEDED,
    (S.DISPATCHING, M.FAILED): S.FAILED_FINAL,
    (S.DISPATCHING, M.PAUSED): S.PAUSED,
    (S.DISPATCHING, M.CANCEL_ASKED): S.CANCELLING,
    (S.DISPATCHING, M.CANCEL_FORCED): S.CANCELLED,
    (S.DISPATCHING, M.CANCELLED): S.CANCELLED,
    (S.IN_PROGRESS, M.STARTED): S.IN_PROGRESS,
    (S.IN_PROGRESS, M.RAN): S.IN_PROGRESS,
    (S.IN_PROGRESS, M.SUCCEEDED): S.SUCCEEDED,
    (S.IN_PROGRESS, M.FAILED): S.FAILED_FINAL,
    (S.IN_PROGRESS, M.PAUSED): S.PAUSED,
    (S.IN_PROGRESS, M.CANCEL_ASKED): S.CANCELLING,
    (S.IN_PROGRESS, M.CANCEL_FORCED): S.CANCELLED,
    (S.IN_PROGRESS, M.CANCELLED): S.CANCELLED,
    (S.PAUSED, M.RAN): S.PAUSED,
    (S.PAUSED, M.SUCCEEDED): S.SUCCEEDED,
    (S.PAUSED, M.FAILED): S.FAILED_FINAL,
    (S.PAUSED, M.PAUSED): S.PAUSED,
    (S.PAUSED, M.RESUMED): S.QUEUED,
    (S.PAUSED, M.CANCEL_ASKED): S.CANCELLING,
    (S.PAUSED, M.CANCEL_FORCED): S.CANCELLED,
    (S.PAUSED, M.CANCELLED): S.CANCELLED,
    (S.CANCELLING, M.RAN): S.CANCELLING,
    (S.CANCELLING, M.CANCEL_ASKED): S.CANCELLING,
    (S.CANCELLING, M.CANCEL_FORCED): S.CANCELLED,
    (S.CANCELLING, M.CANCELLED): S.CANCELLED,
}

JOB_TERMINAL = frozenset({S.SUCCEEDED, S.FAILED_FINAL, S.CANCELLED})


class CommandFields(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a command that its job keeps unchanged."""

    tenant_id: str
    """In normal form: "Acme" and "acme" are one tenant."""
    request_type: str
    """As posted: an alias stays an alias."""
    schema_version: str
    routing: Routing
    input_ref: Raw
    output_ref: Raw
    idempotency_key: str | None
    idempotency_hash: str
    doc_id: str | None = None
    callback_urls: dict[str, str] = {}
    traceparent: str | None = None
    not_before: Instant | None = None
    searchable: tuple[SearchValue, ...] = ()
    """The values of its payload by which the job can be found."""

    def command_fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in CommandFields.__struct_fields__}


class JobSpec(CommandFields, frozen=True, kw_only=True, omit_defaults=True):
    """What was accepted. Written once; routing, protocol version and policies are never looked up again."""

    job_id: str
    protocol_id: str
    protocol_version: int
    correlation_id: str
    deadline_at: Instant
    created_at: Instant
    redrive_of: str | None = None
    rules_version: int
    """Never left to a default: a job keeps the rules it was accepted under."""


class Job(Struct, frozen=True, kw_only=True):
    """The whole aggregate, loaded and written as one."""

    spec: JobSpec
    status: JobStatus
    steps: tuple[Step, ...]
    current_index: int = 0
    """The first step that has not succeeded; the last step once all have."""
    attempts_total: int = 0
    updated_at: Instant
    completed_at: Instant | None = None
    error: Failure | None = None
    dead_letter: bool = False
    wake_at: Instant | None = None
    """When something must happen if no input arrives before; None only if the job has ended."""
    event_seq: int = 0
    callbacks_recorded: tuple[str, ...] = ()
    """Unapplied callbacks that are in the audit trail already; repetitions are not recorded."""
    revision: int = 0
    """Incremented by every commit, for optimistic concurrency."""
    engine: str = OUTBOX
    """Which engine drives it, from its acceptance to its end."""

    @property
    def job_id(self) -> str:
        return self.spec.job_id

    @property
    def is_terminal(self) -> bool:
        return self.status in JOB_TERMINAL

    @property
    def current_step(self) -> Step:
        return self.steps[self.current_index]

    @property
    def awaits_withdrawal(self) -> bool:
        """Whether it is being cancelled and ends at once if no service has its directive."""
        return self.status is JobStatus.CANCELLING and self.current_step.status is StepStatus.INITIATED

    @property
    def slots(self) -> tuple[str, str, str]:
        """The scopes in which a job counts while it is in flight."""
        return "global", f"mode:{self.spec.routing.resolved_mode}", f"tenant:{self.spec.tenant_id}"

    @property
    def progress(self) -> float:
        done = sum(1.0 if s.status is StepStatus.SUCCEEDED else s.progress for s in self.steps)
        return round(done / len(self.steps), 4)

    def index_of(self, step_id: str) -> int | None:
        for index, step in enumerate(self.steps):
            if step.spec.step_id == step_id:
                return index
        return None


JOB_BYTES = 4_096
"""Approximate size of an aggregate without its payloads."""


def approximate_bytes(job: Job) -> int:
    return JOB_BYTES + sum(len(step.spec.payload) + len(step.artifacts) for step in job.steps)


def step_millis(job: Job) -> dict[str, int]:
    """How long each step took, by its id: from when a service first picked it up to its end, further attempts
    included."""
    return {
        step.spec.step_id: step.completed_at - step.started_at
        for step in job.steps
        if step.started_at is not None and step.completed_at is not None
    }
