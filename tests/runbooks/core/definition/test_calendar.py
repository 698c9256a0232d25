"""Windows and freezes: when work may start, also on days when clocks change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucius.runbooks.core.definition.calendar import (
    DAY_MINUTES,
    LOOK_AHEAD_DAYS,
    OUTSIDE,
    Calendar,
    Window,
    freeze_of_days,
    instant_of,
)

BERLIN = ZoneInfo("Europe/Berlin")
EVERY_DAY = tuple(range(7))
MINUTE = 60_000


def at(text: str, zone: str = "Europe/Berlin") -> int:
    """An instant by the clocks of a zone; +HH:MM at the end says which of two."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).timestamp() * 1000)


def nights(*days: int) -> Calendar:
    return Calendar("Europe/Berlin", (Window(days or EVERY_DAY, 22 * 60, 6 * 60),))


# --- Plain days ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "opens"),
    [
        ("2026-06-10T21:59:59", "2026-06-10T22:00"),
        ("2026-06-10T22:00", "2026-06-10T22:00"),
        ("2026-06-11T05:59:59", "2026-06-11T05:59:59"),
        ("2026-06-11T06:00", "2026-06-11T22:00"),
    ],
)
def test_a_window_over_midnight_is_open_from_its_first_to_before_its_last_minute(asked: str, opens: str) -> None:
    assert nights().next_open(at(asked)) == at(opens)


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_opens() -> None:
    fridays = nights(4)
    assert fridays.next_open(at("2026-06-13T03:00")) == at("2026-06-13T03:00")  # The night from Friday to Saturday.
    assert fridays.next_open(at("2026-06-12T03:00")) == at("2026-06-12T22:00")
    assert fridays.next_open(at("2026-06-13T06:00")) == at("2026-06-19T22:00")


def test_the_first_of_several_windows_counts_and_adjacent_ones_are_one() -> None:
    calendar = Calendar("UTC", (Window((0,), 20 * 60, DAY_MINUTES), Window((1,), 0, 60), Window((3,), 0, DAY_MINUTES)))
    assert calendar.next_open(at("2026-06-08T23:59:59", "UTC")) == at("2026-06-08T23:59:59", "UTC")
    assert calendar.next_open(at("2026-06-09T00:30", "UTC")) == at("2026-06-09T00:30", "UTC")
    assert calendar.next_open(at("2026-06-09T01:00", "UTC")) == at("2026-06-11T00:00", "UTC")


def test_without_windows_and_freezes_everything_may_start_at_once() -> None:
    assert (Calendar().next_open(123), Calendar().wait(123)) == (123, None)


def test_a_freeze_closes_whole_days_and_then_the_next_window_counts() -> None:
    calendar = Calendar(
        "Europe/Berlin", nights().windows, (freeze_of_days(BERLIN, date(2026, 12, 24), date(2026, 12, 26), "holidays"),)
    )
    wait = calendar.wait(at("2026-12-24T03:00"))
    assert wait is not None
    assert (wait.until_at, wait.because) == (at("2026-12-27T00:00"), "frozen: 2026-12-24 to 2026-12-26 (holidays)")
    assert calendar.next_open(at("2026-12-23T23:59:59")) == at("2026-12-23T23:59:59")
    outside = calendar.wait(at("2026-12-27T12:00"))
    assert outside is not None
    assert (outside.until_at, outside.because) == (at("2026-12-27T22:00"), OUTSIDE)


def test_adjacent_and_overlapping_freezes_are_waited_for_together() -> None:
    days = [(date(2026, 5, 1), date(2026, 5, 3)), (date(2026, 5, 2), date(2026, 5, 5)), (date(2026, 5, 6),) * 2]
    calendar = Calendar("UTC", (), tuple(freeze_of_days(ZoneInfo("UTC"), first, last) for first, last in days))
    assert calendar.next_open(at("2026-05-01T00:00", "UTC")) == at("2026-05-07T00:00", "UTC")


# --- Days when clocks change -----------------------------------------------------------------------------------------


def test_a_window_opens_when_clocks_skip_its_opening() -> None:
    calendar = Calendar("Europe/Berlin", (Window(EVERY_DAY, 150, 240),))  # 02:30 does not exist on 2026-03-29.
    assert calendar.next_open(at("2026-03-29T00:00")) == at("2026-03-29T03:00+02:00")
    assert calendar.next_open(at("2026-03-29T04:00")) == at("2026-03-30T02:30")


