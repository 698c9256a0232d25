"""Bulk operations as the API shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from lucius.client.models.decoding import Model, named
from lucius.client.models.jobs import Job
from lucius.client.statuses import OPERATION_TERMINAL


@dataclass(frozen=True, kw_only=True)
class OperationEvent(Model):
    at: datetime
    type: str
    by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Operation(Model):
    """One action on every job that matched a filter. `pending` to `skipped` add up to `jobs`."""

    operation_id: str = named("operationId")
    action: str
    status: str
    sentence: str = ""
    """Where it stands, and what to do."""
    by: str = ""
    reason: str = ""
    jobs: int = 0
    pending: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    rate_per_second: float | None = None
    canary: int = 0
    canary_max_failures: int = 0
    max_failures: int | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    ended_at: datetime | None = None
    events: list[OperationEvent] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        return self.status in OPERATION_TERMINAL

    @property
    def has_stopped(self) -> bool:
        """Too many jobs failed: somebody must resume or abandon it."""
        return self.status == "STOPPED"


@dataclass(frozen=True, kw_only=True)
class OperationPreview(Model):
    action: str
    count: int
    sample: list[Job] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class OperationOutcome(Model):
    """What became of one job: `PENDING`, `STARTED`, `SUCCEEDED`, `FAILED` or `SKIPPED`."""

    job_id: str = named("jobId")
    tenant_id: str = ""
    status: str = ""
    new_job_id: str | None = field(default=None, metadata={"name": "new_jobId"})
    code: str | None = None
    detail: str | None = None
    acted_at: datetime | None = None
    ended_at: datetime | None = None
