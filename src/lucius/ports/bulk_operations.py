"""The port of bulk operations: where they and their jobs are kept.

Only the holder of an operation's lease records outcomes; the counts change in the same transaction as the outcomes, so
they are exact at every moment, whatever crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from lucius.domain.bulk_operation import BulkOperation, ItemStatus
from lucius.domain.time import Instant


class BulkLeaseLost(Exception):
    """Another process carries on with this operation; nothing was written."""


class BulkItem(Struct, frozen=True, kw_only=True):
    """One job of an operation, and what became of it."""

    job_id: str
    tenant_id: str
    status: ItemStatus = ItemStatus.PENDING
    new_job_id: str | None = None
    """The job that a redrive created."""
    code: str | None = None
    detail: str | None = None
    """Why it failed, was skipped or has to wait."""
    acted_at: Instant | None = None
    ended_at: Instant | None = None
    next_at: Instant = 0
    """When it is tried, or looked at, again."""


class BulkOperations(Protocol):
    """Every method raises `DatabaseUnavailable` if it cannot be carried out, and then nothing was written."""

    async def create(self, operation: BulkOperation, key: str | None, open_max: int) -> BulkOperation | None:
        """Record a new operation. Returns it, or the one that was created with the same key; None if its creator has
        `open_max` operations that have not ended."""
        ...

    async def get(self, operation_id: str) -> BulkOperation | None: ...

    async def newest(
        self, limit: int, before_id: str | None, is_wanted: Callable[[BulkOperation], bool]
    ) -> list[BulkOperation]:
        """Newest first; `before_id` continues after that operation."""
        ...

    async def items(
        self, operation_id: str, limit: int, after_id: str | None, status: ItemStatus | None = None
    ) -> list[BulkItem]:
        """The jobs of an operation, oldest first; `after_id` continues after that job."""
        ...

    async def change(self, operation_id: str, decide: Callable[[BulkOperation], BulkOperation]) -> BulkOperation | None:
        """Replace an operation by what `decide` makes of its newest state; None if there is no such operation. What
        `decide` raises is passed on, and nothing is written."""
        ...

    async def take(self, holder: str, now: Instant, lease_seconds: float, limit: int) -> list[BulkOperation]:
        """Lease up to `limit` active operations that nobody else has a lease of, or keep one's own leases."""
        ...

    async def release(self, holder: str) -> None:
        """End every lease of this holder."""
        ...

    async def select(
        self, operation_id: str, holder: str, items: Sequence[BulkItem], selected_to: str | None, now: Instant
    ) -> BulkOperation:
        """Add jobs to an operation that is being selected. `selected_to` is the last job that was looked at; None if
        there are no more. Raises `BulkLeaseLost`."""
        ...

    async def due(self, operation_id: str, status: ItemStatus, now: Instant, limit: int) -> list[BulkItem]:
        """Jobs of an operation in this state whose `next_at` has come, those that waited longest first, then the
        oldest."""
        ...

    async def record(
        self, operation_id: str, holder: str, changes: Sequence[tuple[BulkItem, BulkItem]], now: Instant
    ) -> BulkOperation:
        """Write what became of jobs, each as (before, after), and the counts and moves that follow. A job that is no
        longer as in `before` is left as it is. Raises `BulkLeaseLost`."""
        ...

    async def prune(self, ended_before: Instant, limit: int) -> int:
        """Delete up to `limit` operations that ended before this time, with their jobs; returns the number."""
        ...
