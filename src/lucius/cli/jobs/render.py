"""Renders jobs: plain lines for any program, and the same facts in colour on a terminal.

The plain functions are pure: the time is an argument. The rich ones build on them and load rich only when called.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lucius.cli.failures import printable
from lucius.cli.output.formatting import (
    STYLES,
    clipped,
    distance,
    error_text,
    moment,
    percent,
    steps_text,
    text_of,
    time_taken,
)
from lucius.cli.output.tables import NOTE_INDENT, Column, Table, aligned, table_lines, table_view

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Job = Mapping[str, Any]
Step = Mapping[str, Any]

BAR_CELLS = 12
FACT_CELLS = 12
"""Width of the names of a job's facts."""
LIVE_FACT_LINES = 3
"""A live view must fit the screen: longer facts are truncated, and shown in full at the end."""

STEP_COLUMNS = (
    Column("Step"),
    Column("Service", dispensable=1),
    Column("Status"),
    Column("Attempt"),
    Column("Progress"),
    Column("Time"),
)
JOB_COLUMNS = (
    Column("Job"),
    Column("Tenant"),
    Column("Type", dispensable=1),
    Column("Status"),
    Column("Progress", dispensable=3),
    Column("Created", dispensable=4),
    Column("Time", dispensable=2),
)


def step_table(steps: Iterable[Step], now: datetime) -> Table:
    rows, notes = [], []
    for step in steps:
        attempt_no = step.get("attempt_no") or 0
        is_done = step.get("status") == "SUCCEEDED"
        rows.append(
            (
                text_of(step.get("stepId")),
                text_of(step.get("service")),
                text_of(step.get("status")),
                str(attempt_no) if attempt_no else "",
                "100 %" if is_done else percent(step.get("progress") or None),
                time_taken(step.get("started_at"), step.get("completed_at"), now),
            )
        )
        # A worker's progress note is irrelevant once the step is done.
        notes.append("" if is_done else error_text(step.get("error")) or text_of(step.get("note")))
    return Table(STEP_COLUMNS, rows, "Note", notes)


def attempt_table(steps: Iterable[Step], now: datetime) -> Table:
    """Every attempt of every step."""
    found = [(step, attempt) for step in steps for attempt in step.get("attempts") or ()]
    rows = [
        (
            text_of(step.get("stepId")),
            text_of(attempt.get("attempt_no")),
            text_of(attempt.get("status")),
            text_of(attempt.get("started_at")),
            time_taken(attempt.get("started_at"), attempt.get("ended_at"), now),
        )
        for step, attempt in found
    ]
    columns = tuple(Column(name) for name in ("Step", "Attempt", "Status", "Started", "Time"))
    return Table(columns, rows, "Error", [error_text(attempt.get("error")) for _, attempt in found])


def job_table(items: Iterable[Job], now: datetime) -> Table:
    rows = []
    for job in items:
        created = moment(job.get("created_at"))
        # A job whose rows cannot be read has an error and no status.
        status = job.get("status") or (job.get("error") or {}).get("code")
        rows.append(
            (
                text_of(job.get("jobId")),
                text_of(job.get("tenant_id")),
                text_of(job.get("request_type")),
                text_of(status),
                percent(job.get("progress")),
                f"{created:%Y-%m-%d %H:%M:%S}" if created else "",
                time_taken(job.get("created_at"), job.get("completed_at"), now),
            )
        )
    return Table(JOB_COLUMNS, rows)


def job_facts(job: Job, now: datetime, refs: bool = False) -> list[tuple[str, str]]:
    """Facts about the job as names and values; empty ones are left out. `refs`: also where its input and output are."""
    waiting = waiting_of(job)
    until = waiting.get("until")
    is_done = job.get("status") == "SUCCEEDED"
    facts = [
        ("Job", text_of(job.get("jobId"))),
        ("Command", f"{text_of(job.get('request_type'))} of {text_of(job.get('tenant_id'))}"),
        ("Status", " ".join(part for part in (text_of(job.get("status")), percent(job.get("progress"))) if part)),
        ("Time", time_taken(job.get("created_at"), job.get("completed_at"), now)),
        ("Waits", text_of(waiting.get("sentence") or waiting.get("what"))),
        ("Since", distance(waiting.get("since"), now)),
        ("Progress", progress_text(waiting, now)),
        ("Until", ", ".join(part for part in (text_of(until), distance(until, now)) if part)),
        ("Error", error_text(job.get("error"))),
        ("Raised at", raised_at(job.get("error"))),
        ("Instance", instance_of(job.get("error"))),
        ("Input", ref_text(job.get("input_ref")) if refs else ""),
        ("Output", ref_text(job.get("output_ref")) if refs and not is_done else ""),
        ("Result", ref_text(job.get("output_ref")) if is_done else ""),
        ("Redrive of", text_of(job.get("redrive_of"))),
    ]
    return [(name, value) for name, value in facts if value]


