"""How many steps of a phase are in which status, and batches that are being cancelled (decision 0070)."""

from __future__ import annotations

STEP_COUNTS = (
    """CREATE TABLE step_counts (
        phase_execution_id BIGINT NOT NULL, step_index BIGINT NOT NULL, step_name TEXT NOT NULL,
        pending BIGINT NOT NULL, dispatched BIGINT NOT NULL, polling BIGINT NOT NULL, succeeded BIGINT NOT NULL,
        failed BIGINT NOT NULL, poll_timeout BIGINT NOT NULL, rolled_back BIGINT NOT NULL, cancelled BIGINT NOT NULL,
        dispatched_in_flight BIGINT NOT NULL, polling_in_flight BIGINT NOT NULL,
        PRIMARY KEY (phase_execution_id, step_index))""",
    "ALTER TABLE batch_changes ADD COLUMN counted BOOLEAN NOT NULL DEFAULT FALSE",
    # A batch without changes counts as counted, because it has no steps; these have.
    """INSERT INTO batch_changes (batch_id, change_number, changed)
        SELECT b.id, 1, NULL FROM batches b WHERE NOT EXISTS (SELECT 1 FROM batch_changes c WHERE c.batch_id = b.id)""",
    "ALTER TABLE batches ADD COLUMN cancelling BOOLEAN NOT NULL DEFAULT FALSE",
    "CREATE INDEX batches_cancelling ON batches (id) WHERE cancelling = TRUE",
)
"""`counted`: whether the program that made this change kept `step_counts` up to it; older programs leave it out."""
