"""Which recipients of a tenant are told of a change of one of its jobs."""

from __future__ import annotations

from lucius.domain.job import JobStatus
from lucius.domain.notifications import Cause, Facts, Notice, Recipient, notices_of
from lucius.domain.signature import error_signature
from lucius.ports.ledger import Change
from lucius.ports.registry import Registry


class JobNotices:
    """Costs one comparison for a change that is not a failure."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def of(self, change: Change) -> list[Notice]:
        job = change.after
        if job.status is not JobStatus.FAILED_FINAL or (change.before is not None and change.before.is_terminal):
            return []
        recipients = self._recipients(job.spec.tenant_id)
        if not recipients:
            return []
        facts = Facts(
            cause=Cause.JOB_FAILED,
            at=job.updated_at,
            about=error_signature(job) or "",
            tenant_id=job.spec.tenant_id,
            job_id=job.job_id,
            request_type=job.spec.request_type,
            status=job.status.value,
            reason=None if job.error is None else f"{job.error.code}: {job.error.message}",
        )
        return notices_of(facts, recipients)

    def _recipients(self, tenant_id: str) -> tuple[Recipient, ...]:
        tenant = self._registry.snapshot().tenants.get(tenant_id)
        return () if tenant is None else tenant.notifications.recipients

    def warned_of_deadlines(self) -> dict[str, float]:
        """Tenants with a recipient who wants to know before a deadline, and how many seconds before."""
        return {
            tenant.id: tenant.notifications.warn_before_seconds
            for tenant in self._registry.snapshot().tenants.values()
            if any(one.wants(Cause.DEADLINE_NEAR) for one in tenant.notifications.recipients)
        }

    def of_deadlines(self, facts: Facts) -> list[Notice]:
        return notices_of(facts, self._recipients(facts.tenant_id or ""))
