"""The tables of bulk operations, and of the workers that have asked for work."""

from __future__ import annotations

OPERATION_TABLES = (
    """CREATE TABLE operations (
        operation_id TEXT PRIMARY KEY, claim_key TEXT NOT NULL, made_by TEXT NOT NULL, status TEXT NOT NULL,
        is_active BIGINT NOT NULL, ended_at BIGINT, lease_holder TEXT, lease_until BIGINT NOT NULL,
        document TEXT NOT NULL)""",
    "CREATE UNIQUE INDEX operations_once ON operations (claim_key)",
    "CREATE INDEX operations_active ON operations (operation_id) WHERE is_active = 1",
    "CREATE INDEX operations_open ON operations (made_by) WHERE ended_at IS NULL",
    "CREATE INDEX operations_by_end ON operations (ended_at) WHERE ended_at IS NOT NULL",
    """CREATE TABLE operation_jobs (
        operation_id TEXT NOT NULL, job_id TEXT NOT NULL, tenant_id TEXT NOT NULL, status TEXT NOT NULL,
        new_job_id TEXT, code TEXT, detail TEXT, acted_at BIGINT, ended_at BIGINT, next_at BIGINT NOT NULL,
        PRIMARY KEY (operation_id, job_id)) /* clustered */""",
    "CREATE INDEX operation_jobs_due ON operation_jobs (operation_id, status, next_at, job_id)",
    "CREATE INDEX operation_jobs_by_status ON operation_jobs (operation_id, status, job_id)",
)
WORKER_TABLES = (
    """CREATE TABLE workers (
        kind TEXT NOT NULL, name TEXT NOT NULL, instance TEXT NOT NULL, version TEXT, in_work BIGINT,
        first_seen_at BIGINT NOT NULL, last_seen_at BIGINT NOT NULL,
        PRIMARY KEY (kind, name, instance)) /* clustered */""",
    "CREATE INDEX workers_by_age ON workers (last_seen_at)",
)
WORKER_FAILURES = (
    """CREATE TABLE worker_failures (
        kind TEXT NOT NULL, name TEXT NOT NULL, instance TEXT NOT NULL, minute BIGINT NOT NULL,
        failures BIGINT NOT NULL, PRIMARY KEY (minute, kind, name, instance)) /* clustered */""",
)
