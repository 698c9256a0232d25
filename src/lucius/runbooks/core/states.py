"""The state machines of the contract as literal tables: the allowed transitions from each status.

One transition is not in the contract's diagram: an operator's retry, the only way out of a failed status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

PENDING = "pending"
DISPATCHED = "dispatched"
SUCCEEDED = "succeeded"
FAILED = "failed"
POLLING = "polling"
POLL_TIMEOUT = "poll_timeout"
ROLLED_BACK = "rolled_back"
CANCELLED = "cancelled"

STEP: Mapping[str, frozenset[str]] = {
    PENDING: frozenset({DISPATCHED, CANCELLED}),
    DISPATCHED: frozenset({SUCCEEDED, FAILED, POLLING, CANCELLED}),
    POLLING: frozenset({SUCCEEDED, FAILED, POLL_TIMEOUT, CANCELLED}),
    SUCCEEDED: frozenset(),
    FAILED: frozenset({ROLLED_BACK}),
    POLL_TIMEOUT: frozenset({ROLLED_BACK}),
    ROLLED_BACK: frozenset(),
    CANCELLED: frozenset(),
}
RETRIED: Mapping[str, frozenset[str]] = {
    FAILED: frozenset({PENDING}),
    POLL_TIMEOUT: frozenset({PENDING}),
    ROLLED_BACK: frozenset({PENDING}),
    CANCELLED: frozenset({PENDING}),
}
"""Only by an operator's retry; from `cancelled` only if the cause is in `REVOCABLE`."""

OPEN_STATUSES = frozenset({PENDING, DISPATCHED, POLLING})
OUT_OF_PHASE = frozenset({FAILED, POLL_TIMEOUT, ROLLED_BACK, CANCELLED})
FAILURES = frozenset({FAILED, POLL_TIMEOUT, ROLLED_BACK})

DETECTED = "detected"
INIT_DISPATCHED = "init_dispatched"
ACTIVE = "active"
COMPLETED = "completed"
SKIPPED = "skipped"

BATCH: Mapping[str, frozenset[str]] = {
    DETECTED: frozenset({INIT_DISPATCHED, ACTIVE, FAILED}),
    INIT_DISPATCHED: frozenset({ACTIVE, FAILED}),
    ACTIVE: frozenset({INIT_DISPATCHED, COMPLETED, FAILED}),
    COMPLETED: frozenset(),
    FAILED: frozenset(),
}
"""A batch returns to `init_dispatched` when its new version runs init again."""
BATCH_RETRIED: Mapping[str, frozenset[str]] = {FAILED: frozenset({INIT_DISPATCHED, ACTIVE})}
BATCH_ENDED = frozenset({COMPLETED, FAILED})

PHASE: Mapping[str, frozenset[str]] = {
    PENDING: frozenset({DISPATCHED, SKIPPED}),
    DISPATCHED: frozenset({COMPLETED, FAILED}),
    COMPLETED: frozenset({DISPATCHED}),
    FAILED: frozenset({DISPATCHED}),
    SKIPPED: frozenset({PENDING}),
}
"""An ended phase is reopened for a member that joins late or is retried; a skipped one when its batch's init is."""
PHASE_ENDED = frozenset({COMPLETED, FAILED, SKIPPED})

MEMBER: Mapping[str, frozenset[str]] = {ACTIVE: frozenset({"removed"}), "removed": frozenset()}

BECAUSE_REMOVED = "removed"
BECAUSE_FAILED = "member_failed"
BECAUSE_LIMIT = "max_failures"
BECAUSE_STOPPED = "batch_stopped"
BECAUSE_SUPERSEDED = "superseded"
"""Why a step was cancelled. Steps of a removed member don't count against its phase."""
BECAUSE_INIT_FAILED = "init_failed"
BECAUSE_OVERDUE = "overdue"
BECAUSE_UNMADE = "never_made_whole"
BECAUSE_UNAPPROVED = "not_approved"
BECAUSE_REFUSED = "refused"
"""Why a phase was skipped, besides `batch_stopped` and `superseded`. Retrying init restores the phases that its
failure skipped. A batch with a phase that was refused ends failed."""
REVOCABLE = frozenset({BECAUSE_FAILED, BECAUSE_LIMIT, BECAUSE_STOPPED})
"""Causes of a cancellation that a retry undoes."""

Kind = Literal["step", "init", "rollback", "removal"]
KINDS: tuple[Kind, ...] = ("step", "init", "rollback", "removal")
"""What kind of step an execution is."""
