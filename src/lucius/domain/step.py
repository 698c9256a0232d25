"""The step machine: one unit of work of a job, and the attempt that is current for it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Raw, Struct

from lucius.domain.attempt import NULL, Attempt, DispatchStatus, Failure
from lucius.domain.protocol import Policy
from lucius.domain.time import Instant


class StepStatus(StrEnum):
    PENDING = "PENDING"
    DISPATCHING = "DISPATCHING"
    INITIATED = "INITIATED"
    PROCESSING = "PROCESSING"
    FAILED_RETRY = "FAILED_RETRY"
    SUCCEEDED = "SUCCEEDED"
    FAILED_FINAL = "FAILED_FINAL"
    CANCELLED = "CANCELLED"


class StepMove(StrEnum):
    """What can happen to a step, as the outcome of an input."""

    STARTED = "STARTED"  # an attempt was created
    PUBLISHED = "PUBLISHED"  # the bus took its directive
    ACKED = "ACKED"  # a service picked it up
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"  # failed, and may be tried again
    EXHAUSTED = "EXHAUSTED"  # failed for good
    CANCELLED = "CANCELLED"


S, M = StepStatus, StepMove

STEP_TRANSITIONS: dict[tuple[StepStatus, StepMove], StepStatus] = {
    (S.PENDING, M.STARTED): S.DISPATCHING,
    (S.PENDING, M.CANCELLED): S.CANCELLED,
    (S.DISPATCHING, M.PUBLISHED): S.INITIATED,
    (S.DISPATCHING, M.ACKED): S.PROCESSING,
    (S.DISPATCHING, M.SUCCEEDED): S.SUCCEEDED,
    (S.DISPATCHING, M.FAILED): S.FAILED_RETRY,
    (S.DISPATCHING, M.EXHAUSTED): S.FAILED_FINAL,
    (S.DISPATCHING, M.CANCELLED): S.CANCELLED,
    (S.INITIATED, M.ACKED): S.PROCESSING,
    (S.INITIATED, M.SUCCEEDED): S.SUCCEEDED,
    (S.INITIATED, M.FAILED): S.FAILED_RETRY,
    (S.INITIATED, M.EXHAUSTED): S.FAILED_FINAL,
    (S.INITIATED, M.CANCELLED): S.CANCELLED,
    (S.PROCESSING, M.SUCCEEDED): S.SUCCEEDED,
    (S.PROCESSING, M.FAILED): S.FAILED_RETRY,
    (S.PROCESSING, M.EXHAUSTED): S.FAILED_FINAL,
    (S.PROCESSING, M.CANCELLED): S.CANCELLED,
    (S.FAILED_RETRY, M.STARTED): S.DISPATCHING,
    # The next four revive an attempt that timed out, or that was delivered although its publish was reported failed.
    (S.FAILED_RETRY, M.ACKED): S.PROCESSING,
    (S.FAILED_RETRY, M.SUCCEEDED): S.SUCCEEDED,
    (S.FAILED_RETRY, M.FAILED): S.FAILED_RETRY,
    (S.FAILED_RETRY, M.EXHAUSTED): S.FAILED_FINAL,
    (S.FAILED_RETRY, M.CANCELLED): S.CANCELLED,
}

STEP_TERMINAL = frozenset({S.SUCCEEDED, S.FAILED_FINAL, S.CANCELLED})
STEP_LIVE = frozenset({S.DISPATCHING, S.INITIATED, S.PROCESSING})


class StepSpec(Struct, frozen=True, kw_only=True):
    """The task of a step. Written once, at acceptance."""

    step_id: str
    step_type: str
    service: str
    payload: Raw
    policy: Policy
    workspace_ref: str


class Step(Struct, frozen=True, kw_only=True):
    """A step and its current attempt: the newest one, also when the step is terminal."""

    spec: StepSpec
    created_at: Instant
    updated_at: Instant
    status: StepStatus = StepStatus.PENDING
    attempt: Attempt | None = None
    attempts_counted: int = 0
    """Attempts that count against the limit: all but the rate-limited ones."""
    due_at: Instant | None = None
    """The step's own timer: the ack deadline, the lease's end, or when the next attempt is due."""
    queue_until: Instant | None = None
    """Until when an ack deadline may be extended while the directive is still queued."""
    ends_by: Instant | None = None
    """Until when heartbeats may extend the lease."""
    progress: float = 0.0
    note: str | None = None
    artifacts: Raw = NULL
    output_ref: Raw = NULL
    error: Failure | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    progress_at: Instant | None = None
    """When the current attempt last reported something new: another progress or another note."""

    @property
    def attempt_no(self) -> int:
        return self.attempt.attempt_no if self.attempt else 0

    @property
    def attempt_was_sent(self) -> bool:
        return self.attempt is not None and self.attempt.dispatch is DispatchStatus.SENT

    @property
    def is_terminal(self) -> bool:
        return self.status in STEP_TERMINAL

    @property
    def is_live(self) -> bool:
        return self.status in STEP_LIVE
