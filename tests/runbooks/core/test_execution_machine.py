"""The pure machine: every status with every fact, and any sequence of facts.

Facts come under the conditions under which the orchestrator lets them through: a result only for the job that is in
flight, a job only where one is ready, a first readiness only for what is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lucius.domain.time import after
from lucius.runbooks.core import states
from lucius.runbooks.core.definition.model import Poll, Retry, Step
from lucius.runbooks.core.execution import Execution

START = 1_780_000_000_000
CAUSES = (
    states.BECAUSE_REMOVED,
    states.BECAUSE_FAILED,
    states.BECAUSE_LIMIT,
    states.BECAUSE_STOPPED,
    states.BECAUSE_SUPERSEDED,
)
STEPS = [
    Step(
        name="move",
        worker_id="pool",
        function="Move",
        timeout_seconds=3_600,
        poll=Poll(interval_seconds=300, timeout_seconds=7_200) if polls else None,
        retry=Retry(max_retries=retries, interval_seconds=60),
    )
    for polls, retries in product((False, True), (0, 1))
]


class Moment:
    """One execution, its definition, and the time."""

    def __init__(self, one: Execution, step: Step, now: int = START) -> None:
        self.one = one
        self.step = step
        self.now = now

    def __copy__(self) -> Moment:
        return Moment(copy(self.one), self.step, self.now)

    def answer(self, act: Callable[[], None]) -> None:
        """As `facts.take_results` does with the result of the current job."""
        if not self.one.in_flight:
            return
        if self.one.is_open:
            act()
        else:
            self.one.in_flight, self.one.timeout_at, self.one.wake_at = False, None, None


def pending(step: Step) -> Moment:
    poll = step.poll
    return Moment(
        Execution(
            kind="step", id=7, batch_id=1, member_id=1, phase_id=1, parent_id=None, round=0, version=1, list_name="go",
            step_name=step.name, step_index=0, worker_id="pool", function_name="Move", params_json="{}",
            status="pending", job_id=None, result_json=None, error_message=None, dispatched_at=None, completed_at=None,
            is_poll_step=poll is not None, poll_interval_sec=poll.interval_seconds if poll else None,
            poll_timeout_sec=poll.timeout_seconds if poll else None, poll_started_at=None, last_polled_at=None,
            poll_count=0, late_json=None, fault=None, cancel_cause=None, dispatch_count=0, retries_used=0, ready=False,
            in_flight=False, retry_at=None, timeout_at=None, wake_at=None, poll_asked=0, has_token=False,
        ),
        step,
    )  # fmt: skip


def _ready(m: Moment) -> None:
    if m.one.status == states.PENDING:
        m.one.make_ready()


def _send(m: Moment) -> None:
    if m.one.ready:
        m.one.send(m.now, m.step)


def _refuse(m: Moment) -> None:
    if m.one.ready:
        m.one.refuse(m.now, "a template has no value")


def _poll_late(m: Moment) -> None:
    m.now = max(m.now, after(START, 9_000))
    m.one.poll(m.now, m.one.poll_count + 1)


def _wake(m: Moment) -> None:
    if m.one.wake_at is not None:
        m.now = max(m.now, m.one.wake_at)
    m.one.wake(m.now, m.step)


def _wait(m: Moment) -> None:
    m.now = after(m.now, 200)


def _cancel(cause: str) -> Callable[[Moment], None]:
    return lambda m: (m.one.cancel(m.now, cause, "because"), None)[1]


FACTS: dict[str, Callable[[Moment], None]] = {
    "ready": _ready,
    "send": _send,
    "refuse": _refuse,
    "success": lambda m: m.answer(lambda: m.one.take_success(m.now, {"n": 1})),
    "success without a result": lambda m: m.answer(lambda: m.one.take_success(m.now, None)),
    "still polling": lambda m: m.answer(lambda: m.one.take_success(m.now, {"Complete": False})),
    "failure": lambda m: m.answer(lambda: m.one.take_failure(m.now, m.step, "boom")),
    "throttled": lambda m: m.answer(lambda: m.one.take_failure(m.now, m.step, "slow down", True)),
    "poll-check": lambda m: (m.one.poll(m.now, m.one.poll_count + 1), None)[1],
    "an old poll-check": lambda m: (m.one.poll(m.now, m.one.poll_count), None)[1],
    "a late poll-check": _poll_late,
    "wake": _wake,
    "time": _wait,
    "roll back": lambda m: (m.one.roll_back(), None)[1],
    "retry": lambda m: (m.one.retry(), None)[1],
    **{f"cancel {cause}": _cancel(cause) for cause in CAUSES},
}
ALLOWED = {(before, after_) for before, to in states.STEP.items() for after_ in to}
RETRIED = {(before, after_) for before, to in states.RETRIED.items() for after_ in to}
TERMINAL = set(states.STEP) - states.OPEN_STATUSES


def apply(moment: Moment, name: str) -> tuple[str, str] | None:
    """Let a fact happen; the transition that came of it."""
    before = moment.one.status
    # A refusal is a dispatch that ended at once, so it goes through `dispatched`.
    passed = ("dispatched",) if name == "refuse" and before == states.PENDING and moment.one.ready else ()
    FACTS[name](moment)
    if passed:
        assert (before, "dispatched") in ALLOWED
        before = "dispatched"
    check(moment)
    if moment.one.status == before:
        return None
    step = (before, moment.one.status)
    assert step in (RETRIED if name == "retry" else ALLOWED), (name, step)
    return step


def check(moment: Moment) -> None:
    """Nothing waits for ever, and what has ended waits for nothing."""
    one = moment.one
    if one.is_open and one.status != states.PENDING:
        assert one.in_flight or one.ready or one.wake_at is not None, one
        if one.status == states.POLLING:
            assert one.wake_at is not None
            assert one.poll_deadline is not None
            assert one.wake_at <= one.poll_deadline
    if one.in_flight:
        assert one.wake_at is not None
        assert not one.ready
        assert one.job_id == f"step-7-a{one.dispatch_count}"
    if not one.is_open:
        assert not one.ready
        assert one.retry_at is None
        assert one.in_flight == (one.wake_at is not None)
        assert not one.in_flight or one.status == states.CANCELLED
        assert one.completed_at is not None


def reached(depth: int = 8) -> Iterator[tuple[str, str, tuple[str, str] | None]]:
    """Every status, fact and transition that sequences of this length come to, from each kind of step."""
    for step in STEPS:
        seen: set[tuple[object, ...]] = set()
        edge = [pending(step)]
        for _ in range(depth):
            following = []
            for moment in edge:
                for name in FACTS:
                    new = copy(moment)
                    yield moment.one.status, name, apply(new, name)
                    if shape(new) not in seen:
                        seen.add(shape(new))
                        following.append(new)
            edge = following


def shape(moment: Moment) -> tuple[object, ...]:
    """What of an execution decides about its future; moments only by how they stand to now."""
    one = moment.one
    due = tuple(
        None if at is None else at <= moment.now
        for at in (one.retry_at, one.timeout_at, one.wake_at, one.poll_deadline)
    )
    return (one.status, one.ready, one.in_flight, one.retries_used, one.cancel_cause, *due, one.poll_count > 0)


def test_the_transitions_that_happen_are_those_of_the_tables_and_no_other() -> None:
    found = list(reached())
    assert {transition for _, _, transition in found if transition} == ALLOWED | RETRIED
    assert {(status, name) for status, name, _ in found} == set(product(states.STEP, FACTS))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(step=st.sampled_from(STEPS), names=st.lists(st.sampled_from(sorted(FACTS)), max_size=60))
@example(step=STEPS[3], names=["ready", "send", "throttled", "wake", "send", "throttled", "wake"])
def test_any_sequence_of_facts_goes_by_the_tables(step: Step, names: list[str]) -> None:
    moment = pending(step)
    for name in names:
        before = moment.one.status
        apply(moment, name)
        if before in TERMINAL and moment.one.status != before:
            assert name == "retry" or (name, moment.one.status) == ("roll back", states.ROLLED_BACK)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"polls {step.poll is not None}, {step.retry.max_retries}")
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(names=st.lists(st.sampled_from(sorted(FACTS)), max_size=30))
def test_time_alone_ends_whatever_was_begun(step: Step, names: list[str]) -> None:
    """With a worker that never answers again and a scheduler that asks for no poll."""
    moment = pending(step)
    for name in names:
        apply(moment, name)
    if moment.one.status == states.PENDING:
        return
    for _ in range(20):
        apply(moment, "send")
        apply(moment, "wake")
    assert not moment.one.is_open
    assert not moment.one.in_flight


def test_a_fact_that_comes_twice_changes_nothing_the_second_time() -> None:
    for step, name in product(STEPS, ("ready", "send", "success", "failure", "still polling", "roll back", "retry")):
        moment = pending(step)
        for earlier in ("ready", "send", "success", "failure", "still polling", "roll back", "retry"):
            if earlier == name:
                break
            apply(moment, earlier)
        apply(moment, name)
        once = copy(moment)
        apply(moment, name)
        assert moment.one == once.one
