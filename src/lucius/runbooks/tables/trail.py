"""The audit trail of runbooks: who did what, and what the scheduler and the orchestrator found."""

from __future__ import annotations

from typing import Any

import msgspec

from lucius.domain.time import Instant

_encode = msgspec.json.Encoder().encode

WRITE = (
    "INSERT INTO runbook_events (at, kind, actor, runbook_name, batch_id, batch_member_id, detail)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7)"
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
) -> tuple[Any, ...]:
    return (at, kind, actor, runbook_name, batch_id, member_id, _encode(detail).decode())
