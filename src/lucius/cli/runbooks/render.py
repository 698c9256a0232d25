"""Renders runbooks: the list, versions, differences, previews, dry runs and events. Pure: the time is an argument."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lucius.cli.failures import printable
from lucius.cli.output.formatting import clipped, counted, distance, moment, text_of
from lucius.cli.output.printing import show_table
from lucius.cli.output.tables import Column, Table

if TYPE_CHECKING:
    from rich.text import Text

Item = Mapping[str, Any]

STATUS_STYLES = {
    "succeeded": "green",
    "completed": "green",
    "completed_with_failures": "yellow",
    "ok": "green",
    "failed": "bold red",
    "poll_timeout": "bold red",
    "rolled_back": "yellow",
    "held": "yellow",
    "stopped": "yellow",
    "retired": "dim",
    "cancelled": "dim",
    "skipped": "dim",
    "removed": "dim",
    "polling": "cyan",
    "dispatched": "cyan",
    "active": "cyan",
    "init_dispatched": "blue",
    "detected": "blue",
    "pending": "dim",
    "added": "green",
    "changed": "yellow",
}
CELL_CHARS_MAX = 40
"""Length of a member's value in a preview on a terminal; plain lines and JSON show all of it."""
NOTE_LINES_MAX = 3
MANUAL = "by hand"


def show_painted(table: Table, note_lines_max: int | None = None) -> None:
    """Show the table with status cells in their colours."""
    show_table(table, note_lines_max, painted)


def painted(table: Table) -> dict[str, list[Text]]:
    from rich.text import Text

    return {
        column.name: [Text(row[index], STATUS_STYLES.get(row[index], "")) for row in table.rows]
        for index, column in enumerate(table.columns)
    }


# --- Runbooks --------------------------------------------------------------------------------------------------------


def runbook_state(runbook: Item) -> str:
    if not runbook.get("is_active"):
        return "retired"
    return "active" if runbook.get("automation") else "stopped"


def runbook_table(items: Iterable[Item], now: datetime) -> Table:
    rows, notes = [], []
    items = list(items)
    has_tenants = any(runbook.get("tenant") for runbook in items)
    for runbook in items:
        source = runbook.get("source") or {}
        rows.append(
            (
                text_of(runbook.get("name")),
                *((text_of(runbook.get("tenant")),) if has_tenants else ()),
                text_of(runbook.get("version")),
                runbook_state(runbook),
                text_of(runbook.get("open_batches")),
                source_state(source),
                text_of(source.get("members")),
                distance(source.get("checked_at"), now),
            )
        )
        notes.append(text_of(source.get("detail")))
    columns = (
        Column("Name"),
        *((Column("Tenant", dispensable=3),) if has_tenants else ()),
        Column("Version"),
        Column("State"),
        Column("Open batches"),
        Column("Source"),
        Column("Members", dispensable=1),
        Column("Read", dispensable=2),
    )
    return Table(columns, rows, "Note", notes if any(notes) else ())


def version_table(versions: Iterable[Item], now: datetime) -> Table:
    rows = [
        (
            text_of(version.get("version")),
            "active" if version.get("is_active") else "",
            text_of(version.get("overdue_behavior")),
            "yes" if version.get("rerun_init") else "no",
            distance(version.get("created_at"), now),
            text_of(version.get("created_by")),
        )
        for version in versions
    ]
    names = ("Version", "State", "Overdue", "Reruns init", "Published")
    return Table((*(Column(name) for name in names), Column("By", dispensable=1)), rows)


def runbook_facts(runbook: Item, now: datetime) -> list[tuple[str, str]]:
    source = runbook.get("source") or {}
    read = [source_state(source), _members_of(source), distance(source.get("checked_at"), now)]
    facts = [
        ("Runbook", text_of(runbook.get("name"))),
        ("Version", text_of(runbook.get("version"))),
        ("State", runbook_state(runbook)),
        ("Source", ", ".join(part for part in read if part)),
        ("Detail", text_of(source.get("detail"))),
    ]
    return [(name, value) for name, value in facts if value]


def source_state(source: Item) -> str:
    return text_of(source.get("state")).replace("_", " ")


def _members_of(source: Item) -> str:
    count = source.get("members")
    return counted(count, "member") if isinstance(count, int) else ""


def phase_lines(phases: Iterable[Item]) -> list[str]:
    """`T-5d  announce: notify, look-up`"""
    rows = [(text_of(phase.get("offset")), text_of(phase.get("name")), phase.get("steps") or ()) for phase in phases]
    width = max((len(offset) for offset, _, _ in rows), default=0)
    return [f"  {offset:<{width}}  {name}: {text_of(', '.join(map(str, steps)))}" for offset, name, steps in rows]


SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def difference_lines(found: Iterable[Item]) -> list[str]:
    lines = []
    for difference in found:
        values = [printable(str(difference[name])) for name in ("before", "after") if difference.get(name) is not None]
        sign = SIGNS.get(str(difference.get("kind")), "?")
        lines.append(f"{sign} {text_of(difference.get('where'))}" + (f": {' → '.join(values)}" if values else ""))
    return lines


# --- Previews and dry runs -------------------------------------------------------------------------------------------


def preview_table(answer: Item, chars_max: int | None) -> Table:
    """The source's rows; a row is a mapping, or a list in the order of the columns."""
    names = [text_of(name) for name in answer.get("columns") or ()]
    rows = []
    for row in answer.get("rows") or ():
        values = [row.get(name) for name in names] if isinstance(row, Mapping) else list(row)
        rows.append(tuple(_cell(value, chars_max) for value in values))
    return Table(tuple(Column(name, dispensable=index) for index, name in enumerate(names)), rows)


def _cell(value: Any, chars_max: int | None) -> str:
    is_text = value is None or isinstance(value, str)
    text = text_of(value) if is_text else printable(json.dumps(value, ensure_ascii=False))
    return text if chars_max is None else clipped(text, chars_max)


def row_fault_lines(faults: Iterable[Item]) -> list[str]:
    return [f"row {text_of(fault.get('row'))}: {text_of(fault.get('message'))}" for fault in faults]


def dry_run_lines(answer: Item, now: datetime) -> list[str]:
    """When each phase would be due, and every step with the parameters that would be sent."""
    head = f"{text_of(answer.get('name'))}, version {text_of(answer.get('version'))}"
    lines = [f"{head}, for a batch that starts at {text_of(answer.get('start'))}. Nothing is written or sent.", ""]
    for phase in answer.get("phases") or ():
        due = " ".join(
            part for part in (text_of(phase.get("due_at")), f"({distance(phase.get('due_at'), now)})") if part
        )
        lines.append(f"  {text_of(phase.get('offset')):<7} {text_of(phase.get('name'))}, due {due}")
    members = answer.get("members") or []
    for member in members:
        lines += ["", text_of(member.get("member"))]
        for step in member.get("steps") or ():
            lines += _dry_step(step)
    total = answer.get("total_members")
    if isinstance(total, int) and total > len(members):
        lines += ["", f"{len(members)} of {counted(total, 'member')}; --limit shows more."]
    return lines


def _dry_step(step: Item) -> list[str]:
    where = f"  {text_of(step.get('phase'))} / {text_of(step.get('step'))}"
    lines = [f"{where}: {text_of(step.get('function'))} at {text_of(step.get('worker_id'))}"]
    for name, value in (step.get("params") or {}).items():
        lines.append(f"      {text_of(name)}: {_cell(value, None)}")
    if step.get("waits_for"):
        lines.append(f"      filled in when it is sent: {text_of(', '.join(map(str, step['waits_for'])))}")
    if step.get("fault"):
        lines.append(f"      FAULT: {text_of(step['fault'])}")
    return lines


# --- Events ----------------------------------------------------------------------------------------------------------


def event_table(events: Sequence[Item], with_batch: bool, is_brief: bool) -> Table:
    """If brief, a date that all events share moves to the column header, and empty columns are left out."""
    rows, notes = [], []
    days = {event_time(event)[:10] for event in events}
    day = next(iter(days)) if is_brief and len(days) == 1 else ""
    has_members = not is_brief or any(map(_member_of, events))
    for event in events:
        batch = (text_of(event.get("batch_id")),) if with_batch else ()
        member = (_member_of(event),) if has_members else ()
        at = event_time(event)[len(day) :].strip()
        rows.append((at, text_of(event.get("kind")), *batch, *member, text_of(event.get("actor"))))
        notes.append(detail_text(event))
    names = [f"{day} UTC" if day else "At (UTC)", "Event"] + ["Batch"] * with_batch + ["Member"] * has_members
    columns = (*(Column(name) for name in names), Column("By", dispensable=1))
    return Table(columns, rows, "Detail", notes, notes_apart=True)


def event_time(event: Item) -> str:
    at = moment(event.get("at"))
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at else text_of(event.get("at"))


def event_line(event: Item) -> str:
    """`08:15:30  step-failed  ann@contoso.com  step=start-move …`"""
    parts = (event_time(event)[-8:], text_of(event.get("kind")), _member_of(event), detail_text(event))
    return "  ".join(part for part in parts if part)


def detail_text(event: Item) -> str:
    """The event's details, without its member and empty values."""
    detail = event.get("detail") or {}
    shown = {name: value for name, value in detail.items() if value not in (None, "", []) and name != "member"}
    return printable("  ".join(f"{name}={_value(value)}" for name, value in shown.items()))


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _member_of(event: Item) -> str:
    return text_of(event.get("member") or (event.get("detail") or {}).get("member"))
