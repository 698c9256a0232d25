"""How long steps took, for ledgers in which jobs are read at little cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lucius.domain.job import Job, JobStatus, step_millis
from lucius.ports.ledger import JobFilter, Ledger


async def step_millis_of_jobs(
    ledger: Ledger, request_type: str, tenants: Sequence[str] | None, limit: int
) -> list[Mapping[str, int]]:
    of_tenants = None if tenants is None else tuple(tenants)
    wanted = JobFilter(tenants=of_tenants, request_type=request_type, status=JobStatus.SUCCEEDED)
    return [step_millis(job) for job in await ledger.jobs(wanted, limit, None) if isinstance(job, Job)]
