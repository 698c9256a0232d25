"""A batch as CSV: a row per member, a column per step. Read and written one page of members at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from lucius.ports.database import Script
from lucius.runbooks.core.states import ACTIVE, FAILURES
from lucius.runbooks.service.views.batches import batch_exists
from lucius.runbooks.service.views.columns import columns_of
from lucius.runbooks.sources.csv_text import write_csv
from lucius.runbooks.store import members, steps
from lucius.runbooks.store.definitions import Definitions

PAGE = 500


class Layout(Struct, frozen=True):
    columns: tuple[str, ...]
    places: dict[tuple[int, int], int]
    """The column of each phase and step index."""


def layout(batch_id: int, definitions: Definitions) -> Script[Layout]:
    """The columns; a phase that several versions have run has the version in its column names."""
    batch = yield from batch_exists(batch_id)
    every = yield from columns_of(batch, definitions)
    versions: dict[str, set[int]] = {}
    for one in every:
        versions.setdefault(one.phase, set()).add(one.version)
    columns, places = ["member", "status"], {}
    for one in every:
        version = f" (v{one.version})" if len(versions[one.phase]) > 1 else ""
        places[one.phase_id, one.step_index] = len(columns)
        columns.append(f"{one.phase}/{one.step}{version}")
    return Layout((*columns, "error"), places)


def lines(batch_id: int, layout_: Layout, after: int, status: str = "all") -> Script[tuple[str, int | None]]:
    """The next lines, and the last member in them; None after the last."""
    found, next_id = yield from members.listed(batch_id, status, None, PAGE, after)
    rows: dict[int, list[Any]] = {}
    for member in found:
        shown = "failed" if member.status == ACTIVE and member.failed_at is not None else member.status
        rows[member.id] = [member.key, shown, *[None] * (len(layout_.columns) - 3), None]
    if found:
        for step in (yield from steps.endings(list(rows))):
            row, place = rows[step.member_id], layout_.places.get((step.phase_id, step.step_index))
            if place is not None:
                row[place] = step.status
            if step.status in FAILURES and row[-1] is None:
                row[-1] = step.error_message
    return _text(layout_, list(rows.values())), next_id


def header(layout_: Layout) -> str:
    return write_csv(layout_.columns, [])


def _text(layout_: Layout, rows: Sequence[Sequence[Any]]) -> str:
    # Names of phases and steps have no line breaks, so the header is the first line.
    return write_csv(layout_.columns, rows).partition("\r\n")[2]
