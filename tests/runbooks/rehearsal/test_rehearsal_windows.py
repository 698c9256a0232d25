"""When phases fall due, and how long they may take: the arithmetic that plans and rehearsals share."""

from __future__ import annotations

import pytest

from lucius.runbooks.core.definition.model import Phase, Poll, Retry, Runbook, Step
from lucius.runbooks.rehearsal.windows import THE_START, step_worst_seconds, steps_worst_seconds, windows

HOUR = 3_600
START = 1_796_112_000_000


def step(name: str = "a", **fields: object) -> Step:
    return Step(name=name, worker_id="w", function="F", **fields)  # type: ignore[arg-type]


def runbook(*offsets: int) -> Runbook:
    phases = tuple(Phase(name=f"p{n}", offset_minutes=minutes, steps=(step(),)) for n, minutes in enumerate(offsets))
    return Runbook(name="r", primary_key="k", phases=phases)


def test_a_window_ends_when_the_next_phase_falls_due() -> None:
    found = windows(runbook(120, 60, 0, -30), START)
    assert [one.due_at for one in found] == [START - 7_200_000, START - 3_600_000, START, START + 1_800_000]
    assert [one.until for one in found] == ["phase p1", "phase p2", "phase p3", None]
    assert [one.seconds_from(one.due_at) for one in found] == [HOUR, HOUR, HOUR // 2, None]


def test_a_phase_before_the_start_has_until_the_start_at_the_latest() -> None:
    before, after = windows(runbook(60, -60), START)
    assert (before.until, before.until_at) == (THE_START, START)
    assert after.until_at is None


def test_phases_of_one_moment_have_the_same_window() -> None:
    assert [one.until_at for one in windows(runbook(60, 60, 0), START)] == [START, START, None]


@pytest.mark.parametrize(
    ("made", "seconds"),
    [
        (step(), HOUR),
        (step(timeout_seconds=60), 60),
        (step(timeout_seconds=60, retry=Retry(2, 30)), 3 * 60 + 2 * 30),
        (step(timeout_seconds=60, poll=Poll(15, 600)), 60 + 600),
        (step(timeout_seconds=60, retry=Retry(1, 30), poll=Poll(15, 600)), 2 * 60 + 30 + 600),
    ],
)
def test_a_step_takes_all_its_tries_and_its_poll_at_worst(made: Step, seconds: int) -> None:
    assert step_worst_seconds(made) == seconds


def test_members_take_turns_where_not_all_may_be_in_flight() -> None:
    assert step_worst_seconds(step(timeout_seconds=60), 10, 4) == 3 * 60
    assert step_worst_seconds(step(timeout_seconds=60, poll=Poll(15, 600)), 10, 4) == 3 * 60 + 600
    assert step_worst_seconds(step(timeout_seconds=60), 10, None) == 60


def test_steps_add_up_and_the_longest_way_may_end_in_a_rollback() -> None:
    undo = (step("u", timeout_seconds=1_000),)
    book = Runbook(name="r", primary_key="k", phases=(), rollbacks={"undo": undo})
    first, last = step("a", timeout_seconds=60, on_failure="undo"), step("b", timeout_seconds=60)
    assert steps_worst_seconds(book, (last, last)) == 120
    assert steps_worst_seconds(book, (first, last)) == 60 + 1_000
    assert steps_worst_seconds(book, (last, first)) == 120 + 1_000
    assert steps_worst_seconds(book, ()) == 0
