"""Renders batches: the list, the progress of each phase, what they wait for. Pure, like `render`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lucius.cli.output.formatting import clipped, counted, distance, moment, text_of, time_taken
from lucius.cli.output.tables import Column, Table, aligned, table_lines, table_view
from lucius.cli.runbooks.render import STATUS_STYLES, event_line, painted

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Batch = Mapping[str, Any]

BAR_CELLS = 12
FACT_LINES_MAX = 3
"""Lines per fact in a live view, which must fit the screen."""
ENDED = ("completed", "failed")
WITH_FAILURES = "completed_with_failures"
ENDINGS = {WITH_FAILURES: "completed with failures", "cancelled": "was cancelled"}
"""Verdicts in a sentence, where they are not the verb themselves."""
STEP_ORDER = (
    "succeeded", "failed", "poll_timeout", "rolled_back", "cancelled", "polling", "dispatched", "pending",
)  # fmt: skip
OPEN = ("polling", "dispatched", "pending")


def batch_table(items: Iterable[Batch], now: datetime) -> Table:
    rows, notes = [], []
    for batch in items:
        members = batch.get("members") or {}
        start = moment(starts_at(batch))
        rows.append(
            (
                text_of(batch.get("batch_id")),
                text_of(batch.get("runbook")),
                text_of(batch.get("version")),
                batch_status(batch),
                text_of(members.get("active")),
                text_of(members.get("failed")),
                phases_text(batch.get("phases") or {}),
                f"{start.astimezone(UTC):%Y-%m-%d %H:%M}" if start else "",
                distance(starts_at(batch), now),
            )
        )
        notes.append(text_of(batch.get("pause_reason") or batch.get("hold_reason") or batch.get("error")))
    columns = (
        Column("Batch"),
        Column("Runbook"),
        Column("Version", dispensable=3),
        Column("Status"),
        Column("Members"),
        Column("Failed"),
        Column("Phases"),
        Column("Start (UTC)", dispensable=2),
        Column("When", dispensable=1),
    )
    return Table(columns, rows, "Note", notes if any(notes) else ())


def starts_at(batch: Batch) -> Any:
    """When it starts, as rescheduled."""
    return batch.get("starts_at") or batch.get("start")


def _start_text(batch: Batch, now: datetime) -> str:
    at, planned = starts_at(batch), batch.get("start")
    moved = f"rescheduled from {text_of(planned)}" if at != planned else ""
    return ", ".join(part for part in (text_of(at), distance(at, now), moved) if part)


def batch_status(batch: Batch) -> str:
    if batch.get("status") in ENDED:
        return verdict_of(batch)
    if batch.get("paused_at"):
        return "paused"
    return "held" if batch.get("held_at") else text_of(batch.get("status"))


def verdict_of(batch: Batch) -> str:
    """How an ended batch ended; its status, if the server does not tell."""
    return text_of(batch.get("verdict") or batch.get("status"))


def ending_text(batch: Batch) -> str:
    """How an ended batch ended, and where to read more unless it completed."""
    is_good, number = verdict_of(batch) == "completed", text_of(batch.get("batch_id"))
    return ending_sentence(batch) + ("" if is_good else f" See `lucius batch why {number}`.")


def ending_sentence(batch: Batch) -> str:
    """`Batch 7 completed with failures: 2 of 10 members did not succeed.`"""
    verdict = verdict_of(batch)
    how = ENDINGS.get(verdict, verdict)
    count, total = unsuccessful_count(batch), (batch.get("members") or {}).get("active") or 0
    share = f": {count} of {counted(int(total), 'member')} did not succeed" if verdict == WITH_FAILURES else ""
    return f"Batch {text_of(batch.get('batch_id'))} {how}{share}."


def unsuccessful_count(batch: Batch) -> int:
    return int((batch.get("unsuccessful") or {}).get("count") or 0)


def waits_of(batch: Batch) -> list[str]:
    """What an open batch waits for; empty for an ended batch."""
    return [] if batch.get("status") in ENDED else [text_of(wait) for wait in batch.get("waiting_for") or ()]


def phases_text(counts: Mapping[str, Any]) -> str:
    """`2 of 4`: phases that have ended, of all phases."""
    numbers = {name: int(count or 0) for name, count in counts.items()}
    ended = sum(numbers.get(name, 0) for name in ("completed", "failed", "skipped"))
    return f"{ended} of {sum(numbers.values())}" if numbers else ""


def batch_facts(batch: Batch, now: datetime) -> list[tuple[str, str]]:
    members = batch.get("members") or {}
    counts = [
        f"{members.get(name) or 0} {name}" for name in ("active", "failed", "held", "removed") if members.get(name)
    ]
    manual = ", phases are started manually" if batch.get("advance") == "manual" else ""
    facts = [
        ("Batch", f"{text_of(batch.get('batch_id'))} of {text_of(batch.get('runbook'))}, "
                  f"version {text_of(batch.get('version'))}{manual}"),
        ("Status", batch_status(batch)),
        ("Start", _start_text(batch, now)),
        ("Members", ", ".join(counts) or "none"),
        ("Time", time_taken(batch.get("detected_at"), batch.get("completed_at"), now)),
        ("Held", text_of(batch.get("hold_reason"))),
        ("Error", text_of(batch.get("error"))),
        *(("Waits" if index == 0 else "", wait) for index, wait in enumerate(waits_of(batch))),
    ]  # fmt: skip
    return [(name, value) for name, value in facts if value]


# --- Phases and steps ------------------------------------------------------------------------------------------------


def progress_table(batch: Batch, now: datetime, only_open: bool = False) -> Table:
    """Init, phases and their steps, with their progress. Phases of an older version than the batch's are marked.

    `only_open` leaves out the steps of phases that are not under way.
    """
    rows, notes = [], []
    for step in batch.get("init") or ():
        rows.append((f"init / {text_of(step.get('step'))}", "", text_of(step.get("status")), "", ""))
        notes.append(text_of(step.get("error")))
    for phase in batch.get("phase_list") or ():
        version = phase.get("version")
        old = f" (v{version})" if version not in (None, batch.get("version")) else ""
        due = "" if phase.get("status") != "pending" else f"due {distance(phase.get('due_at'), now)}"
        took = time_taken(phase.get("dispatched_at"), phase.get("completed_at"), now)
        name = text_of(phase.get("phase")) + old
        rows.append((name, text_of(phase.get("offset")), text_of(phase.get("status")), share_text(phase), took or due))
        notes.append(text_of(phase.get("error")))
        for step in phase.get("steps") or ():
            is_shown = not only_open or phase.get("status") == "dispatched"
            if is_shown and any((step.get("counts") or {}).values()):
                rows.append((f"  {text_of(step.get('step'))}", "", "", counts_text(step.get("counts") or {}), ""))
                notes.append("")
    columns = (Column("Phase"), Column("Offset"), Column("Status"), Column("Progress"), Column("Time", dispensable=1))
    return Table(columns, rows, "Note", notes if any(notes) else ())


def totals(phase: Batch) -> dict[str, int]:
    """Steps of a phase by status, over all its members."""
    sums: dict[str, int] = {}
    for step in phase.get("steps") or ():
        for status, count in (step.get("counts") or {}).items():
            sums[status] = sums.get(status, 0) + int(count or 0)
    return {status: count for status, count in sums.items() if count}


def share_of(phase: Batch) -> tuple[int, int]:
    """The number of ended steps, and of all steps."""
    sums = totals(phase)
    whole = sum(sums.values())
    return whole - sum(sums.get(status, 0) for status in OPEN), whole


def share_text(phase: Batch) -> str:
    ended, whole = share_of(phase)
    return f"{ended} / {whole} steps" if whole else ""


def counts_text(counts: Mapping[str, Any]) -> str:
    """`6 succeeded, 1 polling`"""
    order = [*STEP_ORDER, *sorted(set(counts) - set(STEP_ORDER))]
    return ", ".join(f"{counts[status]} {text_of(status)}" for status in order if counts.get(status))


def batch_lines(batch: Batch, now: datetime) -> list[str]:
    return [*aligned(batch_facts(batch, now)), "", *table_lines(progress_table(batch, now))]


def batch_view(
    batch: Batch, now: datetime, width: int, events: Sequence[Batch] = (), live: bool = False
) -> RenderableType:
    """Facts, phases with progress bars, and the newest events. A live view leaves out the steps of ended phases."""
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    facts = Grid.grid(padding=(0, 2))
    for name, value in batch_facts(batch, now):
        style = STATUS_STYLES.get(value, "") if name == "Status" else "red" if name in ("Error", "Held") else ""
        shown = clipped(value, FACT_LINES_MAX * max(1, width - BAR_CELLS)) if live else value
        facts.add_row(Text(name, style="dim"), Text(shown, style=style, overflow="fold"))
    table = progress_table(batch, now, only_open=live)
    cells = painted(table) | {"Progress": _bars(batch, table)}
    parts: list[RenderableType] = [facts, Text(""), table_view(table, width, cells, width if live else None)]
    if events:
        parts.append(Text("\nNewest events", "dim"))
        parts += [Text(event_line(event), no_wrap=True, overflow="ellipsis") for event in events]
    return Group(*parts)


def _bars(batch: Batch, table: Table) -> list[Text]:
    """For each row of the table the bar of a phase, or the counts of a step."""
    from rich.text import Text

    cells = [Text(row[3], "dim") for row in table.rows]
    phases = iter(batch.get("phase_list") or ())
    for index, row in enumerate(table.rows):
        if row[1]:  # Only phases have an offset.
            cells[index] = _bar(next(phases), row[3])
    return cells


def _bar(phase: Batch, label: str) -> Text:
    from rich.text import Text

    ended, whole = share_of(phase)
    full = round(BAR_CELLS * ended / whole) if whole else 0
    style = STATUS_STYLES.get(str(phase.get("status")), "")
    return Text().append("━" * full, style).append("━" * (BAR_CELLS - full), "grey37").append(f" {label}")
