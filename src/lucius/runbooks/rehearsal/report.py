"""The report of a rehearsal: the timeline, members that miss a window and why, and the load of the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.core.messages import utc
from lucius.runbooks.rehearsal.behaviour import Behaviour
from lucius.runbooks.rehearsal.pool import Busiest, Busy


class StepLine(Struct, frozen=True, kw_only=True):
    """One step for all members of the phase: with a barrier, the time between two barriers."""

    step: str
    began_at: Instant | None
    ended_at: Instant | None
    counts: Mapping[str, int]
    """Status, and the number of members that reached it."""


class PhaseLine(Struct, frozen=True, kw_only=True):
    phase: str
    offset: str
    due_at: Instant
    until_at: Instant | None
    until: str | None
    status: str
    began_at: Instant | None
    ended_at: Instant | None
    waits_because: str | None
    """Why it could not begin when it was due."""
    approval: str | None
    """Which approvals it needs, in words. A rehearsal takes them as given in time."""
    done: int
    failed: int
    rolled_back: int
    cancelled: int
    unfinished: int
    late: int
    """Members whose steps had not all ended when the window closed, without failed ones."""
    steps: tuple[StepLine, ...]


class BatchLine(Struct, frozen=True, kw_only=True):
    start: Instant
    members: int
    status: str
    error: str | None
    ended_at: Instant | None
    init: tuple[StepLine, ...]
    phases: tuple[PhaseLine, ...]


class Miss(Struct, frozen=True, kw_only=True):
    """A member that does not finish a phase in time."""

    member: str
    batch_start: Instant
    phase: str
    step: str
    what: Literal["late", "failed", "rolled back", "stopped", "never begun"]
    late_seconds: int | None
    reason: str


class Hold(Struct, frozen=True, kw_only=True):
    """`max_failures` was exceeded: what that stopped until an operator resumes or cancels."""

    batch_start: Instant
    held_at: Instant
    reason: str
    members_stopped: int
    """Members without a failure that were stopped in the phase."""
    steps_cancelled: int
    phases_waiting: tuple[str, ...]


class Report(Struct, frozen=True, kw_only=True):
    runbook: str
    seed: int
    behaviour: Behaviour
    members: int
    begins_at: Instant
    ends_at: Instant
    grain_seconds: float
    """Events closer together than this were handled as one: the timeline is accurate to this much per step."""
    batches: tuple[BatchLine, ...]
    misses: tuple[Miss, ...]
    holds: tuple[Hold, ...]
    jobs: Mapping[str, int]
    """Jobs sent and their outcomes, including retries and polls."""
    busiest: Busiest
    workers: tuple[Busy, ...]
    faults: tuple[str, ...] = ()
    """Rows of the CSV that were left out."""

    @property
    def members_missing(self) -> int:
        """How many members miss at least one window."""
        return len({(miss.batch_start, miss.member) for miss in self.misses})


def to_json(found: Any) -> Any:
    """The data of a plan or report for programs: times as text, durations as numbers."""
    return _dated(msgspec.to_builtins(found))


def _dated(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _dated(member, key) for key, member in value.items() if key != "params"} | (
            {"params": value["params"]} if "params" in value else {}
        )
    if isinstance(value, list | tuple):
        return [_dated(item, name) for item in value]
    is_moment = name.endswith("_at") or name in ("start", "batch_start", "now")
    return utc(value) if is_moment and isinstance(value, int) else value
