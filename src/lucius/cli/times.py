"""Times on the command line: ISO 8601, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

from lucius.cli.output.formatting import moment

SECONDS_OF_UNIT = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
DURATION_SECONDS_MAX = 100 * 365 * 86_400

_DURATION = re.compile(r"(\d{1,12})([smhdw])")


def read_duration(text: str) -> int | None:
    """The seconds of a whole number with a unit: `90s`, `15m`, `12h`, `30d`, `8w`."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = int(match[1]) * SECONDS_OF_UNIT[match[2]] if match else 0
    return seconds if 0 < seconds <= DURATION_SECONDS_MAX else None


def seconds_of(context: click.Context, parameter: click.Parameter, value: str) -> int:
    seconds = read_duration(value)
    if seconds is None:
        raise click.BadParameter(f"{value!r} is not a duration such as 90s, 15m, 12h, 30d or 8w", context, parameter)
    return seconds


def future_time(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A time in ISO 8601 (UTC without an offset), or a duration: that long from now."""
    return _time(context, parameter, value, 1, "from now")


def past_time(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A time in ISO 8601 (UTC without an offset), or a duration: that long ago."""
    return _time(context, parameter, value, -1, "ago")


def _time(context: click.Context, parameter: click.Parameter, value: str | None, sign: int, way: str) -> str | None:
    if value is None:
        return None
    seconds = read_duration(value)
    found = moment(value) if seconds is None else datetime.now(UTC) + sign * timedelta(seconds=seconds)
    if found is None:
        message = f"{value!r} is neither a time such as 2027-03-15T08:00:00Z nor how long {way}, such as 90s, 1h or 7d"
        raise click.BadParameter(message, context, parameter)
    if seconds is None and datetime.fromisoformat(value).tzinfo is not None:
        return value
    return found.isoformat().replace("+00:00", "Z")
