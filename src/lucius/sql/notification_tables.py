"""The tables of notifications (decision 0064)."""

from __future__ import annotations

NOTIFICATION_TABLES = (
    """CREATE TABLE notifications (
        notification_id TEXT PRIMARY KEY, owner TEXT NOT NULL, recipient_name TEXT NOT NULL, cause TEXT NOT NULL,
        tenant_id TEXT, runbook_name TEXT, batch_id BIGINT, job_id TEXT, facts TEXT NOT NULL, recipient TEXT NOT NULL,
        status TEXT NOT NULL, attempts BIGINT NOT NULL, created_at BIGINT NOT NULL, due_at BIGINT NOT NULL,
        next_at BIGINT NOT NULL, ended_at BIGINT, last_error TEXT)""",
    "CREATE INDEX notifications_due ON notifications (next_at) WHERE status = 'PENDING'",
    "CREATE INDEX notifications_ended ON notifications (ended_at) WHERE status <> 'PENDING'",
    "CREATE INDEX notifications_of_jobs ON notifications (job_id) WHERE status = 'PENDING' AND job_id IS NOT NULL",
    "CREATE INDEX notifications_by_owner ON notifications (owner, notification_id)",
    """CREATE TABLE notification_causes (
        cause_key TEXT PRIMARY KEY, last_id TEXT NOT NULL, last_due_at BIGINT NOT NULL, free_at BIGINT NOT NULL)""",
    "CREATE INDEX notification_causes_free ON notification_causes (free_at)",
)
"""`notification_causes` has a row for each cause and recipient: the newest notification, when it is due, and from when
on the next one may be sent."""
