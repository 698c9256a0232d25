"""Events of iCalendar files as freezes: what is read, and what is refused with its line."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucius.runbooks.core.definition.ics import IcsInvalid, read_ics

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = BERLIN) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def file(*lines: str) -> str:
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "BEGIN:VEVENT", *lines, "END:VEVENT", "END:VCALENDAR", ""])


def freezes(*lines: str, first: str = "2026-01-01", last: str = "2029-01-01") -> list[tuple[int, int, str]]:
    found = read_ics(file(*lines), ZoneInfo(BERLIN), at(first), at(last))
    return [(one.from_at, one.until_at, one.name) for one in found]


def days(*lines: str, last: str = "2029-01-01") -> list[str]:
    return [name[:10] for _, _, name in freezes(*lines, last=last)]


def test_a_day_is_frozen_from_midnight_to_midnight_and_named() -> None:
    (found,) = freezes("SUMMARY:Year end\\, closed", "DTSTART;VALUE=DATE:20261231", "DTEND;VALUE=DATE:20270102")
    assert found == (at("2026-12-31"), at("2027-01-02"), "2026-12-31 (Year end, closed)")
    (alone,) = freezes("DTSTART:20261231")
    assert alone == (at("2026-12-31"), at("2027-01-01"), "2026-12-31 (event)")


@pytest.mark.parametrize(
    ("start", "end", "zone"),
    [
        ("DTSTART:20260501T080000", "DTEND:20260501T120000", BERLIN),
        ("DTSTART:20260501T080000Z", "DTEND:20260501T120000Z", "UTC"),
        ("DTSTART;TZID=America/New_York:20260501T080000", "DURATION:PT4H", "America/New_York"),
        ('DTSTART;TZID="America/New_York":20260501T080000', "DTEND:20260501T160000Z", "America/New_York"),
    ],
)
def test_times_are_in_their_zone_or_the_runbooks(start: str, end: str, zone: str) -> None:
    (found,) = freezes(start, end)
    assert found[:2] == (at("2026-05-01T08:00", zone), at("2026-05-01T12:00", zone))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=YEARLY", ["2026-12-24", "2027-12-24", "2028-12-24"]),
        ("FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24;COUNT=2", ["2026-12-24", "2027-12-24"]),
        ("FREQ=YEARLY;INTERVAL=2", ["2026-12-24", "2028-12-24"]),
        ("FREQ=MONTHLY;UNTIL=20270301", ["2026-12-24", "2027-01-24", "2027-02-24"]),
        ("FREQ=WEEKLY;BYDAY=TH,SA;COUNT=3", ["2026-12-24", "2026-12-26", "2026-12-31"]),
        ("FREQ=DAILY;UNTIL=20261226T000000Z", ["2026-12-24", "2026-12-25", "2026-12-26"]),
        ("FREQ=WEEKLY;INTERVAL=2;WKST=MO;COUNT=2", ["2026-12-24", "2027-01-07"]),
    ],
)
def test_plain_repetitions_are_followed(rule: str, expected: list[str]) -> None:
    assert days("DTSTART;VALUE=DATE:20261224", f"RRULE:{rule}") == expected


def test_a_repetition_that_began_long_ago_counts_from_its_beginning_and_ends_at_the_horizon() -> None:
    assert days("DTSTART;VALUE=DATE:20101224", "RRULE:FREQ=YEARLY")[0] == "2026-12-24"
    assert days("DTSTART;VALUE=DATE:20240229", "RRULE:FREQ=YEARLY", last="2030-01-01") == ["2028-02-29"]


def test_an_event_beyond_the_horizon_is_left_out() -> None:
    assert days("DTSTART:99980101", "DURATION:P9999W") == []


def test_exceptions_and_cancelled_events_are_left_out() -> None:
    start, rule = "DTSTART;TZID=Europe/Berlin:20261224T200000", "RRULE:FREQ=DAILY;COUNT=3"
    assert days(start, "DURATION:PT1H", rule, "EXDATE:20261225T190000Z") == ["2026-12-24", "2026-12-26"]
    assert days("DTSTART;VALUE=DATE:20261224", "STATUS:CANCELLED") == []


def test_a_repeated_time_stays_at_the_hour_of_the_clocks_on_the_wall() -> None:
    found = freezes("DTSTART;TZID=Europe/Berlin:20260328T080000", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=2")
    assert [one[0] for one in found] == [at("2026-03-28T08:00"), at("2026-03-29T08:00")]


def test_long_lines_are_put_together_and_other_parts_ignored() -> None:
    lines = ("SUMMARY:Fro", " zen", 'X-A;P="a:b":1', "BEGIN:VALARM", "TRIGGER:-PT5M", "END:VALARM", "DTSTART:20261224")
    assert [name for _, _, name in freezes(*lines)] == ["2026-12-24 (Frozen)"]


@pytest.mark.parametrize(
    ("lines", "detail"),
    [
        (["SUMMARY:x"], "line 3: an event needs one DTSTART"),
        (["DTSTART:2026-12-24"], "line 4: '2026-12-24' is no date and time that is supported"),
        (["DTSTART;TZID=W. Europe Standard Time:20261224T080000"], "in the time zone 'W. Europe Standard Time'"),
        (["DTSTART:20261224", "DTEND:20261223"], "line 5: DTEND is before DTSTART"),
        (["DTSTART:20261224", "DTEND:20261224T100000"], "must both be dates"),
        (["DTSTART:20261224", "DURATION:soon"], "line 5: 'soon' is no duration"),
        (["DTSTART:20261224", "RRULE:FREQ=MONTHLY;BYDAY=2MO"], "line 5: 'FREQ=MONTHLY;BYDAY=2MO' is not supported"),
        (["DTSTART:20261224", "RRULE:FREQ=WEEKLY;BYDAY=1MO"], "BYDAY must name plain days"),
        (["DTSTART:20261224", "RRULE:FREQ=SECONDLY"], "is not supported"),
        (["DTSTART:20261224", "RDATE:20261225"], "line 5: RDATE is not supported"),
        (["DTSTART:19000101", "RRULE:FREQ=DAILY"], "only the years 1971 to 9998"),
        (["DTSTART:19710101", "RRULE:FREQ=DAILY"], "goes through more than 20000 dates"),
        (["DTSTART:20260101T000000", "DURATION:PT1H", "RRULE:FREQ=DAILY", "END:VTODO"], "END:VTODO ends nothing"),
        (["DTSTART:20261324"], "line 4: '20261324' is no date"),
        (["no colon"], "line 4: expected NAME:value"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_line(lines: list[str], detail: str) -> None:
    with pytest.raises(IcsInvalid) as caught:
        freezes(*lines)
    assert detail in str(caught.value)


@pytest.mark.parametrize("text", ["hello: world", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20261224\n"])
def test_what_is_no_whole_calendar_is_refused(text: str) -> None:
    with pytest.raises(IcsInvalid):
        read_ics(text, ZoneInfo("UTC"), 0, at("2029-01-01"))


def test_more_freezes_than_the_limit_are_refused() -> None:
    event = ("DTSTART:20260101", "RRULE:FREQ=DAILY;COUNT=1500")
    text = file(*event, "END:VEVENT", "BEGIN:VEVENT", *event)
    with pytest.raises(IcsInvalid, match="more than 2000 freezes"):
        read_ics(text, ZoneInfo("UTC"), 0, at("2099-01-01"))


NAMES = st.sampled_from(["DTSTART", "DTEND", "RRULE", "DURATION", "EXDATE", "SUMMARY", "BEGIN", "END", "X"])
VALUES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["20261224", "20261224T080000Z", "FREQ=DAILY", "FREQ=YEARLY;COUNT=9", "P1D", "VEVENT", "VALARM"]),
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(NAMES, VALUES), max_size=6))
def test_any_text_is_read_or_refused(lines: list[tuple[str, str]]) -> None:
    try:
        found = freezes(*(f"{name}:{value}" for name, value in lines))
    except IcsInvalid:
        return
    assert all(first < last for first, last, _ in found)
