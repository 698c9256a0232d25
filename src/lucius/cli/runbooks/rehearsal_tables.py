"""Renders plans and rehearsal reports as tables and sentences. Pure: the time is an argument."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lucius.cli.output.formatting import counted, duration_text, text_of
from lucius.cli.output.tables import Column, Table
from lucius.domain.time import iso

if TYPE_CHECKING:
    from lucius.runbooks.rehearsal.behaviour import Behaviour
    from lucius.runbooks.rehearsal.plan import BatchPlan, MemberPlan, PhasePlan, RehearsalPlan, StepPlan
    from lucius.runbooks.rehearsal.pool import Busiest
    from lucius.runbooks.rehearsal.report import BatchLine, Hold, Miss, PhaseLine, Report, StepLine

PHASE_COLUMNS = (
    Column("Phase"),
    Column("Offset", dispensable=3),
    Column("Due"),
    Column("When"),
    Column("Steps", dispensable=4),
    Column("At worst"),
    Column("Window"),
    Column("Until", dispensable=2),
)
STEP_COLUMNS = (
    Column("Step"),
    Column("Worker", dispensable=2),
    Column("Function"),
    Column("Timeout"),
    Column("Retries", dispensable=1),
    Column("Poll"),
    Column("At worst"),
    Column("On failure", dispensable=3),
)
TIMELINE_COLUMNS = (
    Column("Phase"),
    Column("Due", dispensable=1),
    Column("Began"),
    Column("Ended"),
    Column("Window", dispensable=2),
    Column("Done"),
    Column("Failed"),
    Column("Rolled back", dispensable=3),
    Column("Cancelled", dispensable=4),
    Column("Late"),
)
MISS_COLUMNS = (
    Column("Member"),
    Column("Batch", dispensable=2),
    Column("Phase"),
    Column("Step"),
    Column("What"),
    Column("Late by", dispensable=1),
)
WORKER_COLUMNS = (
    Column("Worker"),
    Column("Slots"),
    Column("Jobs"),
    Column("Most at once"),
    Column("Longest queue"),
    Column("At", dispensable=1),
    Column("Longest wait"),
)


def at_text(instant: int | None) -> str:
    return "" if instant is None else iso(instant)[:19].replace("T", " ").removesuffix(":00")


def span_text(seconds: float | None) -> str:
    """A planned duration: `2 h`, `3 d 4 h`; trailing zeros are left out."""
    if seconds is None:
        return ""
    text = duration_text(seconds) if seconds >= 60 else f"{seconds:g} s"
    for zero in (" 0 h", " 00 min", " 00 s"):
        text = text.removesuffix(zero)
    return text


def number(count: int) -> str:
    return f"{count:,}"


def members_text(count: int) -> str:
    return f"{number(count)} member{'' if count == 1 else 's'}"


# --- Plan ------------------------------------------------------------------------------------------------------------


def plan_facts(plan: RehearsalPlan) -> list[tuple[str, str]]:
    facts = [
        ("Runbook", text_of(plan.runbook)),
        ("Members", f"{number(plan.members)} in {counted(len(plan.batches), 'batch', 'batches')}"),
        ("As of", f"{at_text(plan.now)} UTC"),
        ("Progression", plan.progression),
    ]
    return facts + ([("In flight", f"at most {plan.max_parallel} steps of a batch")] if plan.max_parallel else [])


def batch_title(batch: BatchPlan | BatchLine) -> str:
    return f"Batch that starts at {at_text(batch.start)} UTC, {members_text(batch.members)}"


def phase_table(batch: BatchPlan) -> Table:
    rows = []
    if batch.init:
        worst = span_text(batch.init_worst_seconds)
        rows.append(("init", "", "with the batch", "", str(len(batch.init)), worst, "", ""))
    for phase in batch.phases:
        away = span_text(abs(phase.away_seconds))
        window = span_text(phase.window_seconds) or "open"
        rows.append(
            (
                text_of(phase.phase), phase.offset, at_text(phase.due_at),
                f"overdue by {away}" if phase.is_overdue else f"in {away}", str(len(phase.steps)),
                span_text(phase.worst_seconds), f"{window}: too short" if phase.is_too_short else window,
                text_of(phase.until),
            )
        )  # fmt: skip
    return Table(PHASE_COLUMNS, rows)


def window_sentences(batches: Sequence[BatchPlan]) -> list[str]:
    """The windows that are too short."""

    def sentence(phase: PhasePlan) -> str | None:
        if not phase.is_too_short:
            return None
        return (
            f"Phase {text_of(phase.phase)} may take {span_text(phase.worst_seconds)} if everything times out, and has "
            f"{span_text(phase.window_seconds)} until {text_of(phase.until)}."
        )

    return _each_once(sentence(phase) for batch in batches for phase in batch.phases)


def planned_waits(batches: Sequence[BatchPlan]) -> list[str]:
    """The phases that begin later than they are due, because of windows or freezes."""
    return _each_once(_wait_sentence(phase, phase.begins_at) for batch in batches for phase in batch.phases)


def rehearsed_waits(batches: Sequence[BatchLine]) -> list[str]:
    return _each_once(_wait_sentence(phase, phase.began_at) for batch in batches for phase in batch.phases)


def approval_sentences(batches: Sequence[BatchPlan] | Sequence[BatchLine]) -> list[str]:
    """The phases that need approval."""
    phases = [phase for batch in batches for phase in batch.phases]
    return _each_once(
        f"Phase {text_of(phase.phase)} needs {phase.approval}." if phase.approval else None for phase in phases
    )


def _wait_sentence(phase: PhasePlan | PhaseLine, begins_at: int | None) -> str | None:
    if phase.waits_because is None:
        return None
    begins = "does not begin" if begins_at is None else f"begins at {at_text(begins_at)}"
    return f"Phase {text_of(phase.phase)}, due at {at_text(phase.due_at)}, {begins}: {text_of(phase.waits_because)}."


def _each_once(sentences: Iterable[str | None]) -> list[str]:
    """Batches have the same phases."""
    return list(dict.fromkeys(sentence for sentence in sentences if sentence is not None))


def step_table(batch: BatchPlan) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, steps in [("init", batch.init), *((phase.phase, phase.steps) for phase in batch.phases)]:
        if steps:
            rows.append((text_of(name), *[""] * 7))
        rows += [_step_row(step) for step in steps]
    return Table(STEP_COLUMNS, rows)


def _step_row(step: StepPlan) -> tuple[str, ...]:
    retries = f"{step.max_retries} after {span_text(step.retry_interval_seconds)}" if step.max_retries else "none"
    poll = ""
    if step.poll_interval_seconds is not None:
        poll = f"{span_text(step.poll_interval_seconds)} for {span_text(step.poll_timeout_seconds)}"
    return (
        f"  {text_of(step.step)}", text_of(step.worker_id), text_of(step.function), span_text(step.timeout_seconds),
        retries, poll, span_text(step.worst_seconds), text_of(step.on_failure),
    )  # fmt: skip


def member_table(member: MemberPlan) -> Table:
    rows, notes = [], []
    for step in member.steps:
        later = ", ".join(step.waits_for)
        rows.append((text_of(step.phase), text_of(step.step), text_of(step.function), text_of(later)))
        notes.append(text_of(step.fault or json.dumps(step.params, ensure_ascii=False)))
    columns = (Column("Phase"), Column("Step"), Column("Function"), Column("Filled in later", dispensable=1))
    return Table(columns, rows, "Parameters", notes)


# --- Rehearsal -------------------------------------------------------------------------------------------------------


def report_facts(report: Report, took_seconds: float) -> list[tuple[str, str]]:
    jobs = report.jobs
    answers = [
        (jobs["success"], "succeeded"), (jobs["running"], "still running"), (jobs["fail"], "failed"),
        (jobs["throttle"], "throttled"), (jobs["lost"], "lost"), (jobs["withdrawn"], "withdrawn before they began"),
    ]  # fmt: skip
    kinds = (
        ("retries", "retry", "retries"), ("polls", "poll", "polls"), ("rollback", "rollback step", "rollback steps"),
    )  # fmt: skip
    others = [(jobs[kind], one if jobs[kind] == 1 else many) for kind, one, many in kinds]
    return [
        ("Rehearsal", f"{text_of(report.runbook)}, {members_text(report.members)}, seed {report.seed}"),
        ("Workers", _behaviour_text(report.behaviour)),
        ("Time", f"{at_text(report.begins_at)} to {at_text(report.ends_at)} UTC, in {duration_text(took_seconds)}"),
        ("Resolution", f"{report.grain_seconds:g} s a step: anything closer together counts as simultaneous"),
        ("Jobs", ", ".join(part for part in (f"{number(jobs['jobs'])} sent", _listed(others)) if part)),
        ("Answers", _listed(answers)),
        ("Busiest", _busiest_text(report.busiest)),
    ]


def _busiest_text(busiest: Busiest) -> str:
    if busiest.moment_at is None:
        return "never: no job was sent"
    working, waiting = number(busiest.in_flight), number(busiest.queued)
    return f"{at_text(busiest.moment_at)} UTC: {working} in flight, {waiting} waiting"


def _behaviour_text(behaviour: Behaviour) -> str:
    mix = behaviour.default
    shares = [(mix.fail, "fail"), (mix.throttle, "throttled"), (mix.lost, "lost"), (mix.slow, "slow")]
    slots = [f"{text_of(name)} {count}" for name, count in behaviour.workers_of.items()]
    parts = [*slots, f"{behaviour.workers} {'others' if slots else 'each'}", f"{span_text(mix.duration_seconds)} a job"]
    parts += [f"{share * 100:g}% {name}" for share, name in shares if share]
    others = len(behaviour.functions)
    return ", ".join(parts) + (f"; other values for {counted(others, 'function')}" if others else "")


def _listed(counts: Sequence[tuple[int, str]]) -> str:
    return ", ".join(f"{number(count)} {name}" for count, name in counts if count)


def batch_sentence(batch: BatchLine) -> str:
    error = f": {text_of(batch.error)}" if batch.error else ""
    return f"{batch_title(batch)}: {batch.status.replace('_', ' ')}{error}"


def timeline_table(batch: BatchLine) -> Table:
    """A line for each phase and below it one for each step; began and ended are relative to the phase's due time."""
    rows: list[tuple[str, ...]] = []
    if batch.init:
        begin = min((line.began_at for line in batch.init if line.began_at is not None), default=None)
        rows.append(("init", at_text(begin), *[""] * 8))
        rows += [_step_line(line, begin) for line in batch.init]
    for phase in batch.phases:
        rows.append(_phase_line(phase))
        rows += [_step_line(line, phase.due_at) for line in phase.steps]
    return Table(TIMELINE_COLUMNS, rows)


