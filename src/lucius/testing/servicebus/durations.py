"""ISO 8601 durations, as Service Bus writes them."""

from __future__ import annotations

import re

from lucius.testing.servicebus.settings import SECONDS_MAX

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SECONDS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0}
FOR_EVER = "P10675199DT2H48M5.4775807S"


def seconds_of(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None or text in ("P", "PT") or text.endswith("T"):
        raise ValueError(f"{text!r} is no duration such as 'PT30S', 'PT5M' or 'P14D'.")
    given = {name: float(value) for name, value in match.groupdict().items() if value}
    return min(sum(_SECONDS[name] * value for name, value in given.items()), SECONDS_MAX)


def duration_of(seconds: float) -> str:
    if seconds >= SECONDS_MAX:
        return FOR_EVER
    days, rest = divmod(seconds, 86_400)
    head = f"P{int(days)}D" if days else "P"
    if not rest:
        return head if days else "PT0S"
    return f"{head}T{rest:.7f}".rstrip("0").rstrip(".") + "S"
