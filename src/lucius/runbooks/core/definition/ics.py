"""Reads the events of an iCalendar file (RFC 5545) as freezes. Pure.

A subset is read: VEVENTs with dates or times, an end or a duration, plain repetitions and exceptions. Whatever else
would change when an event takes place is refused with its line, because a freeze that is silently missed is worse than
a file that is not accepted. What does not (alarms, attendees, time zone definitions) is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.core.definition.calendar import DAYS, Freeze, instant_of

BYTES_MAX = 1_048_576
FREEZES_MAX = 2_000
"""That the events of all files of a runbook may come to."""
REPEATS_MAX = 20_000
"""Dates that one repetition may go through."""
NAME_CHARS_MAX = 200
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_DAYS = {name[:2].upper(): number for number, name in enumerate(DAYS)}
_WHEN = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})Z?)?", re.ASCII)
_DURATION = re.compile(r"\+?P(?:(\d{1,4})W|(?:(\d{1,4})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,5})M)?(?:(\d{1,5})S)?)?)")


class IcsInvalid(Exception):
    def __init__(self, line: int, detail: str) -> None:
        super().__init__(f"line {line}: {detail}")


class _Property(Struct, frozen=True):
    line: int
    parameters: dict[str, str]
    value: str


class _Moment(Struct, frozen=True):
    """A wall time in a zone, or a whole day."""

    wall: datetime
    zone: ZoneInfo
    is_day: bool

    def instant(self, wall: datetime, *, latest: bool = False) -> Instant:
        minutes = wall.hour * 60 + wall.minute
        return instant_of(self.zone, wall.date(), minutes, latest=latest) + wall.second * 1000

    def wall_in(self, zone: ZoneInfo) -> datetime:
        """What clocks in another zone show then; a whole day is the same everywhere."""
        if self.is_day or self.zone == zone:
            return self.wall
        return self.wall.replace(tzinfo=self.zone).astimezone(zone).replace(tzinfo=None)


_Event = dict[str, list[_Property]]


def read_ics(text: str, zone: ZoneInfo, from_at: Instant, until_at: Instant) -> list[Freeze]:
    """The events that take place between these times; `zone` is that of times without one. Raises `IcsInvalid`."""
    found: list[Freeze] = []
    for event in _events(text):
        for freeze in _freezes(event, zone, until_at):
            if freeze.until_at > from_at and freeze.from_at < until_at:
                found.append(freeze)
            if len(found) > FREEZES_MAX:
                raise IcsInvalid(event["BEGIN"][0].line, f"the events come to more than {FREEZES_MAX} freezes")
    return sorted(found, key=lambda one: (one.from_at, one.until_at, one.name))


def _events(text: str) -> Iterator[_Event]:
    inside: list[str] = []
    event: _Event = {}
    for name, one in _properties(text):
        if name == "BEGIN":
            inside.append(one.value.upper())
            if inside[-1] == "VEVENT":
                event = {"BEGIN": [one]}
        elif name == "END":
            if not inside or inside.pop() != one.value.upper():
                raise IcsInvalid(one.line, f"END:{one.value[:40]} ends nothing")
            if one.value.upper() == "VEVENT":
                yield event
        elif not inside:
            raise IcsInvalid(one.line, "this is no iCalendar file: it does not begin with BEGIN:VCALENDAR")
        elif inside[-1] == "VEVENT":
            event.setdefault(name, []).append(one)
    if inside:
        raise IcsInvalid(text.count("\n") + 1, f"the file ends within {inside[-1][:40]}: it may be cut off")


def _properties(text: str) -> Iterator[tuple[str, _Property]]:
    """Each content line, with the lines that continue it."""
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if line[:1] in (" ", "\t") and lines:
            lines[-1] = (lines[-1][0], lines[-1][1] + line[1:])
        elif line.strip():
            lines.append((number, line))
    for number, line in lines:
        head, colon, value = _split(line)
        if not colon:
            raise IcsInvalid(number, "expected NAME:value")
        name, *parameters = head.split(";")
        pairs = (part.partition("=") for part in parameters)
        yield name.upper(), _Property(number, {key.upper(): said.strip('"') for key, _, said in pairs}, value.strip())


def _split(line: str) -> tuple[str, str, str]:
    """At the first colon that is not in quotes."""
    quoted = False
    for place, character in enumerate(line):
        quoted ^= character == '"'
        if character == ":" and not quoted:
            return line[:place], ":", line[place + 1 :]
    return line, "", ""


# --- One event -------------------------------------------------------------------------------------------------------


def _freezes(event: _Event, zone: ZoneInfo, until_at: Instant) -> Iterator[Freeze]:
    begin = event["BEGIN"][0].line
    if any(one.value.upper() == "CANCELLED" for one in event.get("STATUS", ())):
        return
    for name in ("RDATE", "EXRULE", "RECURRENCE-ID"):
        if name in event:
            raise IcsInvalid(event[name][0].line, f"{name} is not supported; write the event out")
    if len(event.get("DTSTART", ())) != 1:
        raise IcsInvalid(begin, "an event needs one DTSTART")
    start = _moment(event["DTSTART"][0], zone)
    length = _length(event, start, zone)
    summary = event["SUMMARY"][0].value if "SUMMARY" in event else "event"
    name = re.sub(r"\\([,;\\nN])", lambda found: " " if found[1] in "nN" else found[1], summary)[:NAME_CHARS_MAX]
    skipped = {
        _moment(_Property(one.line, one.parameters, part), zone).wall_in(start.zone)
        for one in event.get("EXDATE", ())
        for part in one.value.split(",")
    }
    horizon = datetime.fromtimestamp(until_at // 1000, UTC).replace(tzinfo=None) + timedelta(days=1)
    for wall in _repeats(event, start, horizon):
        if wall <= horizon and wall not in skipped and length > timedelta():
            last = start.instant(wall + length, latest=True)
            yield Freeze(start.instant(wall), last, f"{wall.date().isoformat()} ({name})")


def _moment(one: _Property, zone: ZoneInfo) -> _Moment:
    value, said = one.value, one.parameters.get("TZID", "")
    try:
        match = _WHEN.fullmatch(value)
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6]) if match else [0] * 6
        wall = datetime.combine(date(year, month, day), time(hour, minute, min(second, 59)))
        zone = ZoneInfo("UTC" if value.endswith("Z") else said or zone.key)
    except (KeyError, ValueError, OSError):
        place = f" in the time zone {said[:64]!r}" if said else ""
        detail = f"{value[:40]!r}{place} is no date and time that is supported"
        raise IcsInvalid(one.line, f"{detail}; time zones are named as in the IANA database") from None
    if not 1971 <= wall.year <= 9_998:
        raise IcsInvalid(one.line, "only the years 1971 to 9998 are supported")
    return _Moment(wall, zone, is_day="T" not in value)


def _length(event: _Event, start: _Moment, zone: ZoneInfo) -> timedelta:
    """By clocks on the wall; of a whole day without an end, that day."""
    if "DTEND" in event:
        one = event["DTEND"][0]
        end = _moment(one, zone)
        if end.is_day != start.is_day:
            raise IcsInvalid(one.line, "DTSTART and DTEND must both be dates, or both have a time")
        wall = end.wall_in(start.zone)
        if wall < start.wall:
            raise IcsInvalid(one.line, "DTEND is before DTSTART")
        return wall - start.wall
    if "DURATION" in event:
        one = event["DURATION"][0]
        match = _DURATION.fullmatch(one.value)
        if match is None:
            raise IcsInvalid(one.line, f"{one.value[:40]!r} is no duration that is supported, such as P2D or PT8H")
        weeks, days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    return timedelta(days=1) if start.is_day else timedelta()


# --- Repetitions -----------------------------------------------------------------------------------------------------


class _Rule(Struct, frozen=True):
    frequency: str
    interval: int
    count: int | None
    until: datetime | None
    days: frozenset[int]


def _repeats(event: _Event, start: _Moment, horizon: datetime) -> Iterator[datetime]:
    if "RRULE" not in event:
        yield start.wall
        return
    if len(event["RRULE"]) > 1:
        raise IcsInvalid(event["RRULE"][1].line, "an event has one RRULE at most")
    one = event["RRULE"][0]
    rule = _rule(one, start)
    made = 0
    for number, wall in enumerate(_dates(rule, start.wall)):
        if number > REPEATS_MAX:
            raise IcsInvalid(one.line, f"the repetition goes through more than {REPEATS_MAX} dates: begin it later")
        if wall is None:
            continue
        if wall > horizon or (rule.until is not None and wall > rule.until) or made == rule.count:
            return
        made += 1
        yield wall


def _dates(rule: _Rule, first: datetime) -> Iterator[datetime | None]:
    """None for a date that a month does not have."""
    if rule.frequency in ("DAILY", "WEEKLY"):
        monday = first - timedelta(days=first.weekday())
        step = 0
        while True:
            if rule.frequency == "DAILY":
                yield first + timedelta(days=step * rule.interval)
            else:
                week = monday + timedelta(weeks=step * rule.interval)
                yield from (wall for day in sorted(rule.days) if (wall := week + timedelta(days=day)) >= first)
            step += 1
    months = rule.interval * (12 if rule.frequency == "YEARLY" else 1)
    month = first.year * 12 + first.month - 1
    while month // 12 <= date.max.year - 1:
        try:
            yield first.replace(year=month // 12, month=month % 12 + 1)
        except ValueError:
            yield None
        month += months


def _rule(one: _Property, start: _Moment) -> _Rule:
    parts = dict(part.upper().partition("=")[::2] for part in one.value.split(";") if part)
    frequency = parts.pop("FREQ", "")
    parts.pop("WKST", None)
    days = frozenset({start.wall.weekday()})
    if frequency == "WEEKLY" and "BYDAY" in parts:
        named = parts.pop("BYDAY").split(",")
        if not set(named) <= set(_DAYS):
            raise IcsInvalid(one.line, "BYDAY must name plain days, such as MO,TU")
        days = frozenset(_DAYS[day] for day in named)
    # Calendars repeat in the rule what DTSTART says anyway.
    for key, own, meant in (("BYMONTH", start.wall.month, "YEARLY"), ("BYMONTHDAY", start.wall.day, "")):
        if parts.get(key) == str(own) and frequency in ("YEARLY", "MONTHLY") and meant in ("", frequency):
            parts.pop(key)
    interval, count = parts.pop("INTERVAL", "1"), parts.pop("COUNT", None)
    until = parts.pop("UNTIL", None)
    numbers = [interval] + ([] if count is None else [count])
    if frequency not in _FREQUENCIES or parts or not all(re.fullmatch("[1-9][0-9]{0,4}", said) for said in numbers):
        detail = "DAILY, WEEKLY with BYDAY, MONTHLY and YEARLY with INTERVAL, COUNT and UNTIL"
        raise IcsInvalid(one.line, f"{one.value[:80]!r} is not supported: {detail} are; write the event out")
    return _Rule(frequency, int(interval), None if count is None else int(count), _until(one, until, start), days)


def _until(one: _Property, until: str | None, start: _Moment) -> datetime | None:
    if until is None:
        return None
    found = _moment(_Property(one.line, {}, until), start.zone)
    if found.is_day:
        return found.wall + timedelta(days=1, seconds=-1)
    return found.wall_in(start.zone)
