"""When phases are due, and when `immediate` batches start."""

from __future__ import annotations

from lucius.domain.time import Instant

MINUTE_MILLIS = 60_000
IMMEDIATE_MILLIS = 5 * MINUTE_MILLIS
"""`immediate` batches start at the last full five minutes, so that members arriving together share a batch."""


def due_at(start: Instant, offset_minutes: int) -> Instant:
    return start - offset_minutes * MINUTE_MILLIS
