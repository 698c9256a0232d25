"""Instants are whole milliseconds since the epoch, UTC: cheap to compare, exact in every store."""

from __future__ import annotations

from datetime import UTC, datetime

Instant = int


def after(now: Instant, seconds: float) -> Instant:
    return now + round(seconds * 1000)


def iso(instant: Instant) -> str:
    """`2026-01-31T08:15:30.250Z`"""
    seconds, millis = divmod(instant, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


def from_datetime(moment: datetime) -> Instant:
    return round(moment.timestamp() * 1000)
