"""Inputs of `decide`: facts about what happened."""

from __future__ import annotations

from msgspec import Raw, Struct

from lucius.domain.attempt import NULL, Failure, Verdict
from lucius.domain.job import JobSpec
from lucius.domain.step import Step, StepSpec
from lucius.domain.time import Instant


class Accepted(Struct, frozen=True):
    """A command passed validation. `done` are the finished steps that a redrive inherits."""

    spec: JobSpec
    steps: tuple[StepSpec, ...]
    done: tuple[Step, ...] = ()
    redrive_key: str | None = None
    """The caller's idempotency key for the redrive."""
    redriven_by: str | None = None
    redrive_reason: str | None = None
    has_new_payload: bool = False
    """A redrive with another payload than the job that it repeats."""


class Published(Struct, frozen=True):
    """The bus took the attempt's directive."""

    step_id: str
    attempt_no: int


class PublishFailed(Struct, frozen=True):
    """The bus refused this directive. (An unreachable bus is not a fact about a job.)"""

    step_id: str
    attempt_no: int
    reason: str


class PublishDeferred(Struct, frozen=True):
    """The bus, or the directive's topic, took nothing: the claim is released, and the attempt is not used up."""

    step_id: str
    attempt_no: int


class PublishHeld(Struct, frozen=True):
    """The directive was not given to the bus: its tenant has as many unacknowledged ones for its lane and service as it
    may."""

    step_id: str
    attempt_no: int


class DirectiveWithdrawn(Struct, frozen=True):
    """This attempt's directive was removed from the bus: no service has it, and none will get it."""

    step_id: str
    attempt_no: int


class DirectiveDied(Struct, frozen=True):
    """The bus has given up on this attempt's directive, and delivers it to nobody any more."""

    step_id: str
    attempt_no: int
    reason: str


class DispatchDue(Struct, frozen=True):
    """An outbox row was found unsent and unclaimed; `force` takes it up even if it is claimed, and tries a refused one
    again without waiting."""

    force: bool = False


class Acked(Struct, frozen=True):
    step_id: str
    attempt_no: int
    lease_id: str
    acked_by: str | None = None
    """The service instance, if it gives its name."""
    held_by: str | None = None
    """Another instance that was given the attempt before this one, though its ACK may arrive later."""
    status: str | None = None
    at: Instant | None = None
    """What the service says of it, and when it was by the service's clock; for the trail alone."""
    correlation_id: str | None = None


class HeartbeatSeen(Struct, frozen=True):
    step_id: str
    attempt_no: int
    lease_id: str
    progress: float | None = None
    note: str | None = None
    correlation_id: str | None = None


class Resulted(Struct, frozen=True):
    step_id: str
    attempt_no: int
    lease_id: str
    verdict: Verdict
    retryable: bool = True
    rate_limited_seconds: float | None = None
    """Set if the service was rate-limited: wait this long, and do not count the attempt."""
    artifacts: Raw = NULL
    output_ref: Raw = NULL
    error: Failure | None = None
    at: Instant | None = None
    """When the work was done, by the service's clock; for the trail alone."""
    correlation_id: str | None = None


class DeadlinePassed(Struct, frozen=True):
    """A hint: it counts only if `wake_at <= now` still holds. `still_queued`: the bus still has the directive."""

    still_queued: bool = False


class CancelAsked(Struct, frozen=True):
    by: str
    reason: str | None = None
    key: str | None = None
    """The caller's idempotency key for this operation."""


class ForceCancelAsked(Struct, frozen=True):
    """End the job now, without waiting for its live attempt."""

    by: str
    reason: str
    key: str | None = None


class PauseAsked(Struct, frozen=True):
    by: str
    key: str | None = None
    reason: str | None = None


class ResumeAsked(Struct, frozen=True):
    by: str
    key: str | None = None
    reason: str | None = None


Callback = Acked | HeartbeatSeen | Resulted
Operation = CancelAsked | ForceCancelAsked | PauseAsked | ResumeAsked
BusFact = Published | PublishFailed | PublishDeferred | PublishHeld | DirectiveWithdrawn | DirectiveDied
Input = Accepted | BusFact | DispatchDue | Callback | DeadlinePassed | Operation
