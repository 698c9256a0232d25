"""Jobs for the eye: plain lines that any program can read, and the same facts with colour on a terminal.

The plain functions are pure: the time is an argument. The rich ones build on them and load rich only when called.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lucius.cli.failures import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

Job = Mapping[str, Any]
Step = Mapping[str, Any]

STYLES = {
    "SUCCEEDED": "green",
    "FAILED_FINAL": "bold red",
    "CANCELLED": "magenta",
    "CANCELLING": "magenta",
    "PAUSED": "yellow",
    "FAILED_RETRY": "yellow",
    "PROCESSING": "cyan",
    "INITIATED": "blue",
    "DISPATCHING": "blue",
    "IN_PROGRESS": "cyan",
}
BAR_CELLS = 12
STEP_COLUMNS = ("Step", "Service", "Status", "Attempt", "Progress", "Time", "Note")
JOB_COLUMNS = ("Job", "Tenant", "Type", "Status", "Progress", "Created", "Time")


def text_of(value: Any) -> str:
    return "" if value is None else printable(str(value))


def moment(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def duration_text(seconds: float) -> str:
    """`0.35 s`, `12.4 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`"""
    if seconds < 1:
        return f"{max(seconds, 0.0):.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def time_taken(start: Any, end: Any, now: datetime) -> str:
    started = moment(start)
    return duration_text(((moment(end) or now) - started).total_seconds()) if started else ""


def percent(value: Any) -> str:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{round(max(0.0, min(1.0, value)) * 100)} %" if known else ""


def error_text(error: Any) -> str:
    """`CODE: message` of a job's or step's error."""
    if not isinstance(error, Mapping):
        return ""
    return text_of(": ".join(str(part) for part in (error.get("code"), error.get("message")) if part))


def step_cells(step: Step, now: datetime) -> tuple[str, ...]:
    attempt_no = step.get("attempt_no") or 0
    return (
        text_of(step.get("stepId")),
        text_of(step.get("service")),
        text_of(step.get("status")),
        str(attempt_no) if attempt_no else "",
        "100 %" if step.get("status") == "SUCCEEDED" else percent(step.get("progress") or None),
        time_taken(step.get("started_at"), step.get("completed_at"), now),
        error_text(step.get("error")) or text_of(step.get("note")),
    )


def job_cells(job: Job, now: datetime) -> tuple[str, ...]:
    created = moment(job.get("created_at"))
    return (
        text_of(job.get("jobId")),
        text_of(job.get("tenant_id")),
        text_of(job.get("request_type")),
        text_of(job.get("status")),
        percent(job.get("progress")),
        f"{created:%Y-%m-%d %H:%M:%S}" if created else "",
        time_taken(job.get("created_at"), job.get("completed_at"), now),
    )


def job_facts(job: Job, now: datetime) -> list[tuple[str, str]]:
    """What is true of the job as a whole, as names and values; facts that do not hold are left out."""
    waiting = job.get("waiting_on")
    state = " ".join(part for part in (text_of(job.get("status")), percent(job.get("progress"))) if part)
    until = text_of(waiting.get("until")) if isinstance(waiting, Mapping) else ""
    facts = [
        ("Job", text_of(job.get("jobId"))),
        ("Command", f"{text_of(job.get('request_type'))} of {text_of(job.get('tenant_id'))}"),
        ("Status", state),
        ("Time", time_taken(job.get("created_at"), job.get("completed_at"), now)),
        ("Waits", text_of(waiting.get("sentence") or waiting.get("what")) if isinstance(waiting, Mapping) else ""),
        ("Until", until),
        ("Error", error_text(job.get("error"))),
        ("Redrive of", text_of(job.get("redrive_of"))),
    ]
    return [(name, value) for name, value in facts if value]


def aligned(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> list[str]:
    """Columns of equal width, two spaces apart."""
    every = [*([[name.upper() for name in header]] if header else []), *rows]
    widths = [max((len(row[place]) for row in every), default=0) for place in range(len(every[0]) if every else 0)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in every]


def job_lines(job: Job, now: datetime) -> list[str]:
    facts = aligned(job_facts(job, now))
    steps = [step_cells(step, now) for step in job.get("steps") or ()]
    return [*facts, *(["", *aligned(steps, STEP_COLUMNS)] if steps else [])]


def attempt_lines(steps: Iterable[Step], now: datetime) -> list[str]:
    """Every attempt of every step, one to a line."""
    rows = [
        (
            text_of(step.get("stepId")),
            text_of(attempt.get("attempt_no")),
            text_of(attempt.get("status")),
            text_of(attempt.get("started_at")),
            time_taken(attempt.get("started_at"), attempt.get("ended_at"), now),
            error_text(attempt.get("error")),
        )
        for step in steps
        for attempt in step.get("attempts") or ()
    ]
    return aligned(rows, ("Step", "Attempt", "Status", "Started", "Time", "Error"))


def change_lines(before: Job | None, job: Job, now: datetime) -> list[str]:
    """What is new since `before`, for a reader that cannot redraw: a line for the job and one for each step."""
    elapsed = time_taken(job.get("created_at"), job.get("completed_at"), now)
    lines = []
    before_steps = {step.get("stepId"): step for step in (before or {}).get("steps") or ()}
    for step in job.get("steps") or ():
        known = before_steps.get(step.get("stepId"))
        fresh = _step_state(step)
        if fresh != (_step_state(known) if known else ("PENDING", 0, 0)):
            cells = step_cells(step, now)
            what = [cells[0], cells[2], f"attempt {cells[3]}" if cells[3] else "", *cells[4:]]
            lines.append(f"{elapsed:>8}  step " + "  ".join(part for part in what if part))
    if before is None or before.get("status") != job.get("status"):
        what = [text_of(job.get("status")), error_text(job.get("error"))]
        line = f"{elapsed:>8}  job " + "  ".join(part for part in what if part)
        # A job's end reads best after the steps that led to it; its beginning before them.
        lines.insert(0 if before is None and not job.get("completed_at") else len(lines), line)
    return lines


def _step_state(step: Step) -> tuple[Any, int, int]:
    """What counts as a change: status, attempt, and progress by tenths."""
    return (step.get("status"), int(step.get("attempt_no") or 0), int(float(step.get("progress") or 0) * 10))


def event_lines(events: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = []
    for event in events:
        told = ("seq", "at", "type", "stepId", "attempt_no")
        data = {name: value for name, value in event.items() if name not in told}
        rows.append(
            (
                text_of(event.get("at")),
                text_of(event.get("type")),
                text_of(event.get("stepId")),
                text_of(event.get("attempt_no") or None),
                printable(json.dumps(data, ensure_ascii=False, sort_keys=True)) if data else "",
            )
        )
    return aligned(rows, ("At", "Type", "Step", "Attempt", "Data"))


def open_console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def job_view(job: Job, now: datetime) -> RenderableType:
    """The job as a panel of facts over a table of steps."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    for name, value in job_facts(job, now):
        style = STYLES.get(str(job.get("status")), "") if name == "Status" else "red" if name == "Error" else ""
        facts.add_row(Text(name, style="dim"), Text(value, style=style))
    steps = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in STEP_COLUMNS:
        steps.add_column(name, no_wrap=name != "Note")
    for step in job.get("steps") or ():
        cells = step_cells(step, now)
        style = STYLES.get(cells[2], "")
        done = 1.0 if cells[2] == "SUCCEEDED" else float(step.get("progress") or 0.0)
        bar = _bar(done, style)
        if cells[4]:
            bar.append(f" {cells[4]}")
        steps.add_row(cells[0], cells[1], Text(cells[2], style), cells[3], bar, cells[5], Text(cells[6]))
    return Group(facts, Text(""), steps)


def _bar(done: float, style: str) -> Any:
    from rich.text import Text

    full = round(max(0.0, min(1.0, done)) * BAR_CELLS)
    return Text("━" * full, style=style).append("━" * (BAR_CELLS - full), style="grey37")


def jobs_view(items: Iterable[Job], now: datetime) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in JOB_COLUMNS:
        table.add_column(name, no_wrap=name in ("Job", "Status"))
    for job in items:
        cells = job_cells(job, now)
        table.add_row(*(Text(cell, STYLES.get(cell, "") if place == 3 else "") for place, cell in enumerate(cells)))
    return table
