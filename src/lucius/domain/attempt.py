"""Attempts: one try at a step, bound to its own lease. An attempt and its outbox row are one and the same record."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Raw, Struct

from lucius.domain.time import Instant

NULL = Raw(b"null")
"""JSON's null: what a service left out."""


class DispatchStatus(StrEnum):
    """The outbox side of an attempt. Never changed once it has left PENDING."""

    PENDING = "PENDING"
    SENT = "SENT"
    FAILED_FINAL = "FAILED_FINAL"


class Verdict(StrEnum):
    """What a RESULT said. The first one applied ends its attempt."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class Failure(Struct, frozen=True):
    code: str
    message: str


class Attempt(Struct, frozen=True, kw_only=True):
    attempt_no: int
    lease_id: str
    created_at: Instant
    status: str
    """The status its step had last while this attempt was current."""
    dispatch: DispatchStatus = DispatchStatus.PENDING
    claimed_until: Instant
    """While this lies ahead, one process is publishing the directive; afterwards any may."""
    sent_at: Instant | None = None
    acked_at: Instant | None = None
    acked_by: str | None = None
    """The instance that has it: to any other that says its name, the attempt is stale."""
    ended_at: Instant | None = None
    verdict: Verdict | None = None
    error: Failure | None = None
