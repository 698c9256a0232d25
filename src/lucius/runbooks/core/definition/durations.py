"""Durations (`15m`) and offsets from a batch's start (`T-5d`): parsing and formatting."""

from __future__ import annotations

import re

DURATION_SECONDS_MAX = 365 * 86_400
DURATION_ADVICE = "a duration is a positive whole number followed by s, m, h or d, such as 15m; at most 365d"
OFFSET_ADVICE = "an offset is T-5d, T-4h, T-30m, T-90s, T-0 or T+2h: before, at or after the start; at most 365d"

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_OFFSET = re.compile(r"T([-+])([1-9][0-9]{0,8}[smhd])")
_SHOWN_CHARS_MAX = 40


def parse_duration(text: str) -> int:
    """Seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"{_shown(text)} is not a duration: {DURATION_ADVICE}")
    seconds = int(match[1]) * _SECONDS[match[2]]
    if seconds > DURATION_SECONDS_MAX:
        raise ValueError(f"{text} is too long: at most 365d is allowed")
    return seconds


def parse_offset(text: str) -> int:
    """Minutes before the start, negative after it; seconds round to whole minutes, away from it. Raises ValueError."""
    if text == "T-0":
        return 0
    match = _OFFSET.fullmatch(text)
    if not match:
        raise ValueError(f"{_shown(text)} is not an offset: {OFFSET_ADVICE}")
    try:
        minutes = -(-parse_duration(match[2]) // 60)
    except ValueError:
        raise ValueError(f"{text} is too far from the start: at most 365d is allowed") from None
    return minutes if match[1] == "-" else -minutes


def show_duration(seconds: int) -> str:
    """In the largest unit that gives a whole number."""
    unit = next((unit for unit in "dhm" if seconds % _SECONDS[unit] == 0), "s") if seconds else "s"
    return f"{seconds // _SECONDS[unit]}{unit}"


def show_offset(minutes: int) -> str:
    if not minutes:
        return "T-0"
    return f"T{'-' if minutes > 0 else '+'}{show_duration(abs(minutes) * 60)}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…")
