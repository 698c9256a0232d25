"""The table `runbook_rehearsals`: reports of rehearsals that the server made, as JSON."""

from __future__ import annotations

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Run, Script

KEPT_MAX = 20
"""Reports of one runbook."""
_COLUMNS = "rehearsal_id, runbook_name, version, made_at, made_by, report"
_WRITE = f"INSERT INTO runbook_rehearsals ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)"
_NEWEST = (
    f"SELECT {_COLUMNS} FROM runbook_rehearsals WHERE runbook_name = $1 ORDER BY runbook_name, rehearsal_id DESC"
    " LIMIT $2"
)
_ONE = f"SELECT {_COLUMNS} FROM runbook_rehearsals WHERE rehearsal_id = $1"
_FORGET = "DELETE FROM runbook_rehearsals WHERE runbook_name = $1 AND rehearsal_id < $2"


class RehearsalRow(Struct, frozen=True):
    rehearsal_id: str
    runbook_name: str
    version: int
    made_at: Instant
    made_by: str
    report: str


def add(row: RehearsalRow) -> Script[None]:
    """And forget the oldest ones of the same runbook."""
    yield Run(_WRITE, [(row.rehearsal_id, row.runbook_name, row.version, row.made_at, row.made_by, row.report)])
    kept = yield from newest(row.runbook_name, KEPT_MAX)
    yield Run(_FORGET, [(row.runbook_name, kept[-1].rehearsal_id)])


def newest(name: str, limit: int) -> Script[list[RehearsalRow]]:
    """Newest first."""
    return [RehearsalRow(*row) for row in (yield Fetch(_NEWEST, (name, limit)))]


def find(rehearsal_id: str) -> Script[RehearsalRow | None]:
    rows = yield Fetch(_ONE, [rehearsal_id])
    return RehearsalRow(*rows[0]) if rows else None
