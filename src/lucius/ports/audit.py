"""The port of the audit list: what people did, whatever it was done to.

The trails of jobs, operations and runbooks hold more; here an act is found without knowing what it was done to.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import count
from secrets import token_hex
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from lucius.domain.bulk_operation import BulkEvent, BulkOperation
from lucius.domain.effects import Event
from lucius.domain.job import Job
from lucius.domain.time import Instant
from lucius.ports.ledger import Closing

OPERATION_KEY = "operation:"
"""What the keys of acts on single jobs begin with that a bulk operation carries out: they are listed as one, under the
operation, and callers cannot use such keys."""


_numbers = count()


class AuditKind(StrEnum):
    """To what something was done."""

    JOB = "job"
    DEAD_LETTER = "dead-letter"
    OPERATION = "operation"
    RUNBOOK = "runbook"
    BATCH = "batch"
    LEDGER = "ledger"


class AuditEntry(Struct, frozen=True, kw_only=True):
    entry_id: str
    """Begins with its time, so that ids sort like times."""
    at: Instant
    actor: str
    action: str
    kind: AuditKind
    target: str
    """The id of the job or operation, the name of the runbook, the number of the batch."""
    tenant_id: str | None
    """None: it is not about one tenant, and seen only by callers on all of them."""
    reason: str | None
    detail: str
    """More about it, as a JSON object."""


class AuditFilter(Struct, frozen=True, kw_only=True):
    tenants: tuple[str, ...] | None = None
    """Only entries about these tenants; None is all, also those about none in particular."""
    actor: str | None = None
    action: str | None = None
    kind: AuditKind | None = None
    target: str | None = None
    at_from: Instant | None = None
    at_to: Instant | None = None


class AuditSource(Protocol):
    async def audit(self, filter_: AuditFilter, limit: int, before_id: str | None) -> Sequence[AuditEntry]:
        """Newest first; `before_id` continues after that entry."""
        ...


JOB_ACTIONS = {
    "ACCEPTED": "redrive",
    "PAUSED": "pause",
    "RESUMED": "resume",
    "CANCEL_ASKED": "cancel",
    "CANCEL_FORCED": "force-cancel",
}
"""By the type of the event; an accepted job is somebody's act only if it redrives another."""


def is_act(event: Event) -> bool:
    """Whether a person, or a program with a key of its own, did this."""
    return event.type in JOB_ACTIONS and "by" in event.data and not _is_of_operation(event)


def _is_of_operation(event: Event) -> bool:
    return str(event.data.get("idempotency_key", "")).startswith(OPERATION_KEY)


def entry_of(job: Job, event: Event, entry_id: str) -> AuditEntry:
    """The entry of an act on a job. A redrive is done to the job that it repeats."""
    spec, is_redrive = job.spec, event.type == "ACCEPTED"
    return AuditEntry(
        entry_id=entry_id,
        at=event.at,
        actor=str(event.data["by"]),
        action=JOB_ACTIONS[event.type],
        kind=AuditKind.JOB,
        target=(spec.redrive_of or spec.job_id) if is_redrive else spec.job_id,
        tenant_id=spec.tenant_id,
        reason=event.data.get("reason"),
        detail=_encode(_redriven(event, spec.job_id)).decode() if is_redrive else "{}",
    )


def _redriven(event: Event, new_job_id: str) -> dict[str, Any]:
    return {"redriven_as": new_job_id} | ({"new_payload": True} if event.data.get("new_payload") else {})


def dismissal_of(closing: Closing, tenant_id: str | None, entry_id: str) -> AuditEntry:
    return AuditEntry(
        entry_id=entry_id, at=closing.at, actor=closing.by or "", action="dismiss", kind=AuditKind.DEAD_LETTER,
        target=closing.job_id, tenant_id=tenant_id, reason=closing.reason, detail="{}",
    )  # fmt: skip


OPERATION_ACTIONS = {"PAUSED": "pause", "RESUMED": "resume", "ABANDONED": "abandon"}
"""By the type of the event of a bulk operation."""

_encode = msgspec.json.Encoder().encode


def creation_of(operation: BulkOperation, entry_id: str) -> AuditEntry:
    """That somebody began a bulk operation."""
    detail = _encode({"action": operation.action, "filter": operation.filter}).decode()
    event = BulkEvent(at=operation.created_at, type="create", by=operation.by, reason=operation.reason)
    return _of_operation(operation, event, "create", detail, entry_id)


def steering_events(before: BulkOperation, after: BulkOperation) -> list[BulkEvent]:
    """Who paused, resumed or abandoned a bulk operation between the two."""
    return [
        event
        for event in after.events
        if event.by is not None and event.type in OPERATION_ACTIONS and event not in before.events
    ]


def steering_of(operation: BulkOperation, event: BulkEvent, entry_id: str) -> AuditEntry:
    return _of_operation(operation, event, OPERATION_ACTIONS[event.type], "{}", entry_id)


def _of_operation(operation: BulkOperation, event: BulkEvent, action: str, detail: str, entry_id: str) -> AuditEntry:
    tenants = operation.filter.tenants
    return AuditEntry(
        entry_id=entry_id, at=event.at, actor=event.by or "", action=action, kind=AuditKind.OPERATION,
        target=operation.operation_id, tenant_id=tenants[0] if tenants is not None and len(tenants) == 1 else None,
        reason=event.reason, detail=detail,
    )  # fmt: skip


def matches(entry: AuditEntry, wanted: AuditFilter) -> bool:
    return (
        (wanted.tenants is None or entry.tenant_id in wanted.tenants)
        and (wanted.actor is None or entry.actor == wanted.actor)
        and (wanted.action is None or entry.action == wanted.action)
        and (wanted.kind is None or entry.kind is wanted.kind)
        and (wanted.target is None or entry.target == wanted.target)
        and (wanted.at_from is None or entry.at >= wanted.at_from)
        and (wanted.at_to is None or entry.at < wanted.at_to)
    )


def first_entry_id_at(instant: Instant) -> str:
    """The smallest id that an entry of this moment can have."""
    return f"{min(max(instant, 0), (1 << 48) - 1):012x}"


def new_entry_id(at: Instant) -> str:
    """Entries of the same millisecond and process keep their order."""
    return f"{first_entry_id_at(at)}-{next(_numbers) & 0xFFFFFFFF:08x}-{token_hex(4)}"
