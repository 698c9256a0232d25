"""An index for every filter of every list: the columns that are equal, then the one that the list is ordered by.

Each costs the hot path something, so all but one of those on `jobs` are written once in a job's life: when it is made
(tenant and request type never change), or when it ends. Jobs that have not ended are few, and found by their status:
the columns behind `job_id` let a list be filtered within the index.
"""

from __future__ import annotations

LIST_INDEXES = (
    "CREATE INDEX jobs_by_type ON jobs (request_type, job_id)",
    "CREATE INDEX jobs_by_tenant_and_type ON jobs (tenant_id, request_type, job_id)",
    "CREATE INDEX jobs_succeeded ON jobs (job_id) WHERE status = 'SUCCEEDED'",
    "CREATE INDEX jobs_ended_by_tenant ON jobs (tenant_id, status, job_id) WHERE completed_at IS NOT NULL",
    "CREATE INDEX jobs_ended_by_type ON jobs (request_type, status, job_id) WHERE completed_at IS NOT NULL",
    """CREATE INDEX jobs_ended_by_tenant_and_type ON jobs (tenant_id, request_type, status, job_id)
        WHERE completed_at IS NOT NULL""",
    "DROP INDEX jobs_unsuccessful",
    """CREATE INDEX jobs_unsuccessful ON jobs (status, job_id, tenant_id, request_type)
        WHERE status <> 'SUCCEEDED'""",
    "CREATE INDEX attempts_unsent_by_age ON attempts (created_at, job_id) WHERE outbox_status = 'PENDING'",
    "ALTER TABLE webhooks ADD COLUMN asked_wait_ms BIGINT NOT NULL DEFAULT 0",
    "CREATE INDEX webhooks_due_by_tenant ON webhooks (tenant_id, next_at) WHERE status = 'PENDING'",
    "CREATE INDEX batches_by_status ON batches (status, id)",
    "CREATE INDEX batches_by_runbook_and_status ON batches (runbook_name, status, id)",
    "CREATE INDEX members_by_status ON batch_members (batch_id, status, id)",
    "CREATE INDEX members_by_key ON batch_members (batch_id, member_key, id)",
    "CREATE INDEX members_failed ON batch_members (batch_id, id) WHERE status = 'active' AND failed_at IS NOT NULL",
)
