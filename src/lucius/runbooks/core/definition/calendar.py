"""When a runbook may start work: weekly windows and freezes, in its time zone. Pure.

Hours are what clocks on the wall show. A time that occurs twice, when clocks are set back, opens a window at its first
occurrence and closes one at its second. A time that is skipped, when clocks are set forward, is the moment of the
change; a window that lies within the skipped hour does not open on that day.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from lucius.domain.time import Instant

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES = 1_440
LOOK_AHEAD_DAYS = 15
"""A weekly window opens within a week, or within two if a change of clocks swallows it."""
OUTSIDE = "outside its windows"


class Window(Struct, frozen=True):
    days: tuple[int, ...]
    """The days on which it opens; Monday is 0."""
    from_minutes: int
    to_minutes: int
    """Minutes after midnight; at or before `from_minutes`, those of the next day."""


class Freeze(Struct, frozen=True):
    from_at: Instant
    until_at: Instant
    name: str
    """Its dates, and its reason if it has one."""


class Wait(Struct, frozen=True):
    """Something must wait."""

    until_at: Instant
    because: str


class Calendar(Struct, frozen=True):
    time_zone: str = "UTC"
    windows: tuple[Window, ...] = ()
    """None: always open."""
    freezes: tuple[Freeze, ...] = ()
    files: tuple[tuple[int, str], ...] = ()
    """Files whose events are freezes: the item of `freeze`, and the variable with the path."""

    def wait(self, at: Instant) -> Wait | None:
        """Why nothing may start at this time, and when it may; None if it may."""
        frozen = self._freeze(at)
        if frozen is None and self._in_windows(at) == at:
            return None
        return Wait(self.next_open(at), OUTSIDE if frozen is None else f"frozen: {frozen.name}")

    def next_open(self, at: Instant) -> Instant:
        """The first time at or after this one at which work may start."""
        moment = self._in_windows(at)
        for one in sorted(self.freezes, key=lambda freeze: freeze.from_at):
            if one.from_at > moment:
                break  # So do all that follow.
            if moment < one.until_at:
                moment = self._in_windows(one.until_at)
        return moment

    def _freeze(self, at: Instant) -> Freeze | None:
        """The one that lasts longest, of those at this time."""
        found = [one for one in self.freezes if one.from_at <= at < one.until_at]
        return max(found, key=lambda one: one.until_at, default=None)

    def _in_windows(self, at: Instant) -> Instant:
        """The first time at or after this one that is in a window, whatever is frozen."""
        if not self.windows:
            return at
        zone = ZoneInfo(self.time_zone)
        today = datetime.fromtimestamp(at // 1000, zone).date()
        for ahead in range(-1, LOOK_AHEAD_DAYS + 1):
            opening = [opens for opens, closes in self._of_day(zone, today + timedelta(days=ahead)) if closes > at]
            if opening:
                return max(min(opening), at)
        raise AssertionError(f"no window opens within {LOOK_AHEAD_DAYS} days")

    def _of_day(self, zone: ZoneInfo, day: date) -> Iterator[tuple[Instant, Instant]]:
        for window in self.windows:
            if day.weekday() not in window.days:
                continue
            to = window.to_minutes + (DAY_MINUTES if window.to_minutes <= window.from_minutes else 0)
            opens, closes = instant_of(zone, day, window.from_minutes), instant_of(zone, day, to, latest=True)
            if opens < closes:
                yield opens, closes


def instant_of(zone: ZoneInfo, day: date, minutes: int = 0, *, latest: bool = False) -> Instant:
    """When clocks in this zone show so many minutes after midnight; `latest`: the second time, if they do twice."""
    wall = datetime.combine(day, time()) + timedelta(minutes=minutes)
    first, second = (int(wall.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    if first > second:  # Clocks never show it.
        return _change(zone, second, first) * 1000
    return (second if latest else first) * 1000


def _change(zone: ZoneInfo, before: int, after: int) -> int:
    """The second between these at which the zone's offset changes."""
    offset = datetime.fromtimestamp(before, zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after


def freeze_of_days(zone: ZoneInfo, first: date, last: date, reason: str = "") -> Freeze:
    """From the beginning of the first day to the end of the last."""
    dates = first.isoformat() if first == last else f"{first.isoformat()} to {last.isoformat()}"
    until_at = instant_of(zone, last + timedelta(days=1), latest=True)
    return Freeze(instant_of(zone, first), until_at, f"{dates} ({reason})" if reason else dates)