def _phase_line(phase: PhaseLine) -> tuple[str, ...]:
    window = None if phase.until_at is None else (phase.until_at - phase.due_at) / 1000
    began = phase.status if phase.began_at is None else _since(phase.due_at, phase.began_at)
    ended = "" if phase.began_at is None else _since(phase.due_at, phase.ended_at) or "not ended"
    counts = (phase.done, phase.failed, phase.rolled_back, phase.cancelled, phase.late)
    return (
        f"{text_of(phase.phase)} {phase.offset}", at_text(phase.due_at), began, ended, span_text(window) or "open",
        *(number(count) for count in counts),
    )  # fmt: skip


def _step_line(line: StepLine, since: int | None) -> tuple[str, ...]:
    counts = line.counts
    failed = counts.get("failed", 0) + counts.get("poll_timeout", 0)
    cells = (counts.get("succeeded", 0), failed, counts.get("rolled_back", 0), counts.get("cancelled", 0))
    return (
        f"  {text_of(line.step)}", "", _since(since, line.began_at), _since(since, line.ended_at), "",
        *(number(count) for count in cells), "",
    )  # fmt: skip


def _since(due_at: int | None, moment: int | None) -> str:
    if due_at is None or moment is None:
        return ""
    seconds = (moment - due_at) / 1000
    return "on time" if seconds == 0 else f"+{span_text(seconds)}"


