"""Builds the report of a rehearsal from its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from lucius.ports.database import Script
from lucius.runbooks.core.definition.calendar import Wait
from lucius.runbooks.core.definition.compare import approval_text
from lucius.runbooks.core.definition.durations import show_offset
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.records import Batch, Phase
from lucius.runbooks.core.states import (
    BECAUSE_LIMIT,
    CANCELLED,
    FAILED,
    FAILURES,
    OPEN_STATUSES,
    PENDING,
    POLL_TIMEOUT,
    ROLLED_BACK,
)
from lucius.runbooks.core.verdicts import verdict
from lucius.runbooks.rehearsal.report import BatchLine, Hold, Miss, PhaseLine, StepLine
from lucius.runbooks.rehearsal.windows import Window, windows
from lucius.runbooks.store import batches, members, rehearsals, verdicts
from lucius.runbooks.store import phases as store_phases
from lucius.runbooks.store.rehearsals import StepRow


class Found(Struct):
    batches: list[BatchLine]
    misses: list[Miss]
    holds: list[Hold]
    retries: int = 0
    polls: int = 0
    rollback_jobs: int = 0


def gather(runbook: Runbook) -> Script[Found]:
    found = Found([], [], [])
    for batch in (yield from batches.every()):
        yield from _gather_batch(runbook, batch, found)
    totals = yield from rehearsals.totals()
    found.retries, found.polls, found.rollback_jobs = totals.retries, totals.polls, totals.rollback_jobs
    return found


def _gather_batch(runbook: Runbook, batch: Batch, found: Found) -> Script[None]:
    keys = {member.id: member.key for member in (yield from members.every(batch.id))}
    init = yield from rehearsals.steps_of_init(batch.id)
    phases = yield from store_phases.of_batch(batch.id)
    of_phase = {window.phase.name: window for window in windows(runbook, batch.start)}
    lines, stopped = [], []
    for phase in phases:
        rows = yield from rehearsals.steps_of_phase(phase.id)
        line, misses = _phase(batch, phase, of_phase[phase.name], rows, keys, runbook.calendar.wait(phase.due_at))
        lines.append(line)
        found.misses += misses
        failed = {row.member_id for row in rows if row.status in FAILURES}
        stopped += [row for row in rows if row.cancel_cause == BECAUSE_LIMIT and row.member_id not in failed]
    if batch.held_at is not None:
        waiting = tuple(phase.name for phase in phases if phase.status == PENDING)
        found.holds.append(_hold(batch, stopped, waiting))
    if not any(phase.dispatched_at for phase in phases) and batch.error_message:
        first = runbook.phases[0].name
        found.misses += [
            Miss(member=key, batch_start=batch.start, phase=first, step="", what="never begun", late_seconds=None,
                 reason=batch.error_message)
            for key in keys.values()
        ]  # fmt: skip
    has_begun = batch.id not in (yield from verdicts.stopped_early([batch.id])) and any(
        line.status == FAILED for line in lines
    )
    unsuccessful = (yield from verdicts.unsuccessful_counts([batch.id])).get(batch.id, 0)
    ending = verdict(batch, has_begun, len(keys), unsuccessful)
    found.batches.append(
        BatchLine(
            start=batch.start,
            members=len(keys),
            status="held" if batch.held_at is not None else ending or batch.status,
            error=batch.hold_reason or batch.error_message,
            ended_at=batch.completed_at,
            init=_step_lines(init),
            phases=tuple(lines),
        )
    )


def _hold(batch: Batch, stopped: Sequence[StepRow], waiting: tuple[str, ...]) -> Hold:
    return Hold(
        batch_start=batch.start,
        held_at=batch.held_at or 0,
        reason=batch.hold_reason or "",
        members_stopped=len({row.member_id for row in stopped}),
        steps_cancelled=len(stopped),
        phases_waiting=waiting,
    )


def _phase(
    batch: Batch, phase: Phase, window: Window, rows: Sequence[StepRow], keys: dict[int, str], wait: Wait | None
) -> tuple[PhaseLine, list[Miss]]:
    of_member: dict[int, list[StepRow]] = {}
    for row in rows:
        of_member.setdefault(row.member_id, []).append(row)
    outcomes = {"done": 0, "failed": 0, "rolled_back": 0, "cancelled": 0, "unfinished": 0}
    misses = []
    for member_id, steps in of_member.items():
        outcomes[_member_outcome(steps)] += 1
        miss = _miss(batch, window, keys[member_id], steps)
        misses += [] if miss is None else [miss]
    line = PhaseLine(
        phase=phase.name,
        offset=show_offset(phase.offset_minutes),
        due_at=phase.due_at,
        until_at=window.until_at,
        until=window.until,
        status=phase.status,
        began_at=phase.dispatched_at,
        ended_at=phase.completed_at,
        approval=None if window.phase.approval is None else approval_text(window.phase.approval),
        waits_because=None if wait is None else wait.because,
        **outcomes,
        late=sum(miss.what == "late" for miss in misses),
        steps=_step_lines(rows),
    )
    return line, misses


def _member_outcome(steps: Sequence[StepRow]) -> str:
    statuses = {step.status for step in steps}
    if ROLLED_BACK in statuses:
        return "rolled_back"
    if statuses & {FAILED, POLL_TIMEOUT}:
        return "failed"
    if statuses & OPEN_STATUSES:
        return "unfinished"
    return "cancelled" if CANCELLED in statuses else "done"


def _miss(batch: Batch, window: Window, key: str, steps: Sequence[StepRow]) -> Miss | None:
    """Why this member does not finish this phase in time; None if it does, or had stopped before."""

    def miss(
        step: StepRow, what: Literal["late", "failed", "rolled back", "stopped"], reason: str, late: int | None
    ) -> Miss:
        return Miss(
            member=key, batch_start=batch.start, phase=window.phase.name, step=step.name, what=what, reason=reason,
            late_seconds=late,
        )  # fmt: skip

    failed = next((step for step in steps if step.status in FAILURES), None)
    if failed is not None:
        return miss(failed, "rolled back" if failed.status == ROLLED_BACK else "failed", failed.error or "", None)
    stopped = next((step for step in steps if step.cancel_cause == BECAUSE_LIMIT), None)
    if stopped is not None:
        return miss(stopped, "stopped", "max_failures held the batch in this phase", None)
    until = window.until_at
    late = [step for step in steps if step.status != CANCELLED and until and (step.completed_at or until + 1) > until]
    if not late or until is None:
        return None
    first, ends = late[0], [step.completed_at for step in late if step.completed_at is not None]
    was_out = first.dispatched_at is not None and first.dispatched_at <= until
    reason = f"{'was still running' if was_out else 'was not sent yet'} at {window.until}"
    return miss(first, "late", reason, (max(ends) - until) // 1000 if len(ends) == len(late) else None)


def _step_lines(rows: Sequence[StepRow]) -> tuple[StepLine, ...]:
    lines: dict[int, list[StepRow]] = {}
    for row in rows:
        lines.setdefault(row.index, []).append(row)
    return tuple(_step_line(lines[index]) for index in sorted(lines))


def _step_line(rows: Sequence[StepRow]) -> StepLine:
    began: list[Any] = [row.dispatched_at for row in rows if row.dispatched_at is not None]
    ended: list[Any] = [row.completed_at for row in rows if row.dispatched_at is not None and row.completed_at]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    return StepLine(
        step=rows[0].name,
        began_at=min(began, default=None),
        ended_at=max(ended, default=None),
        counts=dict(sorted(counts.items())),
    )
