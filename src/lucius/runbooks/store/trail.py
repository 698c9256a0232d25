"""The table `runbook_events`: the audit trail of operators, scheduler and orchestrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.ports.database import Run, Script
from lucius.runbooks.core.records import TrailEntry
from lucius.runbooks.store.columns import columns_of, insert_of, values_of
from lucius.runbooks.store.paging import Conditions, page

_encode = msgspec.json.Encoder().encode


class NewEvent(Struct, frozen=True, kw_only=True):
    at: Instant
    kind: str
    actor: str
    runbook_name: str
    batch_id: int | None
    batch_member_id: int | None
    detail: str


WRITE = insert_of("runbook_events", NewEvent)
_ENTRY = (
    f"SELECT {columns_of(TrailEntry, {'member': 'm.member_key'}, 'e')} FROM runbook_events e"
    " LEFT JOIN batch_members m ON m.id = e.batch_member_id"
)
SCHEDULER = "scheduler"
ORCHESTRATOR = "orchestrator"


def entry(
    at: Instant,
    kind: str,
    actor: str,
    runbook_name: str,
    batch_id: int | None = None,
    member_id: int | None = None,
    **detail: Any,
) -> NewEvent:
    return NewEvent(
        at=at, kind=kind, actor=actor, runbook_name=runbook_name, batch_id=batch_id, batch_member_id=member_id,
        detail=_encode(detail).decode(),
    )  # fmt: skip


def write(events: Sequence[NewEvent]) -> Script[None]:
    yield Run(WRITE, [values_of(event) for event in events])


def listed(
    runbook: str | None, batch_id: int | None, limit: int, before: int | None
) -> Script[tuple[list[TrailEntry], int | None]]:
    """A page of a runbook's or batch's events, newest first, and the id from which the next page continues."""
    conditions = Conditions()
    conditions.add_given("e.runbook_name = ?", runbook)
    conditions.add_given("e.batch_id = ?", batch_id)
    conditions.add_given("e.id < ?", before)
    rows, next_id = yield from page(conditions.fetch(_ENTRY, "runbook_events e", "e.id DESC", limit + 1), limit)
    return [TrailEntry(*row) for row in rows], next_id
