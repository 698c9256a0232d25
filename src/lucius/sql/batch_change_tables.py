"""The table that tells followers of a batch what has changed in it (decision 0043)."""

from __future__ import annotations

BATCH_CHANGES = (
    """CREATE TABLE batch_changes (
        batch_id BIGINT NOT NULL, change_number BIGINT NOT NULL, changed TEXT,
        PRIMARY KEY (batch_id, change_number))""",
)
"""`changed` names steps and members, as JSON; NULL says that anything may have changed."""
