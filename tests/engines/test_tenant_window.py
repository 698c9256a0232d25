"""How many directives a tenant may have in a queue: the cap, and more while it is alone there."""

from __future__ import annotations

import pytest

from lucius.engines.tenant_window import (
    AHEAD_SECONDS,
    GROWTH_MAX,
    PUBLISHES_AHEAD,
    PUBLISHES_COUNTED,
    QUICKEST_SECONDS,
    SHARED_AHEAD_SECONDS,
    SHARED_LEAST,
    SHARED_SECONDS,
    TenantWindows,
)
from lucius.ports.ledger import HeldLine

CAP = 16
FLOOD = HeldLine("flood", 3, "ocr")
SMALL = HeldLine("small", 3, "ocr")
BUSY = 80
"""So many acknowledgements in one measured time let each tenant have some that is neither the least nor the most."""
SHARED = int(BUSY * SHARED_AHEAD_SECONDS[0] / AHEAD_SECONDS) + 1


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def windows(time: Time) -> TenantWindows:
    windows = TenantWindows(CAP, time)
    windows.entered(FLOOD)
    return windows


def acknowledge(windows: TenantWindows, time: Time, count: int, line: HeldLine = FLOOD) -> None:
    """So many in one measured time, which is then over."""
    windows.size(line)
    for _ in range(count):
        windows.acknowledged(line)
    time.now += AHEAD_SECONDS


def test_tenant_that_is_alone_may_have_what_was_acknowledged_just_before(windows: TenantWindows, time: Time) -> None:
    assert windows.size(FLOOD) == CAP
    acknowledge(windows, time, 50)
    assert windows.size(FLOOD) == 50


def test_slow_service_leaves_the_cap(windows: TenantWindows, time: Time) -> None:
    acknowledge(windows, time, CAP - 3)
    assert windows.size(FLOOD) == CAP


def test_growth_has_a_limit(windows: TenantWindows, time: Time) -> None:
    acknowledge(windows, time, 100 * CAP)
    assert windows.size(FLOOD) == GROWTH_MAX * CAP


def test_both_have_a_part_of_it_as_soon_as_another_tenant_comes(windows: TenantWindows, time: Time) -> None:
    acknowledge(windows, time, BUSY)
    windows.entered(SMALL)
    assert SHARED_LEAST < SHARED < CAP
    assert (windows.size(FLOOD), windows.size(SMALL)) == (SHARED, SHARED)


@pytest.mark.parametrize(
    ("publishes", "ahead"),
    [
        ([0.001], SHARED_AHEAD_SECONDS[0]),
        ([0.006], 0.006 * PUBLISHES_AHEAD),
        ([0.020], 0.020 * PUBLISHES_AHEAD),
        ([60.0], AHEAD_SECONDS),
        ([0.001] + [0.030] * 9, SHARED_AHEAD_SECONDS[1]),
    ],
    ids=["quick", "slower", "far away", "hardly at all", "slow because of the load"],
)
def test_part_follows_from_how_long_publishing_takes(
    windows: TenantWindows, time: Time, publishes: list[float], ahead: float
) -> None:
    windows.entered(SMALL)
    for _ in range(20 * PUBLISHES_COUNTED):
        for seconds in publishes:
            windows.published_within(seconds)
    few = 25
    acknowledge(windows, time, few)
    assert windows.size(FLOOD) == pytest.approx(min(max(few * ahead / AHEAD_SECONDS + 1, SHARED_LEAST), CAP), abs=1)


def test_part_is_larger_where_acknowledgements_are_heard_of_late(windows: TenantWindows, time: Time) -> None:
    windows.entered(SMALL)
    windows.hears_late = True
    few = 40
    acknowledge(windows, time, few)
    assert windows.size(FLOOD) == int(few * SHARED_AHEAD_SECONDS[1] / AHEAD_SECONDS) + 1


def test_broker_that_has_come_nearer_is_noticed(windows: TenantWindows, time: Time) -> None:
    windows.entered(SMALL)
    for seconds in (0.020, 0.002):
        time.now += 2 * QUICKEST_SECONDS
        for _ in range(20 * PUBLISHES_COUNTED):
            windows.published_within(seconds)
    acknowledge(windows, time, BUSY)
    assert windows.size(FLOOD) == SHARED


@pytest.mark.parametrize(("acknowledged", "expected"), [(0, SHARED_LEAST), (1_000, CAP)])
def test_who_shares_a_queue_has_at_most_the_cap_and_at_least_a_few(
    windows: TenantWindows, time: Time, acknowledged: int, expected: int
) -> None:
    windows.entered(SMALL)
    acknowledge(windows, time, acknowledged)
    assert windows.size(FLOOD) == expected


@pytest.mark.parametrize(("cap", "expected"), [(1, 1), (2, 2), (5, 2), (40, 2)])
def test_slow_service_has_one_to_work_on_and_one_to_follow(time: Time, cap: int, expected: int) -> None:
    windows = TenantWindows(cap, time)
    windows.entered(FLOOD)
    windows.entered(SMALL)
    assert (windows.size(FLOOD), windows.size(SMALL)) == (expected, expected)


def test_queue_is_shared_for_a_moment_after_the_other_has_left(windows: TenantWindows, time: Time) -> None:
    windows.entered(SMALL)
    time.now += 10 * SHARED_SECONDS
    windows.left(SMALL)
    acknowledge(windows, time, BUSY)
    assert windows.size(FLOOD) == SHARED
    time.now += SHARED_SECONDS
    acknowledge(windows, time, BUSY)
    assert windows.size(FLOOD) == BUSY


def test_tenant_that_another_process_publishes_for_counts(windows: TenantWindows, time: Time) -> None:
    acknowledge(windows, time, BUSY)
    windows.met(FLOOD)
    assert windows.size(FLOOD) == BUSY, "its own"
    windows.met(SMALL)
    assert windows.size(FLOOD) == SHARED


def test_rate_from_before_a_pause_does_not_count(windows: TenantWindows, time: Time) -> None:
    acknowledge(windows, time, 50)
    time.now += 2 * AHEAD_SECONDS
    assert windows.size(FLOOD) == CAP


@pytest.mark.parametrize("line", [HeldLine("small", 4, "ocr"), HeldLine("small", 3, "embedding")])
def test_tenant_in_another_queue_does_not_count(windows: TenantWindows, time: Time, line: HeldLine) -> None:
    windows.entered(line)
    acknowledge(windows, time, 50)
    assert windows.size(FLOOD) == 50
    assert windows.size(line) == CAP
