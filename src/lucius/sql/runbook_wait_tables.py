"""What batches and phases wait for besides time: windows and freezes (decision 0065), approvals (decision 0057)."""

from __future__ import annotations

RUNBOOK_WAITS = (
    "ALTER TABLE phase_executions ADD COLUMN wait_until BIGINT",
    "ALTER TABLE batches ADD COLUMN wait_until BIGINT",
    "ALTER TABLE batches ADD COLUMN created_by TEXT",
    """CREATE TABLE runbook_freezes (
        name TEXT NOT NULL, version BIGINT NOT NULL, place BIGINT NOT NULL, from_at BIGINT NOT NULL,
        until_at BIGINT NOT NULL, freeze_name TEXT NOT NULL, PRIMARY KEY (name, version, place))""",
    """CREATE TABLE phase_approvals (
        phase_execution_id BIGINT NOT NULL, actor TEXT NOT NULL, decision TEXT NOT NULL, reason TEXT,
        decided_at BIGINT NOT NULL, PRIMARY KEY (phase_execution_id, actor))""",
)
