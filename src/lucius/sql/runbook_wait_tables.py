"""What batches and phases wait for besides time: windows and freezes of their runbook (decision 0065)."""

from __future__ import annotations

RUNBOOK_WAITS = (
    "ALTER TABLE phase_executions ADD COLUMN wait_until BIGINT",
    "ALTER TABLE batches ADD COLUMN wait_until BIGINT",
)
