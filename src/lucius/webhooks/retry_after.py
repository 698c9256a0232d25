"""The header `Retry-After`: seconds, or a date."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from lucius.domain.time import Instant, from_datetime

SECONDS_MAX = 3_600.0
"""Maximum wait: a receiver that asks for more is called again after this."""
_CHARS_MAX = 64


def wait_wanted(header: str | None, now: Instant) -> float:
    """The seconds to wait; 0 if the header is missing or unreadable."""
    text = (header or "").strip()
    if not text or len(text) > _CHARS_MAX:
        return 0.0
    if text.isascii() and text.isdigit():
        return min(float(text), SECONDS_MAX)
    try:
        seconds = (from_datetime(parsedate_to_datetime(text)) - now) / 1000
    except (ValueError, TypeError, OverflowError, OSError):
        return 0.0
    return min(max(seconds, 0.0), SECONDS_MAX)
