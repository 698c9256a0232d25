"""Instants: every text that names one is held to a range, and any number can be shown."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.domain.time import EARLIEST, LATEST, InstantOutOfRange, from_datetime, iso
from lucius.runbooks.core.messages import utc

POISON = (
    "0001-01-01T00:00:00+23:59",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999Z",
    "1970-01-01T00:00:00+00:01",
    "9999-12-31T23:59:59-00:01",
    "9999-12-31T23:59:59.999999Z",
)


@given(st.integers())
def test_every_number_can_be_shown(instant: int) -> None:
    for text in (iso(instant), utc(instant)):
        assert datetime.fromisoformat(text).utcoffset() is not None


@given(st.integers(EARLIEST, LATEST))
def test_an_instant_in_range_survives_being_shown(instant: int) -> None:
    assert from_datetime(datetime.fromisoformat(iso(instant))) == instant
    assert from_datetime(datetime.fromisoformat(utc(instant))) == instant


@pytest.mark.parametrize("text", POISON)
def test_an_instant_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(InstantOutOfRange, match="1970-01-01"):
        from_datetime(datetime.fromisoformat(text))
