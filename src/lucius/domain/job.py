"""The job machine, and the aggregate: a job, its steps and their current attempts."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Raw, Struct

from lucius.domain.attempt import Failure
from lucius.domain.routing import Routing
from lucius.domain.step import Step, StepStatus
from lucius.domain.time import Instant

RULES_VERSION = 1
"""Grows when `decide` changes in a way that jobs in flight would notice; a job keeps the one it was accepted under."""


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
    RESUMED = "RESUMED"  # back in the queue; STARTED and RAN follow at once where its steps have come that far
    CANCEL_ASKED = "CANCEL_ASKED"  # while an attempt is live
    CANCELLED = "CANCELLED"


S, M = JobStatus, JobMove

JOB_TRANSITIONS: dict[tuple[JobStatus, JobMove], JobStatus] = {
    (S.QUEUED, M.STARTED): S.DISPATCHING,
    (S.QUEUED, M.RAN): S.IN_PROGRESS,
    (S.QUEUED, M.FAILED): S.FAILED_FINAL,
    (S.QUEUED, M.PAUSED): S.PAUSED,
    (S.QUEUED, M.CANCELLED): S.CANCELLED,
    (S.DISPATCHING, M.STARTED): S.DISPATCHING,
    (S.DISPATCHING, M.RAN): S.IN_PROGRESS,
    (S.DISPATCHING, M.SUCCEEDED): S.SUCCEEDED,
    (S.DISPATCHING, M.FAILED): S.FAILED_FINAL,
    (S.DISPATCHING, M.PAUSED): S.PAUSED,
    (S.DISPATCHING, M.CANCEL_ASKED): S.CANCELLING,
    (S.DISPATCHING, M.CANCELLED): S.CANCELLED,
    (S.IN_PROGRESS, M.STARTED): S.IN_PROGRESS,
    (S.IN_PROGRESS, M.RAN): S.IN_PROGRESS,
    (S.IN_PROGRESS, M.SUCCEEDED): S.SUCCEEDED,
    (S.IN_PROGRESS, M.FAILED): S.FAILED_FINAL,
    (S.IN_PROGRESS, M.PAUSED): S.PAUSED,
    (S.IN_PROGRESS, M.CANCEL_ASKED): S.CANCELLING,
    (S.IN_PROGRESS, M.CANCELLED): S.CANCELLED,
    (S.PAUSED, M.RAN): S.PAUSED,
    (S.PAUSED, M.SUCCEEDED): S.SUCCEEDED,
    (S.PAUSED, M.FAILED): S.FAILED_FINAL,
    (S.PAUSED, M.PAUSED): S.PAUSED,
    (S.PAUSED, M.RESUMED): S.QUEUED,
    (S.PAUSED, M.CANCEL_ASKED): S.CANCELLING,
    (S.PAUSED, M.CANCELLED): S.CANCELLED,
    (S.CANCELLING, M.RAN): S.CANCELLING,
    (S.CANCELLING, M.CANCEL_ASKED): S.CANCELLING,
    (S.CANCELLING, M.CANCELLED): S.CANCELLED,
}

JOB_TERMINAL = frozenset({S.SUCCEEDED, S.FAILED_FINAL, S.CANCELLED})


class JobSpec(Struct, frozen=True, kw_only=True):
    """What was accepted. Written once; routing, protocol version and policies are never looked up again."""

    job_id: str
    tenant_id: str
    """In normal form: "Acme" and "acme" are one tenant."""
    request_type: str
    protocol_id: str
    protocol_version: int
    schema_version: str
    routing: Routing
    input_ref: Raw
    output_ref: Raw
    idempotency_key: str | None
    idempotency_hash: str
    doc_id: str | None = None
    callback_urls: dict[str, str] = {}
    correlation_id: str
    traceparent: str | None = None
    not_before: Instant | None = None
    deadline_at: Instant
    created_at: Instant
    redrive_of: str | None = None
    rules_version: int = RULES_VERSION


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
    """The one moment at which something must happen if nothing else does; None only when the job has ended."""
    event_seq: int = 0
    revision: int = 0
    """Grows with every commit; what optimistic writers compare."""
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
