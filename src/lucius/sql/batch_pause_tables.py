"""Batches that an operator has paused, or moved to another time (decision 0062)."""

from __future__ import annotations

BATCH_PAUSES = (
    "ALTER TABLE batches ADD COLUMN paused_at BIGINT",
    "ALTER TABLE batches ADD COLUMN pause_reason TEXT",
    "ALTER TABLE batches ADD COLUMN delay_millis BIGINT NOT NULL DEFAULT 0",
)
