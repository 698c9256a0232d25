"""The trail, newest first."""

from __future__ import annotations

from typing import Any

import msgspec

from lucius.domain.time import iso
from lucius.runbooks.views.pages import Conditions, page
from lucius.sql.database import Row, Script

_EVENT = (
    "SELECT e.id, e.at, e.kind, e.actor, e.batch_id, m.member_key, e.detail FROM runbook_events e"
    " LEFT JOIN batch_members m ON m.id = e.batch_member_id"
)


def event_page(
    runbook: str | None, batch_id: int | None, limit: int, before: int | None
) -> Script[tuple[list[dict[str, Any]], int | None]]:
    """Of a runbook, or of a batch."""
    conditions = Conditions()
    if runbook is not None:
        conditions.add("e.runbook_name = ?", runbook)
    if batch_id is not None:
        conditions.add("e.batch_id = ?", batch_id)
    if before is not None:
        conditions.add("e.id < ?", before)
    rows, next_id = yield from page(conditions.fetch(_EVENT, "e.id DESC", limit + 1), limit)
    return [_event(row) for row in rows], next_id


def _event(row: Row) -> dict[str, Any]:
    return {
        "id": row[0], "at": iso(row[1]), "kind": row[2], "actor": row[3], "batch_id": row[4], "member": row[5],
        "detail": msgspec.Raw(row[6].encode()),
    }  # fmt: skip