def waiting_of(job: Job) -> Mapping[str, Any]:
    waiting = job.get("waiting_on")
    return waiting if isinstance(waiting, Mapping) else {}


def progress_text(waiting: Mapping[str, Any], now: datetime) -> str:
    """When the service that works on the job last reported something new; empty if none works on it."""
    if waiting.get("what") != "RESULT" or "progress_at" not in waiting:
        return ""
    ago = distance(waiting.get("progress_at"), now)
    return f"last {ago}" if ago else "none reported"


def ref_text(ref: Any) -> str:
    return text_of(ref.get("uri") if isinstance(ref, Mapping) else ref)


def raised_at(error: Any) -> str:
    """Where a service's exception was raised, the innermost frame first: `pdf.py:12 in read, service.py:8 in work`."""
    frames = error.get("frames") if isinstance(error, Mapping) else None
    if not isinstance(frames, list):
        return ""
    known = [one for one in frames if isinstance(one, Mapping)]
    places = (f"{one.get('file')}:{one.get('line')} in {one.get('function')}" for one in reversed(known))
    return text_of(", ".join(places))


def instance_of(error: Any) -> str:
    """The instance of the service that ran a failed attempt."""
    return text_of(error.get("instance")) if isinstance(error, Mapping) else ""


def job_lines(job: Job, now: datetime, refs: bool = False) -> list[str]:
    steps = job.get("steps") or ()
    return [*aligned(job_facts(job, now, refs)), *(["", *table_lines(step_table(steps, now))] if steps else [])]


def job_view(job: Job, now: datetime, width: int, live: bool = False, refs: bool = False) -> RenderableType:
    """The job's facts above a table of its steps. A live view truncates long values."""
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    facts = Grid.grid(padding=(0, 2))
    for name, value in job_facts(job, now, refs):
        style = STYLES.get(str(job.get("status")), "") if name == "Status" else "red" if name == "Error" else ""
        shown = clipped(value, LIVE_FACT_LINES * max(1, width - FACT_CELLS)) if live else value
        facts.add_row(Text(name, style="dim"), Text(shown, style=style, overflow="fold"))
    steps = list(job.get("steps") or ())
    table = step_table(steps, now)
    bars = [_bar(step, row[4], STYLES.get(row[2], "")) for step, row in zip(steps, table.rows, strict=True)]
    return Group(facts, Text(""), table_view(table, width, {"Progress": bars}, width - NOTE_INDENT if live else None))


def _bar(step: Step, share: str, style: str) -> Text:
    from rich.text import Text

    done = 1.0 if step.get("status") == "SUCCEEDED" else float(step.get("progress") or 0.0)
    full = round(max(0.0, min(1.0, done)) * BAR_CELLS)
    bar = Text("━" * full, style=style).append("━" * (BAR_CELLS - full), style="grey37")
    return bar.append(f" {share}" if share else "")


def validity_lines(answer: Mapping[str, Any]) -> list[str]:
    """The routing of a valid command."""
    facts = [
        ("Protocol", text_of(answer.get("protocol_id"))),
        ("Steps", steps_text(answer.get("steps"))),
        ("Lane", text_of(answer.get("lane"))),
        ("Mode", text_of(answer.get("mode"))),
    ]
    return aligned(facts)


# --- Changes ---------------------------------------------------------------------------------------------------------


