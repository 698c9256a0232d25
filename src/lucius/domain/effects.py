"""The parts of a decision: effects instruct the engine, events are history, the outcome answers the caller."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from lucius.domain.job import Job
from lucius.domain.time import Instant


class PublishDirective(Struct, frozen=True):
    """Publish the directive of this step's current attempt."""

    step_index: int


class SettleDirective(Struct, frozen=True):
    """The directive of this attempt has reached a service, or its attempt is over: it must not be delivered again."""

    step_index: int
    attempt_no: int


class CallWebhook(Struct, frozen=True):
    """The job has ended; notify its client."""

    url: str


Effect = PublishDirective | SettleDirective | CallWebhook


class Event(Struct, frozen=True):
    """One line of the audit trail, numbered per job."""

    seq: int
    at: Instant
    type: str
    step_id: str | None = None
    attempt_no: int | None = None
    data: dict[str, Any] = {}


class Outcome(StrEnum):
    APPLIED = "APPLIED"
    DUPLICATE = "DUPLICATE"
    LATE = "LATE"
    IGNORED = "IGNORED"
    RECEIVED = "RECEIVED"  # stored, and decided later: the audit trail records the outcome
    STALE_ATTEMPT = "STALE_ATTEMPT"
    JOB_TERMINAL = "JOB_TERMINAL"
    STEP_NOT_FOUND = "STEP_NOT_FOUND"
    CONFLICT = "CONFLICT"


class Decision(Struct, frozen=True):
    job: Job
    events: tuple[Event, ...]
    effects: tuple[Effect, ...]
    outcome: Outcome = Outcome.APPLIED