def test_a_window_closes_when_clocks_skip_its_closing() -> None:
    calendar = Calendar("Europe/Berlin", (Window(EVERY_DAY, 60, 150),))
    assert calendar.next_open(at("2026-03-29T01:59")) == at("2026-03-29T01:59")
    assert calendar.next_open(at("2026-03-29T03:00+02:00")) == at("2026-03-30T01:00")


def test_a_window_within_the_skipped_hour_does_not_open_on_that_day() -> None:
    sundays = Calendar("Europe/Berlin", (Window((6,), 120, 180),))
    assert sundays.next_open(at("2026-03-28T12:00")) == at("2026-04-05T02:00")


def test_a_window_opens_at_the_first_and_closes_at_the_second_of_two_equal_times() -> None:
    calendar = Calendar("Europe/Berlin", (Window((6,), 150, 160),))  # 02:30 to 02:40 occurs twice on 2026-10-25.
    assert calendar.next_open(at("2026-10-25T00:00")) == at("2026-10-25T02:30+02:00")
    assert calendar.next_open(at("2026-10-25T02:10+01:00")) == at("2026-10-25T02:10+01:00")
    assert calendar.next_open(at("2026-10-25T02:39:59+01:00")) == at("2026-10-25T02:39:59+01:00")
    assert calendar.next_open(at("2026-10-25T02:40+01:00")) == at("2026-11-01T02:30")


def test_a_day_begins_after_a_skipped_midnight() -> None:
    havana = ZoneInfo("America/Havana")  # On 2026-03-08 clocks go from 00:00 to 01:00.
    assert instant_of(havana, date(2026, 3, 8)) == at("2026-03-08T01:00", "America/Havana")


def test_a_window_opens_in_the_week_after_a_day_that_a_zone_skips() -> None:
    fridays = Calendar("Pacific/Apia", (Window((4,), 0, DAY_MINUTES),))  # Samoa had no 2011-12-30.
    assert fridays.next_open(at("2011-12-29T12:00", "Pacific/Apia")) == at("2012-01-06T00:00", "Pacific/Apia")


# --- Properties ------------------------------------------------------------------------------------------------------

ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu"]
)
MOMENTS = st.integers(
    int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()), int(datetime(2027, 12, 31, tzinfo=UTC).timestamp())
).map(lambda seconds: seconds * 1000)
WINDOWS = st.lists(
    st.builds(
        Window,
        st.sets(st.integers(0, 6), min_size=1).map(lambda days: tuple(sorted(days))),
        st.integers(0, DAY_MINUTES - 1),
        st.integers(0, DAY_MINUTES),
    ),
    max_size=3,
)
FROZEN = st.lists(st.tuples(st.dates(date(2026, 1, 1), date(2027, 12, 31)), st.integers(0, 20)), max_size=4)


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    zone = draw(ZONES)
    days = draw(FROZEN)
    freezes = [freeze_of_days(ZoneInfo(zone), first, first + timedelta(days=more)) for first, more in days]
    return Calendar(zone, tuple(draw(WINDOWS)), tuple(freezes))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(calendars(), MOMENTS, st.lists(st.floats(0, 1), max_size=5))
def test_the_next_open_time_is_open_and_none_before_it_is(calendar: Calendar, asked: int, between: list[float]) -> None:
    opens = calendar.next_open(asked)
    assert opens >= asked
    assert calendar.wait(opens) is None
    assert calendar.next_open(opens) == opens
    for share in [0.0, *between]:
        moment = asked + int((opens - asked) * share)
        if moment < opens:
            wait = calendar.wait(moment)
            assert wait is not None
            assert wait.until_at == opens
    if opens > asked:  # It is the very first one.
        assert calendar.wait(opens - 1) is not None


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(calendars(), MOMENTS, st.integers(0, LOOK_AHEAD_DAYS * DAY_MINUTES * MINUTE))
def test_asking_later_never_gives_an_earlier_time(calendar: Calendar, asked: int, later: int) -> None:
    assert calendar.next_open(asked) <= calendar.next_open(asked + later)
