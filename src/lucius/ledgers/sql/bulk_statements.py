"""Every statement of bulk operations; tables: `sql/operation_tables.py`."""

from __future__ import annotations

INSERT = (
    "INSERT INTO operations (operation_id, claim_key, made_by, status, is_active, ended_at, lease_until, document)"
    " VALUES ($1, $2, $3, $4, $5, $6, 0, $7) ON CONFLICT (claim_key) DO NOTHING"
)
BY_CLAIM = "SELECT document FROM operations WHERE claim_key = $1"
COUNT_OPEN = "SELECT COUNT(*) FROM operations WHERE made_by = $1 AND ended_at IS NULL"
GET = "SELECT document FROM operations WHERE operation_id = $1"
LOCK = "SELECT document, lease_holder FROM operations WHERE operation_id = $1 FOR UPDATE"
UPDATE = "UPDATE operations SET status = $2, is_active = $3, ended_at = $4, document = $5 WHERE operation_id = $1"
NEWEST = "SELECT operation_id, document FROM operations ORDER BY operation_id DESC LIMIT $1"
NEWEST_BEFORE = (
    "SELECT operation_id, document FROM operations WHERE operation_id < $2 ORDER BY operation_id DESC LIMIT $1"
)
ACTIVE = (
    "SELECT operation_id, lease_holder, lease_until FROM operations WHERE is_active = 1 ORDER BY operation_id LIMIT $1"
)
LEASABLE = (
    "SELECT operation_id, document, lease_holder, lease_until FROM operations WHERE is_active = 1"
    " ORDER BY operation_id LIMIT $1 FOR UPDATE SKIP LOCKED"
)
LEASE = "UPDATE operations SET lease_holder = $2, lease_until = $3 WHERE operation_id = $1"
RELEASE = "UPDATE operations SET lease_until = 0 WHERE lease_holder = $1 AND is_active = 1"
INSERT_ITEM = (
    "INSERT INTO operation_jobs (operation_id, job_id, tenant_id, status, next_at) VALUES ($1, $2, $3, $4, 0)"
    " ON CONFLICT (operation_id, job_id) DO NOTHING"
)
ITEMS = (
    "SELECT job_id, tenant_id, status, new_job_id, code, detail, acted_at, ended_at, next_at FROM operation_jobs"
    " WHERE operation_id = $1 AND job_id > $3 ORDER BY job_id LIMIT $2"
)
ITEMS_BY_STATUS = (
    "SELECT job_id, tenant_id, status, new_job_id, code, detail, acted_at, ended_at, next_at FROM operation_jobs"
    " WHERE operation_id = $1 AND status = $4 AND job_id > $3"
    " ORDER BY job_id LIMIT $2"
)
DUE = (
    "SELECT job_id, tenant_id, status, new_job_id, code, detail, acted_at, ended_at, next_at FROM operation_jobs"
    " WHERE operation_id = $1 AND status = $2 AND next_at <= $3"
    " ORDER BY next_at, job_id LIMIT $4"
)
STATUSES = "SELECT job_id, status FROM operation_jobs WHERE operation_id = $1 AND job_id = ANY($2::text[])"
UPDATE_ITEM = (
    "UPDATE operation_jobs SET status = $3, new_job_id = $4, code = $5, detail = $6, acted_at = $7, ended_at = $8,"
    " next_at = $9 WHERE operation_id = $1 AND job_id = $2"
)
PRUNABLE = (
    "SELECT operation_id FROM operations WHERE ended_at IS NOT NULL AND ended_at < $1 ORDER BY ended_at LIMIT $2"
    " FOR UPDATE SKIP LOCKED"
)
PRUNE = (
    "DELETE FROM operation_jobs WHERE operation_id = $1",
    "DELETE FROM operations WHERE operation_id = $1",
)
