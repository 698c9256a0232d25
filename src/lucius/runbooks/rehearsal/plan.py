"""What a runbook will do, for which members and when, derived from its text and the members alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.core.definition.calendar import Freeze
from lucius.runbooks.core.definition.compare import approval_text
from lucius.runbooks.core.definition.durations import show_offset
from lucius.runbooks.core.definition.model import Runbook, Step
from lucius.runbooks.core.definition.reading import RunbookInvalid, read_runbook
from lucius.runbooks.core.definition.templates import BATCH_ID, BATCH_START_TIME, UnknownVariable, finish, resolve
from lucius.runbooks.core.definition.variables import known_outputs
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.source_members import Members
from lucius.runbooks.rehearsal.members import by_start
from lucius.runbooks.rehearsal.windows import Window, step_worst_seconds, steps_worst_seconds, windows

FAULTS_SHOWN_MAX = 100


class StepPlan(Struct, frozen=True, kw_only=True):
    step: str
    worker_id: str
    function: str
    timeout_seconds: int
    max_retries: int
    retry_interval_seconds: int
    poll_interval_seconds: int | None
    poll_timeout_seconds: int | None
    on_failure: str | None
    worst_seconds: int


class PhasePlan(Struct, frozen=True, kw_only=True):
    phase: str
    offset: str
    due_at: Instant
    begins_at: Instant
    """When it is due, or when windows and freezes allow it."""
    waits_because: str | None
    """Why it begins later than it is due."""
    approval: str | None
    """Which approvals it needs before that, in words."""
    away_seconds: int
    """Negative if it is overdue."""
    is_overdue: bool
    steps: tuple[StepPlan, ...]
    worst_seconds: int
    """How long it takes if everything times out."""
    window_seconds: int | None
    until: str | None
    """What follows and ends the window."""
    is_too_short: bool


class BatchPlan(Struct, frozen=True, kw_only=True):
    start: Instant
    members: int
    init: tuple[StepPlan, ...]
    """Runs when the batch is created; its phases wait for it."""
    init_worst_seconds: int
    phases: tuple[PhasePlan, ...]


class MemberStep(Struct, frozen=True, kw_only=True):
    phase: str
    step: str
    worker_id: str
    function: str
    params: Mapping[str, Any]
    """Values that are filled in later are shown as `{{Name}}`."""
    waits_for: tuple[str, ...]
    fault: str | None = None


class MemberPlan(Struct, frozen=True, kw_only=True):
    member: str
    batch_start: Instant
    steps: tuple[MemberStep, ...]


class RehearsalPlan(Struct, frozen=True, kw_only=True):
    runbook: str
    now: Instant
    progression: str
    max_parallel: int | None
    members: int
    batches: tuple[BatchPlan, ...]
    shown: tuple[MemberPlan, ...]
    faults: tuple[str, ...]
    """Faults: variables without a value, unusable rows. At most a hundred."""


def make_plan(
    content: bytes,
    members: Members,
    start: Instant | None,
    now: Instant,
    keys: Sequence[str] = (),
    limit: int = 3,
    of_files: Sequence[Freeze] = (),
) -> RehearsalPlan:
    """`keys` are the members to show in full; without them the first `limit`. Raises `RunbookInvalid`."""
    runbook = read_runbook(content, of_files=of_files)
    starts = by_start(members, start)
    start_of = {key: moment for moment, batch in starts.items() for key in batch}
    chosen = [key for key in keys if key in start_of] if keys else list(start_of)[:limit]
    missing = [f"there is no member {key} in the CSV" for key in keys if key not in start_of]
    faults = [*missing, *_column_faults(content, members), *_row_faults(members)]
    return RehearsalPlan(
        runbook=runbook.name,
        now=now,
        progression=runbook.progression,
        max_parallel=runbook.max_parallel,
        members=len(members.members),
        batches=tuple(plan_batch(runbook, moment, len(batch), now) for moment, batch in starts.items()),
        shown=tuple(_member(runbook, members, key, start_of[key]) for key in chosen),
        faults=tuple(faults[:FAULTS_SHOWN_MAX]),
    )


def _column_faults(content: bytes, members: Members) -> list[str]:
    """Faults of the runbook that depend on the actual columns."""
    try:
        read_runbook(content, members.columns)
    except RunbookInvalid as error:
        return [str(fault) for fault in error.faults]
    return []


def _row_faults(members: Members) -> list[str]:
    found = [f"{one.place}{f' ({one.key})' if one.key else ''}: {one.message}" for one in members.faults]
    more = members.fault_count - len(found)
    return [*found, *([f"{more} more rows cannot be used"] if more > 0 else [])]


# --- Batches ---------------------------------------------------------------------------------------------------------


def plan_batch(runbook: Runbook, start: Instant, members: int, now: Instant) -> BatchPlan:
    return BatchPlan(
        start=start,
        members=members,
        init=tuple(_step(step, 1, None) for step in runbook.init),
        init_worst_seconds=steps_worst_seconds(runbook, runbook.init),
        phases=tuple(_phase(runbook, window, members, now) for window in windows(runbook, start)),
    )


def _phase(runbook: Runbook, window: Window, members: int, now: Instant) -> PhasePlan:
    steps = window.phase.steps
    worst = steps_worst_seconds(runbook, steps, members, runbook.max_parallel)
    wait = runbook.calendar.wait(window.due_at)
    approval = window.phase.approval
    begins_at = window.due_at if wait is None else wait.until_at
    has_seconds = window.seconds_from(begins_at)
    return PhasePlan(
        phase=window.phase.name,
        offset=show_offset(window.phase.offset_minutes),
        due_at=window.due_at,
        begins_at=begins_at,
        approval=None if approval is None else approval_text(approval),
        waits_because=None if wait is None else wait.because,
        away_seconds=(window.due_at - now) // 1000,
        is_overdue=window.due_at < now,
        steps=tuple(_step(step, members, runbook.max_parallel) for step in steps),
        worst_seconds=worst,
        window_seconds=has_seconds,
        until=window.until,
        is_too_short=has_seconds is not None and worst > has_seconds,
    )


def _step(step: Step, members: int, max_parallel: int | None) -> StepPlan:
    return StepPlan(
        step=step.name,
        worker_id=step.worker_id,
        function=step.function,
        timeout_seconds=step.timeout_seconds,
        max_retries=step.retry.max_retries,
        retry_interval_seconds=step.retry.interval_seconds,
        poll_interval_seconds=step.poll.interval_seconds if step.poll else None,
        poll_timeout_seconds=step.poll.timeout_seconds if step.poll else None,
        on_failure=step.on_failure,
        worst_seconds=step_worst_seconds(step, members, max_parallel),
    )


# --- Members ---------------------------------------------------------------------------------------------------------


def _member(runbook: Runbook, members: Members, key: str, start: Instant) -> MemberPlan:
    several = {column.name for column in runbook.source.multi_valued} if runbook.source else set()
    row = {
        column: msgspec.json.decode(value) if column in several and value is not None else value
        for column, value in zip(members.columns, members.members[key].values, strict=True)
    }
    steps = [
        _member_step(step, phase.name, row, start, known_outputs(runbook, "step", phase.name, index))
        for phase in runbook.phases
        for index, step in enumerate(phase.steps)
    ]
    return MemberPlan(member=key, batch_start=start, steps=tuple(steps))


def _member_step(step: Step, phase: str, row: Mapping[str, Any], start: Instant, outputs: frozenset[str]) -> MemberStep:
    # The batch has no number before it is created, so that variable is filled in later as well.
    specials, later = {BATCH_START_TIME: utc(start)}, outputs | {BATCH_ID}
    try:
        resolved = resolve(step, row, specials, later)
    except UnknownVariable as error:
        return MemberStep(
            phase=phase, step=step.name, worker_id=step.worker_id, function=step.function, params={}, waits_for=(),
            fault=str(error),
        )  # fmt: skip
    parts = [part["var"] for place in (resolved.late or {}).values() for part in place if "var" in part]
    waits_for = tuple(dict.fromkeys(parts))
    shown = {name: f"{{{{{name}}}}}" for name in waits_for}
    function, params = finish(resolved.function, resolved.params, resolved.late, shown)
    return MemberStep(
        phase=phase, step=step.name, worker_id=step.worker_id, function=function, params=params, waits_for=waits_for
    )
