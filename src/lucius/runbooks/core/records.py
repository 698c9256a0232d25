"""Rows of the tables as data, for the state machines and the views."""

from __future__ import annotations

from msgspec import Struct

from lucius.domain.time import Instant

OK = "ok"
HELD = "held"
FAILED = "failed"
NEVER = "never_read"
"""Outcome of the last reading of a source."""

FROM_SOURCE = "source"
BY_HAND = "manual"
"""Origin of a batch or of a member's data."""


class RunbookRow(Struct, frozen=True):
    """A published version, as the scheduler needs it."""

    id: int
    name: str
    version: int
    data_table: str
    overdue_behavior: str
    rerun_init: bool
    ignore_overdue_applied: bool


class Batch(Struct):
    id: int
    runbook_id: int
    start: Instant
    status: str
    runbook_name: str
    origin: str
    advance: str
    held_at: Instant | None
    hold_reason: str | None
    error_message: str | None
    completed_at: Instant | None
    version: int
    data_table: str
    detected_at: Instant
    cancelled_at: Instant | None
    is_named: bool
    """Whether its row has the runbook's name, which a scheduler that knows only the contract does not write."""
    has_columns: bool
    """Whether the columns of its data table are known."""
    change_number: int
    """Of the newest change that was recorded of it."""
    wait_until: Instant | None
    """Set while ready steps wait for this time, at which they may be sent."""
    created_by: str | None
    """The scheduler, or who created it by hand; None in rows older than this column."""
    paused_at: Instant | None = None
    pause_reason: str | None = None
    """Who paused it, and why."""
    delay_millis: int = 0
    """How much later than `start` an operator has rescheduled it to; less than 0: earlier. `start` stays what it is:
    the date by which the source knows its members."""

    is_counted: bool = True
    """Whether `step_counts` holds for its steps; not since a program changed it that is older than that table."""
    is_cancelling: bool = False
    """It was cancelled, and has steps that are not cancelled yet; see `engine/cancelling.py`."""

    @property
    def starts_at(self) -> Instant:
        """The time that its phases are relative to."""
        return self.start + self.delay_millis

    @property
    def is_paused(self) -> bool:
        """Nothing new is sent or begun; see `dispatch` and `phases`."""
        return self.paused_at is not None


class Phase(Struct):
    id: int
    batch_id: int
    name: str
    offset_minutes: int
    due_at: Instant
    version: int
    status: str
    dispatched_at: Instant | None
    completed_at: Instant | None
    member_count: int | None
    barrier_index: int | None
    failures_forgiven: int
    error_message: str | None
    wait_until: Instant | None
    """Set while it is due and waits: the scheduler does not look at it before this time."""
    skip_cause: str | None


class Member(Struct):
    id: int
    batch_id: int
    key: str
    status: str
    failed_at: Instant | None
    added_at: Instant
    removed_at: Instant | None
    add_dispatched_at: Instant | None
    add_handled_at: Instant | None
    remove_dispatched_at: Instant | None
    remove_handled_at: Instant | None
    move_to: Instant | None
    """The date that the source asks for, although steps of the member were sent."""
    move_held_at: Instant | None
    """Set while nobody has decided about `move_to`."""

    @property
    def is_held(self) -> bool:
        return self.move_held_at is not None and self.status == "active"


class Absence(Struct, frozen=True):
    since: Instant
    """The first reading without the member."""
    removal_at: Instant
    """The first reading at or after this time that still lacks the member removes it."""


class Control(Struct, frozen=True):
    automation: bool = True
    source_state: str = NEVER
    source_detail: str | None = None
    source_count: int | None = None
    held_count: int | None = None
    confirmed_count: int | None = None
    checked_at: Instant | None = None


class Head(Struct):
    """The first step of a member that has not ended."""

    id: int
    member_id: int
    phase_id: int
    step_index: int
    status: str
    catching_up: bool


class PhaseProgress(Struct, frozen=True):
    """Progress of a phase."""

    phase_id: int
    lowest: int | None
    """The lowest open step, ignoring members that are catching up."""
    catching_up: int | None
    """An open step of a member that is catching up."""


class Version(Struct, frozen=True):
    """A version of a runbook, for display."""

    version: int
    is_active: bool
    overdue_behavior: str
    rerun_init: bool
    created_at: Instant
    created_by: str


class RunbookLine(Struct, frozen=True):
    """The newest version of a runbook, for a list."""

    name: str
    version: int
    is_active: bool
    overdue_behavior: str
    rerun_init: bool
    created_at: Instant
    created_by: str
    automation: bool | None
    source_state: str | None
    source_detail: str | None
    source_count: int | None
    checked_at: Instant | None
    open_batches: int


class TrailEntry(Struct, frozen=True):
    """An event of the audit trail, for display."""

    id: int
    at: Instant
    kind: str
    actor: str
    batch_id: int | None
    member: str | None
    detail: str
