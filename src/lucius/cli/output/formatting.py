"""Formats values for people: times, durations, percentages, errors. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lucius.cli.failures import printable

STYLES = {
    "SUCCEEDED": "green",
    "FAILED_FINAL": "bold red",
    "CANCELLED": "magenta",
    "CANCELLING": "magenta",
    "PAUSED": "yellow",
    "FAILED_RETRY": "yellow",
    "PROCESSING": "cyan",
    "INITIATED": "blue",
    "DISPATCHING": "blue",
    "IN_PROGRESS": "cyan",
}


def text_of(value: Any) -> str:
    return "" if value is None else printable(str(value))


def moment(value: Any) -> datetime | None:
    """A time in UTC; without an offset, UTC is assumed."""
    try:
        found = datetime.fromisoformat(str(value))
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def duration_text(seconds: float) -> str:
    """`0.35 s`, `12.4 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`"""
    if seconds < 1:
        return f"{max(seconds, 0.0):.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def time_taken(start: Any, end: Any, now: datetime) -> str:
    started = moment(start)
    return duration_text(((moment(end) or now) - started).total_seconds()) if started else ""


def distance(value: Any, now: datetime) -> str:
    """How far away a time is: `12.4 s ago`, `in 3 min 05 s`."""
    at = moment(value)
    if at is None:
        return ""
    seconds = (at - now).total_seconds()
    return f"in {duration_text(seconds)}" if seconds > 0 else f"{duration_text(abs(seconds))} ago"


def moment_text(value: Any, now: datetime) -> str:
    """A time and how far away it is: `2026-01-31 08:15:30 UTC (12.4 s ago)`."""
    at = moment(value)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC ({distance(value, now)})" if at else text_of(value)


def percent(value: Any) -> str:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{round(max(0.0, min(1.0, value)) * 100)} %" if known else ""


def error_text(error: Any) -> str:
    """`CODE: message` of a job's or step's error."""
    if not isinstance(error, Mapping):
        return ""
    return text_of(": ".join(str(part) for part in (error.get("code"), error.get("message")) if part))


def counted(count: int, one: str, many: str = "") -> str:
    """`1 fault`, `2 faults`"""
    return f"{count} {one if count == 1 else many or one + 's'}"


def clipped(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: max(0, chars_max - 1)].rstrip() + "…"


def steps_text(steps: Any) -> str:
    """`ocr → embedding → sis`"""
    return text_of(" → ".join(str(step.get("stepId")) for step in steps or ()))
