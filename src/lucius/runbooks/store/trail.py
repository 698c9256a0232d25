"""The table `runbook_events`: the audit trail of operators, scheduler and orchestrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.runbook_tenants import tenant_of_runbook
from lucius.domain.time import Instant
from lucius.ports.audit import AuditEntry, AuditKind, new_entry_id
from lucius.ports.database import Run, Script
from lucius.runbooks.core.records import TrailEntry
from lucius.runbooks.store.columns import columns_of, insert_of, values_of
from lucius.runbooks.store.paging import Conditions, page

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class NewEvent(Struct, frozen=True, kw_only=True):
    at: Instant
    kind: str
    actor: str
    runbook_name: str
    batch_id: int | None
    batch_member_id: int | None
    detail: str


WRITE = insert_of("runbook_events", NewEvent)
WRITE_ACT = insert_of("audit_entries", AuditEntry)
_ENTRY = (
    f"SELECT {columns_of(TrailEntry, {'member': 'm.member_key'}, 'e')} FROM runbook_events e"
    " LEFT JOIN batch_members m ON m.id = e.batch_member_id"
)
SCHEDULER = "scheduler"
ORCHESTRATOR = "orchestrator"
ACTS = frozenset({
    "runbook-published", "runbook-retired", "automation-on", "automation-off", "source-confirmed", "batch-detected",
    "batch-advanced", "batch-cancelled", "batch-paused", "batch-resumed", "batch-rescheduled", "member-added",
    "member-removed", "member-retried", "init-retried", "member-move-confirmed", "member-move-kept",
    "messages-sent-again", "phase-approved", "phase-refused",
})  # fmt: skip
"""What somebody decides; the rest follows from it, or from time and results."""


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
    acts = [event for event in events if event.kind in ACTS and event.actor not in (SCHEDULER, ORCHESTRATOR)]
    if acts:
        yield Run(WRITE_ACT, [values_of(_audited(event)) for event in acts])


def _audited(event: NewEvent) -> AuditEntry:
    """What a person did, for the list of what people did to anything."""
    detail: dict[str, Any] = _decode(event.detail)
    reason = detail.pop("reason", None)
    is_batch = event.batch_id is not None
    detail |= {"runbook": event.runbook_name} if is_batch else {}
    return AuditEntry(
        entry_id=new_entry_id(event.at), at=event.at, actor=event.actor, action=event.kind,
        kind=AuditKind.BATCH if is_batch else AuditKind.RUNBOOK,
        target=str(event.batch_id) if is_batch else event.runbook_name,
        tenant_id=tenant_of_runbook(event.runbook_name),
        reason=reason if isinstance(reason, str) else None, detail=_encode(detail).decode(),
    )  # fmt: skip


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
