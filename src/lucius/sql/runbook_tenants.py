"""Whose runbooks and batches are: NULL is the operator's, as all were before."""

from __future__ import annotations

RUNBOOK_TENANTS = (
    "ALTER TABLE runbooks ADD COLUMN tenant_id TEXT",
    "ALTER TABLE batches ADD COLUMN tenant_id TEXT",
    "CREATE INDEX runbooks_by_tenant ON runbooks (tenant_id, name, version) WHERE tenant_id IS NOT NULL",
    "CREATE INDEX batches_by_tenant ON batches (tenant_id, id) WHERE tenant_id IS NOT NULL",
    "CREATE INDEX batches_by_tenant_and_status ON batches (tenant_id, status, id) WHERE tenant_id IS NOT NULL",
)
