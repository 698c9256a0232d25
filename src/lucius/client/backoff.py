"""How long to wait before a call is retried."""

from __future__ import annotations

import random

BACKOFF_FIRST_SECONDS = 0.2
BACKOFF_SECONDS_MAX = 10.0
RETRY_AFTER_SECONDS_MAX = 60.0


def backoff_seconds(failures: int, retry_after_seconds: float | None = None) -> float:
    """Doubles with each failure, with jitter so that clients do not all retry at once. Not less than the server's
    `Retry-After`, up to a minute."""
    ceiling = min(BACKOFF_SECONDS_MAX, BACKOFF_FIRST_SECONDS * 2.0 ** min(failures, 16))
    return max(random.uniform(ceiling / 2, ceiling), min(retry_after_seconds or 0.0, RETRY_AFTER_SECONDS_MAX))


def read_retry_after(header: str) -> float | None:
    """The seconds in a `Retry-After` header; `None` for a date or anything else."""
    return float(header) if header.isascii() and header.isdigit() else None
