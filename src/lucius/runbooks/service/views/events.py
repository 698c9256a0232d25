"""The trail, newest first."""

from __future__ import annotations

from lucius.domain.time import iso
from lucius.ports.database import Script
from lucius.runbooks.core.answers import RunbookEvent
from lucius.runbooks.core.records import TrailEntry
from lucius.runbooks.service.views.pages import Paged, json_text
from lucius.runbooks.store import trail


def event_page(
    runbook: str | None, batch_id: int | None, limit: int, before: int | None
) -> Script[Paged[RunbookEvent]]:
    """Of a runbook, or of a batch."""
    found, next_id = yield from trail.listed(runbook, batch_id, limit, before)
    return [_event(one) for one in found], next_id


def _event(one: TrailEntry) -> RunbookEvent:
    return {
        "id": one.id, "at": iso(one.at), "kind": one.kind, "actor": one.actor, "batch_id": one.batch_id,
        "member": one.member, "detail": json_text(one.detail),
    }  # fmt: skip