def miss_sentence(report: Report) -> str:
    if not report.misses:
        return f"Nobody would miss a window: all {number(report.members)} members make it."
    counts: dict[str, int] = {}
    for miss in report.misses:
        counts[miss.what] = counts.get(miss.what, 0) + 1
    by = ", ".join(f"{number(counts[what])} {what}" for what in sorted(counts))
    share = f"{number(report.members_missing)} of {number(report.members)} members"
    return f"{share} would miss a window or fail ({by}, counted by phase)."


def miss_table(misses: Sequence[Miss], with_batch: bool) -> Table:
    rows: list[tuple[str, ...]] = []
    for miss in misses:
        batch = (at_text(miss.batch_start),) if with_batch else ()
        where = (text_of(miss.phase), text_of(miss.step), miss.what, span_text(miss.late_seconds))
        rows.append((text_of(miss.member), *batch, *where))
    columns = tuple(column for column in MISS_COLUMNS if with_batch or column.name != "Batch")
    return Table(columns, rows, "Reason", [text_of(miss.reason) for miss in misses])


def most_severe(misses: Sequence[Miss], count: int) -> list[Miss]:
    """Failed members first, then stopped ones, then late ones, the latest first."""
    ranks = {"failed": 0, "rolled back": 0, "never begun": 1, "stopped": 1}
    return sorted(misses, key=lambda miss: (ranks.get(miss.what, 2), -(miss.late_seconds or 0)))[:count]


def hold_sentence(hold: Hold) -> str:
    waiting = ", ".join(hold.phases_waiting)
    return (
        f"max_failures would hold the batch of {at_text(hold.batch_start)} UTC at {at_text(hold.held_at)} UTC: "
        f"{text_of(hold.reason)}. {counted(hold.members_stopped, 'healthy member')} would be stopped "
        f"({counted(hold.steps_cancelled, 'step')} cancelled), and "
        + (f"{text_of(waiting)} would wait" if waiting else "nothing more would be sent")
        + " until an operator resumes or cancels it."
    )


def worker_table(report: Report) -> Table:
    rows = [
        (
            text_of(worker.worker_id), number(worker.slots), number(worker.jobs), number(worker.in_flight_max),
            number(worker.queue_max), at_text(worker.queue_max_at), span_text(round(worker.wait_max_seconds)),
        )
        for worker in report.workers
    ]  # fmt: skip
    return Table(WORKER_COLUMNS, rows)


def miss_rows(misses: Sequence[Miss]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """For a CSV: its columns and rows."""
    columns = ("member", "batch_start", "phase", "step", "what", "late_seconds", "reason")
    rows: list[tuple[Any, ...]] = [
        (
            miss.member, f"{iso(miss.batch_start)[:19]}Z", miss.phase,
            miss.step, miss.what, miss.late_seconds, miss.reason,
        )
        for miss in misses
    ]  # fmt: skip
    return columns, rows
