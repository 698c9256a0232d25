"""A runbook as read: plain data, checked, with every duration in seconds and every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

STEP_TIMEOUT_SECONDS = 3_600


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
    """May hold templates, as the values of `params` may at any depth."""
    params: Mapping[str, Any] = {}
    output_params: Mapping[str, str] = {}
    """Variable, and the field of the result that it takes its value from."""
    on_failure: str | None = None
    timeout_seconds: int = STEP_TIMEOUT_SECONDS
    poll: Poll | None = None
    retry: Retry = Retry()
    """The step's own, or the runbook's, or none."""


class Phase(Struct, frozen=True, kw_only=True):
    name: str
    offset_minutes: int
    """Minutes before the batch's start; negative ones come after it."""
    steps: tuple[Step, ...]


class MultiValued(Struct, frozen=True):
    name: str
    format: Literal["semicolon_delimited", "comma_delimited", "json_array"]


class DataSource(Struct, frozen=True, kw_only=True):
    type: Literal["sql", "csv"]
    connection: str
    """The environment variable that holds the address: an SQLAlchemy URL, or the path of a CSV file."""
    query: str = ""
    primary_key: str
    batch_time_column: str | None = None
    """None: `batch_time: immediate`."""
    multi_valued: tuple[MultiValued, ...] = ()


class FailureLimit(Struct, frozen=True):
    """How many members may fail in a phase: a number, or a share of those it was dispatched for."""

    count: int | None = None
    percent: float | None = None

    def is_exceeded(self, failed: int, members: int) -> bool:
        allowed = self.count if self.count is not None else members * (self.percent or 0.0) / 100
        return failed > allowed


class Runbook(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    source: DataSource | None = None
    """None: batches are made by hand alone."""
    primary_key: str
    progression: Literal["barrier", "independent"] = "barrier"
    max_parallel: int | None = None
    max_failures: FailureLimit | None = None
    init: tuple[Step, ...] = ()
    phases: tuple[Phase, ...]
    """In the order of their moments; those of one moment in the order of the text."""
    on_member_removed: tuple[Step, ...] = ()
    rollbacks: Mapping[str, tuple[Step, ...]] = {}

    def phase(self, name: str) -> Phase:
        return next(phase for phase in self.phases if phase.name == name)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step there is, wherever it stands."""
        lists = [self.init, *(phase.steps for phase in self.phases), self.on_member_removed, *self.rollbacks.values()]
        return tuple(step for steps in lists for step in steps)
