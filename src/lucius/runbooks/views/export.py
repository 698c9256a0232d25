"""A batch as CSV: a line a member, a column a step. Read and written a page of members at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from lucius.runbooks.sources.csv_text import write_csv
from lucius.runbooks.states import FAILURES
from lucius.runbooks.tables import batches
from lucius.runbooks.tables.definitions import Definitions
from lucius.runbooks.views.batches import batch_exists
from lucius.sql.database import Fetch, Script

PAGE = 500

_MEMBERS = (
    "SELECT id, member_key, status, failed_at FROM batch_members WHERE batch_id = $1 AND id > $2 ORDER BY id LIMIT $3"
)
_STEPS = (
    "SELECT batch_member_id, phase_execution_id, step_index, status, error_message FROM step_executions"
    " WHERE batch_member_id = ANY($1::bigint[]) ORDER BY batch_member_id, phase_execution_id, step_index"
)


class Layout(Struct, frozen=True):
    columns: tuple[str, ...]
    places: dict[tuple[int, int], int]
    """Of a phase and a step's index: the column."""


def layout(batch_id: int, definitions: Definitions) -> Script[Layout]:
    """The columns: those of a phase that more than one version has run say which."""
    batch = yield from batch_exists(batch_id)
    phases = yield from batches.phases_of(batch_id)
    names = [phase.name for phase in phases]
    columns, places = ["member", "status"], {}
    for phase in phases:
        runbook = yield from definitions.get(batch.runbook_name, phase.version)
        version = f" (v{phase.version})" if names.count(phase.name) > 1 else ""
        for index, step in enumerate(runbook.phase(phase.name).steps):
            places[phase.id, index] = len(columns)
            columns.append(f"{phase.name}/{step.name}{version}")
    return Layout((*columns, "error"), places)


def lines(batch_id: int, laid: Layout, after: int) -> Script[tuple[str, int | None]]:
    """The next lines, and the member that they end with; None after the last."""
    members = yield Fetch(_MEMBERS, (batch_id, after, PAGE))
    rows: dict[int, list[Any]] = {}
    for member_id, key, status, failed_at in members:
        shown = "failed" if status == "active" and failed_at is not None else status
        rows[member_id] = [key, shown, *[None] * (len(laid.columns) - 3), None]
    if members:
        for member_id, phase_id, index, status, error in (yield Fetch(_STEPS, [list(rows)])):
            row, place = rows[member_id], laid.places.get((phase_id, index))
            if place is not None:
                row[place] = status
            if status in FAILURES and row[-1] is None:
                row[-1] = error
    return _text(laid, list(rows.values())), members[-1][0] if len(members) == PAGE else None


def header(laid: Layout) -> str:
    return write_csv(laid.columns, [])


def _text(laid: Layout, rows: Sequence[Sequence[Any]]) -> str:
    # Names of phases and steps are one line each, so the header is the first line.
    return write_csv(laid.columns, rows).partition("\r\n")[2]
