"""Inputs are facts: what happened, told to `decide`."""

from __future__ import annotations

from msgspec import Raw, Struct

from lucius.domain.attempt import NULL, Failure, Verdict
from lucius.domain.job import JobSpec
from lucius.domain.step import Step, StepSpec


class Accepted(Struct, frozen=True):
    """A command passed validation. `done` are the finished steps that a redrive inherits."""

    spec: JobSpec
    steps: tuple[StepSpec, ...]
    done: tuple[Step, ...] = ()


class Published(Struct, frozen=True):
    """The bus took the attempt's directive."""

    step_id: str
    attempt_no: int


class PublishFailed(Struct, frozen=True):
    """The bus refused this directive (not: the bus was out of reach, which is no fact about a job)."""

    step_id: str
    attempt_no: int
    reason: str


class PublishDeferred(Struct, frozen=True):
    """The bus was out of reach: the claim is given back, and the attempt is not used up."""

    step_id: str
    attempt_no: int


class DispatchDue(Struct, frozen=True):
    """An outbox row was found unsent and unclaimed; `force` takes it up although somebody holds a claim."""

    force: bool = False


class Acked(Struct, frozen=True):
    step_id: str
    attempt_no: int
    lease_id: str
    acked_by: str | None = None
    """Which instance of the service it was, if it says so."""


class HeartbeatSeen(Struct, frozen=True):
    step_id: str
    attempt_no: int
    lease_id: str
    progress: float | None = None
    note: str | None = None


class Resulted(Struct, frozen=True):
    step_id: str
    attempt_no: int
    lease_id: str
    verdict: Verdict
    retryable: bool = True
    rate_limited_seconds: float | None = None
    """Set where the service was rate-limited: wait this long, and do not count the attempt."""
    artifacts: Raw = NULL
    output_ref: Raw = NULL
    error: Failure | None = None


class DeadlinePassed(Struct, frozen=True):
    """A hint: it counts only if `wake_at <= now` still holds. `still_queued` is the bus's word on the directive."""

    still_queued: bool = False


class CancelAsked(Struct, frozen=True):
    by: str
    reason: str | None = None


class PauseAsked(Struct, frozen=True):
    by: str


class ResumeAsked(Struct, frozen=True):
    by: str


Callback = Acked | HeartbeatSeen | Resulted
Operation = CancelAsked | PauseAsked | ResumeAsked
Input = Accepted | Published | PublishFailed | PublishDeferred | DispatchDue | Callback | DeadlinePassed | Operation
