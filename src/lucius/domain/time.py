"""Instants are whole milliseconds since the epoch, UTC: cheap to compare, exact in every store."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

Instant = int

EARLIEST: Instant = 0
LATEST: Instant = 253_402_300_799_999
"""The instants that LUCIUS accepts: 1970-01-01 to 9999-12-31, UTC."""
RANGE = "1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z"

_SHOWN_MIN, _SHOWN_MAX = -62_135_596_800_000, LATEST
"""The range of ISO 8601 with four-digit years: 1 to 9999."""
CLOCK_TOLERANCE_SECONDS = 5.0
"""Tolerated difference between clocks. A clock that is further ahead is wrong."""


class InstantOutOfRange(ValueError):
    """A time that LUCIUS does not accept; the message continues the name of the field."""


class BadMoment(ValueError):
    """The message continues the name of the field."""


def after(now: Instant, seconds: float) -> Instant:
    return now + round(seconds * 1000)


@lru_cache(maxsize=4096)
def iso(instant: Instant) -> str:
    """`2026-01-31T08:15:30.250Z`. Never raises: an instant outside the calendar is shown as the calendar's
    first or last one, so that a bad number in a table does not hide the rest of it."""
    seconds, millis = divmod(min(max(instant, _SHOWN_MIN), _SHOWN_MAX), 1000)
    return f"{_to_the_second(seconds)}.{millis:03d}Z"


@lru_cache(maxsize=1024)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")


def from_datetime(moment: datetime) -> Instant:
    """The instant of a datetime with a time zone. Raises `InstantOutOfRange`."""
    instant = round(moment.timestamp() * 1000)
    if not EARLIEST <= instant <= LATEST:
        raise InstantOutOfRange(f"is outside {RANGE}")
    return instant


def read_moment(text: str) -> datetime:
    """Raises `BadMoment`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadMoment("must be a date and time in ISO 8601") from None
    if moment.tzinfo is None:
        raise BadMoment("must have a time zone, such as Z")
    return moment
