"""Statuses of jobs and batches that have ended."""

from __future__ import annotations

JOB_TERMINAL = frozenset({"SUCCEEDED", "FAILED_FINAL", "CANCELLED"})
BATCH_ENDED = frozenset({"completed", "failed"})
