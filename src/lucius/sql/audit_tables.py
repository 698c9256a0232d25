"""The table of what people did. Each index is a filter of the list, followed by the id, which begins with the time."""

from __future__ import annotations

AUDIT_TABLES = (
    """CREATE TABLE audit_entries (
        entry_id TEXT PRIMARY KEY, at BIGINT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, kind TEXT NOT NULL,
        target TEXT NOT NULL, tenant_id TEXT, reason TEXT, detail TEXT NOT NULL)""",
    "CREATE INDEX audit_by_tenant ON audit_entries (tenant_id, entry_id) WHERE tenant_id IS NOT NULL",
    "CREATE INDEX audit_by_actor ON audit_entries (actor, entry_id)",
    "CREATE INDEX audit_by_action ON audit_entries (action, entry_id)",
    "CREATE INDEX audit_by_kind ON audit_entries (kind, entry_id)",
    "CREATE INDEX audit_by_target ON audit_entries (target, entry_id)",
)
