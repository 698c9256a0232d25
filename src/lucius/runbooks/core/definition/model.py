"""A parsed runbook: plain, checked data, with durations in seconds and defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from lucius.domain.notifications import WARN_BEFORE_SECONDS, Recipient
from lucius.runbooks.core.definition.calendar import Calendar

STEP_TIMEOUT_SECONDS = 3_600
APPROVAL_SECONDS = 7 * 86_400


class Retry(Struct, frozen=True):
    max_retries: int = 0
    interval_seconds: int = 60


class Poll(Struct, frozen=True):
    interval_seconds: int
    timeout_seconds: int


class Step(Struct, frozen=True, kw_only=True):
    name: str
    worker_id: str
    function: str
    """May contain templates, as may the values of `params` at any depth."""
    params: Mapping[str, Any] = {}
    output_params: Mapping[str, str] = {}
    """Variable, and the result field it takes its value from."""
    on_failure: str | None = None
    timeout_seconds: int = STEP_TIMEOUT_SECONDS
    poll: Poll | None = None
    retry: Retry = Retry()
    """The step's own retry, else the runbook's, else none."""


class Approval(Struct, frozen=True, kw_only=True):
    """Who has to agree before a phase begins."""

    role: Literal["operate", "admin"] = "operate"
    count: int = 1
    until_minutes: int | None = None
    """The deadline, in minutes before the batch's start; negative after it."""
    after_due_seconds: int = APPROVAL_SECONDS
    """The deadline, if `until_minutes` is None."""
    otherwise: Literal["fail", "skip", "run"] = "fail"


class Phase(Struct, frozen=True, kw_only=True):
    name: str
    offset_minutes: int
    """Minutes before the batch's start; negative after it."""
    approval: Approval | None = None
    steps: tuple[Step, ...]


class MultiValued(Struct, frozen=True):
    name: str
    format: Literal["semicolon_delimited", "comma_delimited", "json_array"]


class DataSource(Struct, frozen=True, kw_only=True):
    type: Literal["sql", "csv"]
    connection: str
    """The environment variable with the address: an SQLAlchemy URL, or the path of a CSV file."""
    query: str = ""
    primary_key: str
    batch_time_column: str | None = None
    """None: `batch_time: immediate`."""
    multi_valued: tuple[MultiValued, ...] = ()
    absence_seconds: int | None = None
    """How long a member must be missing before it is removed; None: the default from the settings."""


class FailureLimit(Struct, frozen=True):
    """How many members may fail in a phase: a number, or a share of those it was dispatched for."""

    count: int | None = None
    percent: float | None = None

    def is_exceeded(self, failed: int, members: int) -> bool:
        allowed = self.count if self.count is not None else members * (self.percent or 0.0) / 100
        return failed > allowed


class Notifications(Struct, frozen=True, kw_only=True):
    recipients: tuple[Recipient, ...] = ()
    deadline_seconds: int | None = None
    """How long after its start a batch should have ended; None: no deadline."""
    warn_before_seconds: int = WARN_BEFORE_SECONDS
    """How long before the deadline recipients are told, if the batch has not ended."""

    @property
    def warn_after_seconds(self) -> int | None:
        """How long after its start recipients are told of a batch that has not ended."""
        return None if self.deadline_seconds is None else max(self.deadline_seconds - self.warn_before_seconds, 0)


class Runbook(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    source: DataSource | None = None
    """None: all batches are created by operators."""
    primary_key: str
    progression: Literal["barrier", "independent"] = "barrier"
    max_parallel: int | None = None
    max_failures: FailureLimit | None = None
    calendar: Calendar = Calendar()
    """When work may start."""
    init: tuple[Step, ...] = ()
    phases: tuple[Phase, ...]
    """In the order of their due times; equal ones in the order of the text."""
    on_member_removed: tuple[Step, ...] = ()
    rollbacks: Mapping[str, tuple[Step, ...]] = {}
    notifications: Notifications = Notifications()

    def phase(self, name: str) -> Phase:
        return next(phase for phase in self.phases if phase.name == name)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, of every list."""
        lists = [self.init, *(phase.steps for phase in self.phases), self.on_member_removed, *self.rollbacks.values()]
        return tuple(step for steps in lists for step in steps)
