"""Instants are whole milliseconds since the epoch, UTC: cheap to compare, exact in every store."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

Instant = int


def after(now: Instant, seconds: float) -> Instant:
    return now + round(seconds * 1000)


def iso(instant: Instant) -> str:
    """`2026-01-31T08:15:30.250Z`"""
    seconds, millis = divmod(instant, 1000)
    return f"{_to_the_second(seconds)}.{millis:03d}Z"


@lru_cache(maxsize=1024)
def _to_the_second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def from_datetime(moment: datetime) -> Instant:
    return round(moment.timestamp() * 1000)
