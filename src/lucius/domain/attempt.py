"""Attempts: one try at a step, bound to its own lease. An attempt and its outbox row are the same record."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Raw, Struct

from lucius.domain.time import Instant

NULL = Raw(b"null")
"""JSON null: the service sent no value."""


class DispatchStatus(StrEnum):
    """The outbox side of an attempt. Never changed once it has left PENDING."""

    PENDING = "PENDING"
    SENT = "SENT"
    FAILED_FINAL = "FAILED_FINAL"


class Verdict(StrEnum):
    """The outcome that a RESULT reports. The first RESULT applied ends its attempt."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class Frame(Struct, frozen=True):
    """Where a service's exception passed through."""

    file: str
    line: int
    function: str


class Failure(Struct, frozen=True, omit_defaults=True):
    code: str
    message: str
    frames: tuple[Frame, ...] = ()
    """Where it was raised, the innermost last; empty if the service does not say."""
    instance: str | None = None
    """The service instance that ran the attempt."""


class Attempt(Struct, frozen=True, kw_only=True):
    attempt_no: int
    lease_id: str
    created_at: Instant
    status: str
    """The last status of its step while this attempt was current."""
    dispatch: DispatchStatus = DispatchStatus.PENDING
    claimed_until: Instant
    """Until then one process is publishing the directive; afterwards any process may."""
    sent_at: Instant | None = None
    acked_at: Instant | None = None
    acked_by: str | None = None
    """The service instance that has it; for any other instance that gives its name, the attempt is stale."""
    ended_at: Instant | None = None
    verdict: Verdict | None = None
    error: Failure | None = None
    is_held: bool = False
    """Whether it waits to be published until its tenant has fewer unacknowledged directives for its lane and service.
    Nobody claims it meanwhile, and no clock runs but the job's deadline."""