def change_lines(before: Job | None, job: Job, now: datetime) -> list[str]:
    """Changes since `before`, for output that cannot be redrawn: a line for the job and one for each step."""
    elapsed = time_taken(job.get("created_at"), job.get("completed_at"), now)
    lines = []
    before_steps = {step.get("stepId"): step for step in (before or {}).get("steps") or ()}
    steps = list(job.get("steps") or ())
    table = step_table(steps, now)
    for step, cells, note in zip(steps, table.rows, table.notes, strict=True):
        known = before_steps.get(step.get("stepId"))
        if _step_state(step) != (_step_state(known) if known else ("PENDING", 0, 0)):
            what = [cells[0], cells[2], f"attempt {cells[3]}" if cells[3] else "", *cells[4:], note]
            lines.append(f"{elapsed:>8}  step " + "  ".join(part for part in what if part))
    if before is None or before.get("status") != job.get("status"):
        what = [text_of(job.get("status")), error_text(job.get("error"))]
        line = f"{elapsed:>8}  job " + "  ".join(part for part in what if part)
        # The line for a job's end goes after its steps, the one for its start before them.
        lines.insert(0 if before is None and not job.get("completed_at") else len(lines), line)
    return lines


def waiting_line(job: Job, now: datetime) -> str:
    """A line in the same form that says what the job waits for."""
    elapsed = time_taken(job.get("created_at"), job.get("completed_at"), now)
    return f"{elapsed:>8}  waits  {text_of(waiting_of(job).get('sentence'))}"


def _step_state(step: Step) -> tuple[Any, int, int]:
    """A change in these is reported: status, attempt, and progress by tenths."""
    return (step.get("status"), int(step.get("attempt_no") or 0), int(float(step.get("progress") or 0) * 10))


# --- Events ----------------------------------------------------------------------------------------------------------

EVENT_FIELDS = ("seq", "at", "type", "stepId", "attempt_no")
EVENT_FIELDS_IN_BRIEF = (*EVENT_FIELDS, "job_status", "step_status", "lease_id")


def event_table(events: Iterable[Mapping[str, Any]]) -> Table:
    """All fields of each event."""
    rows, notes = [], []
    for event in events:
        data = {name: value for name, value in event.items() if name not in EVENT_FIELDS}
        number = text_of(event.get("attempt_no") or None)
        rows.append((text_of(event.get("at")), text_of(event.get("type")), text_of(event.get("stepId")), number))
        notes.append(printable(json.dumps(data, ensure_ascii=False, sort_keys=True)) if data else "")
    return Table(tuple(Column(name) for name in ("At", "Type", "Step", "Attempt")), rows, "Data", notes)


def event_table_in_brief(events: Iterable[Mapping[str, Any]]) -> Table:
    """For a terminal: each event with the resulting status and its other fields, without lease ids."""
    rows, notes = [], []
    listed = list(events)
    at = [moment(event.get("at")) for event in listed]
    days = {when.astimezone(UTC).date() for when in at if when}
    for event, when in zip(listed, at, strict=True):
        clock = f"{when.astimezone(UTC):%H:%M:%S.%f}"[:-3] if when else text_of(event.get("at"))
        day = f"{when.astimezone(UTC):%Y-%m-%d} " if when and len(days) > 1 else ""
        data = {name: value for name, value in event.items() if name not in EVENT_FIELDS_IN_BRIEF}
        if data.get("outcome") == "APPLIED":
            del data["outcome"]
        status = event.get("step_status") or event.get("job_status")
        step, number = text_of(event.get("stepId")), text_of(event.get("attempt_no") or None)
        rows.append((day + clock, text_of(event.get("type")), step, number, text_of(status)))
        notes.append(printable("  ".join(f"{name}={value}" for name, value in data.items())))
    name = f"{next(iter(days))} UTC" if len(days) == 1 else "At (UTC)"
    columns = (Column(name), Column("Type"), Column("Step"), Column("No"), Column("Status"))
    return Table(columns, rows, "", notes, notes_apart=True)


def event_line(event: Mapping[str, Any], is_brief: bool) -> str:
    """One event of a trail that is followed: nothing is known about the width of the next."""
    table = event_table_in_brief([event]) if is_brief else event_table([event])
    cells = [*table.rows[0], *table.notes]
    return "  ".join(cell for cell in cells if cell)
