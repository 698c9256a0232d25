"""Durations and offsets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.runbooks.core.definition.durations import (
    DURATION_SECONDS_MAX,
    parse_duration,
    parse_offset,
    show_duration,
    show_offset,
)

MINUTES_MAX = DURATION_SECONDS_MAX // 60


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("4h", 14_400), ("5d", 432_000), ("365d", DURATION_SECONDS_MAX)]
)
def test_duration_is_read_as_seconds(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "m", "0m", "015m", "-1m", "1.5h", "1 h", "1h\n", "1w", "١m", "1H", "366d"])
def test_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="365d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("T-5d", 7_200),
        ("T-4h", 240),
        ("T-30m", 30),
        ("T-90s", 2),
        ("T-60s", 1),
        ("T-0", 0),
        ("T+2h", -120),
        ("T+30s", -1),
        ("T+61s", -2),
    ],
)
def test_offset_is_read_as_minutes_before_the_start(text: str, minutes: int) -> None:
    assert parse_offset(text) == minutes


@pytest.mark.parametrize("text", ["", "T", "T-", "T5d", "T-0m", "T+0", "t-5d", "T-5", "T--5d", "T-5d ", "5d", "T-366d"])
def test_offset_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="365d"):
        parse_offset(text)


def test_refused_text_is_shown_in_part_only() -> None:
    with pytest.raises(ValueError) as refused:
        parse_duration("x" * 10_000)
    assert len(str(refused.value)) < 300


@given(st.integers(-MINUTES_MAX, MINUTES_MAX))
def test_offset_shown_is_the_offset_read(minutes: int) -> None:
    assert parse_offset(show_offset(minutes)) == minutes


@given(st.integers(1, DURATION_SECONDS_MAX))
def test_duration_shown_is_the_duration_read(seconds: int) -> None:
    assert parse_duration(show_duration(seconds)) == seconds


@pytest.mark.parametrize(("minutes", "text"), [(7_200, "T-5d"), (90, "T-90m"), (-120, "T+2h"), (0, "T-0")])
def test_offset_is_shown_in_the_largest_whole_unit(minutes: int, text: str) -> None:
    assert show_offset(minutes) == text


@given(st.text(max_size=12), st.sampled_from([parse_duration, parse_offset]))
def test_any_text_is_read_or_refused(text: str, parse: Callable[[str], int]) -> None:
    try:
        number = parse(text)
    except ValueError:
        return
    assert abs(number) <= DURATION_SECONDS_MAX
