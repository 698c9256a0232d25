"""Reads `time_zone`, `windows` and `freeze` of a runbook: their faults, and the calendar they make."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from lucius.runbooks.core.definition.calendar import DAY_MINUTES, DAYS, Calendar, Freeze, Window, freeze_of_days
from lucius.runbooks.core.definition.faults import Finding, Found
from lucius.runbooks.core.definition.places import clipped

YEARS = range(1971, 9_999)
_DATE_ADVICE = "a date is written as 2026-12-24, in the years 1971 to 9998"


def calendar_faults(document: dict[str, Any]) -> Found:
    """What the schema cannot say. The document's shape may be invalid."""
    faults: Found = []
    zone = document.get("time_zone", "UTC")
    if isinstance(zone, str) and not _is_zone(zone):
        detail = f"unknown time zone {clipped(zone)!r}; use a name of the IANA database, such as Europe/Berlin"
        faults.append(Finding("/time_zone", detail))
    for pointer, window in _items(document, "windows"):
        faults += _window_faults(window, pointer)
    for pointer, freeze in _items(document, "freeze"):
        faults += _freeze_faults(freeze, pointer)
    return faults


def _items(document: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    listed = document.get(key)
    return [(f"/{key}/{index}", item) for index, item in enumerate(listed)] if isinstance(listed, list) else []


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # A folder of the database is an OSError.
        return False
    return True


def _window_faults(window: Any, pointer: str) -> Found:
    if not isinstance(window, dict):
        return []
    if ("from" in window) != ("to" in window):
        given, other = ("from", "to") if "from" in window else ("to", "from")
        return [Finding(f"{pointer}/{other}", f"missing; add it, or remove {given} for whole days")]
    if "from" in window and window["from"] == window["to"]:
        return [Finding(f"{pointer}/to", "is the same as from; for whole days remove both")]
    return []


def _freeze_faults(freeze: Any, pointer: str) -> Found:
    if isinstance(freeze, str):
        return [] if _date(freeze) else [Finding(pointer, f"{clipped(freeze)!r} is not a date: {_DATE_ADVICE}")]
    if not isinstance(freeze, dict):
        return []
    faults: Found = []
    if "ics" in freeze:
        others = [key for key in ("from", "to", "reason") if key in freeze]
        return [Finding(f"{pointer}/{key}", "a file has its own dates and names; remove this") for key in others]
    for key in ("from", "to"):
        if key not in freeze:
            faults.append(Finding(f"{pointer}/{key}", "missing; add it"))
        elif isinstance(freeze[key], str) and _date(freeze[key]) is None:
            faults.append(Finding(f"{pointer}/{key}", f"{clipped(freeze[key])!r} is not a date: {_DATE_ADVICE}"))
    first, last = (_date(freeze.get(key)) for key in ("from", "to"))
    if first and last and last < first:
        faults.append(Finding(f"{pointer}/to", "is before from; exchange them"))
    return faults


def _date(text: Any) -> date | None:
    try:
        found = date.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.year in YEARS and len(text) == len("2026-12-24") else None


def read_calendar(document: dict[str, Any], of_files: Sequence[Freeze] = ()) -> Calendar:
    """Of a document without faults. `of_files`: the events of its files, as they were when it was published."""
    zone = document.get("time_zone", "UTC")
    listed = list(enumerate(document.get("freeze", ())))
    own = [_freeze(one, ZoneInfo(zone)) for _, one in listed if not _file_of(one)]
    return Calendar(
        time_zone=zone,
        windows=tuple(_window(window) for window in document.get("windows", ())),
        freezes=(*own, *of_files),
        files=tuple((number, _file_of(one)) for number, one in listed if _file_of(one)),
    )


def _file_of(freeze: Any) -> str:
    return str(freeze.get("ics", "")) if isinstance(freeze, dict) else ""


def _window(window: dict[str, Any]) -> Window:
    days = tuple(DAYS.index(day) for day in window.get("days", DAYS))
    if "from" not in window:
        return Window(days, 0, DAY_MINUTES)
    return Window(days, _minutes(window["from"]), _minutes(window["to"]))


def _minutes(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def _freeze(freeze: Any, zone: ZoneInfo) -> Freeze:
    if isinstance(freeze, str):
        freeze = {"from": freeze, "to": freeze}
    first, last = date.fromisoformat(freeze["from"]), date.fromisoformat(freeze["to"])
    return freeze_of_days(zone, first, last, freeze.get("reason", ""))


def window_text(window: Window) -> str:
    """As in `mon, tue 20:00-06:00`."""
    days = "every day" if len(window.days) == len(DAYS) else ", ".join(DAYS[day] for day in sorted(window.days))
    if (window.from_minutes, window.to_minutes) == (0, DAY_MINUTES):
        return days
    return f"{days} {_clock(window.from_minutes)}-{_clock(window.to_minutes)}"


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
