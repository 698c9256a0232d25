"""Backoff: how long to wait before the next attempt."""

from __future__ import annotations

JITTER_SHARE = 0.1
"""Up to a tenth is added, never subtracted: the documented wait is the minimum."""

RATE_LIMIT_SECONDS_MIN = 1.0
RATE_LIMIT_SECONDS_MAX = 86_400.0


def backoff_seconds(schedule: tuple[float, ...], attempts_counted: int, jitter: float) -> float:
    """The wait after this many counted attempts; the last entry repeats. `jitter` is in [0, 1)."""
    if not schedule:
        return 0.0
    wait = schedule[min(max(attempts_counted, 1), len(schedule)) - 1]
    return wait * (1 + JITTER_SHARE * jitter)


def rate_limit_seconds(asked: float) -> float:
    return min(max(asked, RATE_LIMIT_SECONDS_MIN), RATE_LIMIT_SECONDS_MAX)
