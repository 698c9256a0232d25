"""A receiver that says when to call again is called then, within reason."""

from __future__ import annotations

from typing import Any

import pytest

from lucius.webhooks.retry_after import SECONDS_MAX, wait_wanted
from lucius.webhooks.sender import BACKOFF_SECONDS

NOW = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("0", 0),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120),
        ("Tue, 14 Nov 2023 23:15:20 +0100", 120),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("99999999999999999999", SECONDS_MAX),
        ("Fri, 31 Dec 9999 23:59:59 GMT", SECONDS_MAX),
        (None, 0),
        ("", 0),
        ("-5", 0),
        ("1.5", 0),
        ("soon", 0),
        ("٣", 0),
        ("Mon, 99 Foo 2023 22:15:20 GMT", 0),
        ("9" * 1_000, 0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header: str | None, seconds: float) -> None:
    assert wait_wanted(header, NOW) == seconds


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("header", ["300", "Tue, 14 Nov 2023 22:18:20 GMT"])
async def test_a_receiver_is_left_alone_as_long_as_it_asks(rig: Any, status: int, header: str) -> None:
    rig.receiver.statuses, rig.receiver.headers = [status], {"Retry-After": header}
    await rig.owe()
    async with rig.sender():
        await rig.outcomes(1)
    assert rig.row().next_at == NOW + 300_000


@pytest.mark.parametrize(("status", "header"), [(500, "300"), (503, "1"), (429, "x")])
async def test_waits_are_our_own_where_the_receiver_asks_for_less_or_for_nothing(
    rig: Any, status: int, header: str
) -> None:
    rig.receiver.statuses, rig.receiver.headers = [status], {"Retry-After": header}
    await rig.owe()
    async with rig.sender():
        await rig.outcomes(1)
    assert rig.row().next_at == NOW + BACKOFF_SECONDS[0] * 1000
