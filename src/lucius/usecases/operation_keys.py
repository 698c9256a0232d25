"""Idempotency keys of operations. A key is kept in the audit trail, in the event of its operation."""

from __future__ import annotations

from lucius.domain.effects import Event
from lucius.domain.errors import CallerError, InfrastructureError
from lucius.domain.inputs import CancelAsked, ForceCancelAsked, Operation, PauseAsked, ResumeAsked
from lucius.ports.ledger import Ledger, LedgerUnavailable

PAGE_SIZE = 500
EVENT_OF: dict[type[Operation], str] = {
    CancelAsked: "CANCEL_ASKED",
    ForceCancelAsked: "CANCEL_FORCED",
    PauseAsked: "PAUSED",
    ResumeAsked: "RESUMED",
}
REDRIVEN = "ACCEPTED"
"""The first event of the job that a redrive created."""


async def was_applied(ledger: Ledger, job_id: str, key: str, event_type: str) -> bool:
    """Whether the trail has an event of this type with this key. Raises IDEMPOTENCY_KEY_REUSED for another type."""
    seen = 0
    while events := await _page(ledger, job_id, seen, PAGE_SIZE):
        for event in events:
            if event.type in EVENT_OF.values() and event.data.get("idempotency_key") == key:
                if event.type == event_type:
                    return True
                raise CallerError.of(
                    "IDEMPOTENCY_KEY_REUSED", f"this key belongs to another operation on this job ({event.type})"
                )
        seen = events[-1].seq
    return False


async def was_made_by(ledger: Ledger, job_id: str, key: str) -> bool:
    """Whether this job was created by a redrive with this key."""
    events = await _page(ledger, job_id, 0, 1)
    return bool(events) and events[0].type == REDRIVEN and events[0].data.get("idempotency_key") == key


async def _page(ledger: Ledger, job_id: str, seen: int, limit: int) -> list[Event]:
    try:
        return await ledger.events(job_id, seen, limit)
    except LedgerUnavailable as error:
        raise InfrastructureError.unavailable(str(error)) from error
