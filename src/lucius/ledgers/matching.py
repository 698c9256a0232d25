"""Whether a job is one that a filter asks for, told from the job itself."""

from __future__ import annotations

from lucius.domain.job import Job, JobStatus
from lucius.domain.signature import error_signature
from lucius.domain.waiting import wait_cause
from lucius.ports.ledger import Closing, JobFilter


def matches(job: Job, wanted: JobFilter, closing: Closing | None) -> bool:
    """All but `idempotency_key`, which is about the claim that a job has."""
    spec = job.spec
    return (
        (wanted.tenants is None or spec.tenant_id in wanted.tenants)
        and (wanted.status is None or job.status == wanted.status)
        and (wanted.statuses is None or job.status in wanted.statuses)
        and (wanted.error_signature is None or error_signature(job) == wanted.error_signature)
        and (wanted.request_type is None or spec.request_type == wanted.request_type)
        and (wanted.created_from is None or spec.created_at >= wanted.created_from)
        and (wanted.created_to is None or spec.created_at < wanted.created_to)
        and (wanted.job_id is None or spec.job_id == wanted.job_id)
        and (wanted.job_id_prefix is None or spec.job_id.startswith(wanted.job_id_prefix))
        and (wanted.correlation_id is None or spec.correlation_id == wanted.correlation_id)
        and (wanted.search is None or wanted.search in spec.searchable)
        and (wanted.wait_cause is None or wait_cause(job) == wanted.wait_cause)
        and (wanted.open_on is None or (job.engine == wanted.open_on and not job.is_terminal))
        and (not wanted.dead_letter or (job.status is JobStatus.FAILED_FINAL and closing is None))
        and (not wanted.dismissed or (closing is not None and closing.by is not None))
        and (not wanted.unclosed or closing is None)
    )
