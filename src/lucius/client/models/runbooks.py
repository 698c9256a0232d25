"""Runbooks and batches as the API shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lucius.client.models.decoding import Model
from lucius.client.statuses import BATCH_ENDED


@dataclass(frozen=True, kw_only=True)
class RunbookVersion(Model):
    version: int
    is_active: bool = False
    created_at: datetime | None = None
    created_by: str | None = None
    overdue_behavior: str = ""
    rerun_init: bool = False


@dataclass(frozen=True, kw_only=True)
class Runbook(Model):
    name: str
    tenant: str | None = None
    """Whose it is; `None`: the operator's."""
    version: int
    is_active: bool = False
    automation: bool = True
    source: dict[str, Any] | None = None
    open_batches: int | None = None
    """Only in a list."""
    yaml: str | None = None
    """Like `versions`, only in the answer of `get`."""
    versions: list[RunbookVersion] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Published(Model):
    name: str
    version: int
    published: bool = False
    """False if the active version already has the same text."""
    unchecked: str | None = None
    """Why the variables were not compared with the source's columns; `None` if they were."""
    missing_connection: str | None = None
    """The runbook's connection, if the server has no address for it."""


@dataclass(frozen=True, kw_only=True)
class LineFault(Model):
    message: str
    line: int | None = None
    pointer: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunbookValidation(Model):
    valid: bool
    name: str | None = None
    faults: list[LineFault] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RunbookEvent(Model):
    """One event of the audit trail of a runbook or a batch."""

    id: int
    at: datetime
    kind: str
    actor: str | None = None
    batch_id: int | None = None
    member: str | None = None
    detail: Any = None


@dataclass(frozen=True, kw_only=True)
class CreatedBatch(Model):
    batch_id: int
    runbook: str
    version: int
    members: int = 0


@dataclass(frozen=True, kw_only=True)
class Batch(Model):
    batch_id: int
    runbook: str
    status: str
    verdict: str | None = None
    """How it ended: `completed`, `completed_with_failures`, `cancelled` or `failed`; `None` while it is open."""
    version: int = 0
    start: datetime | None = None
    origin: str = ""
    advance: str = ""
    starts_at: datetime | None = None
    """`start`, or the time that it was rescheduled to."""
    held_at: datetime | None = None
    hold_reason: str | None = None
    paused_at: datetime | None = None
    pause_reason: str | None = None
    error: str | None = None
    detected_at: datetime | None = None
    completed_at: datetime | None = None
    members: dict[str, Any] = field(default_factory=dict)
    """How many are `active`, `removed`, `failed` and `held`."""
    phases: dict[str, Any] = field(default_factory=dict)
    """How many are in each state."""
    phase_list: list[dict[str, Any]] = field(default_factory=list)
    """Like `waiting_for`, only in the answers of `get` and `wait`."""
    waiting_for: list[str] = field(default_factory=list)
    source: dict[str, Any] | None = None
    """The last reading of the runbook's source: `state`, `detail`, `members`, `checked_at`; only in `get`."""
    unsuccessful: dict[str, Any] = field(default_factory=dict)
    """Members with a step that did not succeed: `count`, and the first `members` with that step."""
    behind: list[dict[str, Any]] = field(default_factory=list)
    """For each running phase, the lowest `step` that members have not ended, and who has been at it for longest."""

    @property
    def has_ended(self) -> bool:
        return self.status in BATCH_ENDED


@dataclass(frozen=True, kw_only=True)
class MemberStep(Model):
    step: str
    status: str
    phase: str | None = None
    attempts: int = 0
    error: str | None = None
    dispatched_at: datetime | None = None
    completed_at: datetime | None = None
    result: Any = None


@dataclass(frozen=True, kw_only=True)
class Member(Model):
    member: str
    status: str
    member_id: int | None = None
    failed_at: datetime | None = None
    added_at: datetime | None = None
    removed_at: datetime | None = None
    move_to: datetime | None = None
    """The date that the source has moved the member to, although steps of it were sent."""
    move_held_at: datetime | None = None
    """Since when it is held because of that; `None` once somebody has decided."""
    row: dict[str, Any] | None = None
    """Its columns as last read; only if the list was asked for one key."""
    steps: list[MemberStep] = field(default_factory=list)
    followups: list[dict[str, Any]] = field(default_factory=list)
    """Steps of rollbacks and removals."""
    waiting_for: str | None = None
