"""Statuses of jobs and batches that have ended."""

from __future__ import annotations

JOB_TERMINAL = frozenset({"SUCCEEDED", "FAILED_FINAL", "CANCELLED"})
BATCH_ENDED = frozenset({"completed", "failed"})
OPERATION_TERMINAL = frozenset({"COMPLETED", "ABANDONED"})
OPERATION_WAITED_FOR = OPERATION_TERMINAL | {"STOPPED"}
"""In which nothing more happens unless somebody acts."""
