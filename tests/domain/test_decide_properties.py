"""Every state × every input, and long random lives: the invariants of commands §6 hold after each decision."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from lucius.domain.attempt import Failure, Verdict
from lucius.domain.decide import decide
from lucius.domain.draft import IdSource
from lucius.domain.effects import Decision, PublishDirective
from lucius.domain.inputs import (
    Acked,
    CancelAsked,
    DeadlinePassed,
    DirectiveDied,
    DirectiveWithdrawn,
    DispatchDue,
    ForceCancelAsked,
    HeartbeatSeen,
    Input,
    PauseAsked,
    PublishDeferred,
    Published,
    PublishFailed,
    PublishHeld,
    Resulted,
    ResumeAsked,
)
from lucius.domain.job import JOB_TERMINAL, JOB_TRANSITIONS, Job, JobMove, JobSpec, JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.step import STEP_TERMINAL, STEP_TRANSITIONS, StepMove, StepSpec, StepStatus
from lucius.domain.time import after
from lucius.testing.invariants import JOB_NEXT, STEP_NEXT, check_decision, check_trail
from lucius.testing.samples import START, ManualClock, accepted

QUICK = Policy(
    max_attempts=2,
    ack_timeout_seconds=10,
    queue_timeout_seconds=25,
    lease_seconds=20,
    max_step_seconds=45,
    dispatch_backoff_seconds=(5,),
    ack_backoff_seconds=(5,),
    execution_backoff_seconds=(5,),
)


STATES_MAX = {1: 2_000, 2: 1_000}
"""States that one walk looks into, by the number of steps; a job of one step has fewer."""


class FixedFresh:
    """The same answers for the same decision: what is needed to ask `decide` twice."""

    def __init__(self, claim_seconds: float, number: int, publishes_inside: bool = False) -> None:
        self.claim_seconds = claim_seconds
        self.publishes_inside = publishes_inside
        self._number = number

    def holds_back(self, spec: JobSpec, step: StepSpec) -> bool:
        return self._number % 5 == 4

    def lease_id(self) -> str:
        return f"lease {self._number}"

    def jitter(self) -> float:
        return 0.25


def ask(job: Job | None, fact: Input, now: int, make_id_source: Callable[[], IdSource]) -> Decision:
    """Decide twice and compare: `decide` is pure, and its argument is as it was."""
    before = repr(job)
    decision = decide(job, fact, now, make_id_source())
    assert decide(job, fact, now, make_id_source()) == decision
    assert repr(job) == before
    return decision


# --- The tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", sorted(JOB_TERMINAL))
def test_job_table_has_no_way_out_of_a_terminal_state(status: JobStatus) -> None:
    assert not [move for move in JobMove if (status, move) in JOB_TRANSITIONS]


@pytest.mark.parametrize("status", sorted(STEP_TERMINAL))
def test_step_table_has_no_way_out_of_a_terminal_state(status: StepStatus) -> None:
    assert not [move for move in StepMove if (status, move) in STEP_TRANSITIONS]


def test_every_state_can_be_reached_and_left() -> None:
    for table, terminal, first in (
        (JOB_TRANSITIONS, JOB_TERMINAL, JobStatus.QUEUED),
        (STEP_TRANSITIONS, STEP_TERMINAL, StepStatus.PENDING),
    ):
        states = set(type(first))
        assert set(table.values()) | {first} == states
        assert {state for state, _ in table} == states - set(terminal)


def test_step_table_is_the_specification() -> None:
    moves: dict[StepStatus, set[StepStatus]] = {}
    for (state, _), target in STEP_TRANSITIONS.items():
        if target is not state:
            moves.setdefault(state, set()).add(target)
    assert moves == STEP_NEXT


def test_job_table_goes_nowhere_the_specification_does_not() -> None:
    for (state, _), target in JOB_TRANSITIONS.items():
        assert target is state or target in JOB_NEXT[state]


# --- Every state × every input ---------------------------------------------------------------------------------------


def inputs_for(job: Job) -> Iterator[Input]:
    """Every kind of input, about the current attempt, another attempt, another lease, another step, no step."""
    yield from (CancelAsked("op"), PauseAsked("op"), ResumeAsked("op"), DispatchDue(), DispatchDue(force=True))
    yield from (DeadlinePassed(False), DeadlinePassed(True), ForceCancelAsked("op", "it hangs"))
    for step in job.steps:
        name, no = step.spec.step_id, step.attempt_no
        lease = step.attempt.lease_id if step.attempt else "none yet"
        for ids in ((name, no, lease), (name, no, "forged"), (name, max(no - 1, 0), lease), (name, no + 1, lease)):
            yield from callbacks(*ids)
        for number in {no, max(no - 1, 0), no + 1}:
            yield from (Published(name, number), PublishDeferred(name, number), PublishFailed(name, number, "refused"))
            yield from (
                DirectiveWithdrawn(name, number),
                DirectiveDied(name, number, "dead"),
                PublishHeld(name, number),
            )
    yield from callbacks("unknown", 1, "lease")
    yield from (Published("unknown", 1), PublishDeferred("unknown", 1), PublishFailed("unknown", 1, "refused"))
    yield from (DirectiveWithdrawn("unknown", 1), DirectiveDied("unknown", 1, "dead"), PublishHeld("unknown", 1))


def callbacks(*ids: Any) -> Iterator[Input]:
    yield Acked(*ids)
    yield HeartbeatSeen(*ids, progress=0.55, note="half")
    yield HeartbeatSeen(*ids)
    yield Resulted(*ids, verdict=Verdict.SUCCEEDED, artifacts=Raw(b"[1]"))
    yield Resulted(*ids, verdict=Verdict.FAILED)
    yield Resulted(*ids, verdict=Verdict.FAILED, retryable=False, error=Failure("BAD", "bad"))
    yield Resulted(*ids, verdict=Verdict.FAILED, rate_limited_seconds=3.0)


def shape(job: Job, now: int) -> tuple[Any, ...]:
    """What tells two jobs apart as far as rules go; times only by whether they have come."""

    def side(moment: int | None) -> int | None:
        return None if moment is None else (moment > now) - (moment < now)

    return (
        job.status,
        job.current_index,
        side(job.wake_at),
        side(job.spec.deadline_at),
        tuple(
            (
                step.status,
                step.attempts_counted,
                min(step.attempt_no, 2),
                side(step.due_at),
                side(step.ends_by),
                side(step.queue_until),
                step.attempt
                and (
                    step.attempt.dispatch,
                    step.attempt.verdict,
                    step.attempt.acked_at is None,
                    side(step.attempt.claimed_until),
                ),
            )
            for step in job.steps
        ),
    )


@pytest.mark.parametrize(
    ("steps", "not_before", "publishes_inside"),
    [
        (["ocr"], None, False),
        (["ocr"], after(START, 8), True),
        (["ocr", "sis"], None, True),
        (["ocr", "sis"], after(START, 8), False),
    ],
)
def test_every_state_takes_every_input(steps: list[str], not_before: int | None, publishes_inside: bool) -> None:
    """Walk breadth first through every state that can be told apart, and try everything in each of them."""
    fact = accepted(ManualClock(), steps=steps, policy=QUICK, deadline_seconds=70, not_before=not_before)
    number = 0
    seen: set[tuple[Any, ...]] = set()
    kinds: set[tuple[JobStatus, StepStatus, str]] = set()
    frontier: deque[tuple[Job, int, frozenset[str]]] = deque()

    def visit(before: Job | None, about: Input, now: int, leases: frozenset[str]) -> None:
        nonlocal number
        number += 1
        for claim_seconds in (4.0, 0.0):
            fresh_used = set(leases)
            decision = decide(before, about, now, FixedFresh(claim_seconds, number, publishes_inside))
            if decision.job is before and not isinstance(about, Acked | HeartbeatSeen | Resulted):
                assert not decision.events
                return
            check_decision(before, about, decision, fresh_used)
            key = shape(decision.job, now)
            if key not in seen and len(seen) < STATES_MAX[len(steps)]:
                seen.add(key)
                frontier.append((decision.job, now, frozenset(fresh_used)))
            if not any(isinstance(effect, PublishDirective) for effect in decision.effects):
                return

    visit(None, fact, START, frozenset())
    while frontier:
        job, now, leases = frontier.popleft()
        for about in inputs_for(job):
            kinds.add((job.status, job.current_step.status, type(about).__name__))
            visit(job, about, now, leases)
        for moment in {job.wake_at or now, job.spec.deadline_at, after(now, -60), after(now, 4)}:
            for about in (DeadlinePassed(), DeadlinePassed(True), DispatchDue(), CancelAsked("op"), ResumeAsked("op")):
                visit(job, about, moment, leases)
    assert {status for status, _, _ in kinds} == set(JobStatus) - (set() if not_before else {JobStatus.QUEUED})
    reached = {step for _, step, _ in kinds}
    assert reached >= set(StepStatus) - {StepStatus.PENDING}


# --- Long random lives -----------------------------------------------------------------------------------------------

KINDS = (
    "published",
    "publish_failed",
    "publish_deferred",
    "withdrawn",
    "dispatch_due",
    "ack",
    "heartbeat",
    "succeed",
    "fail",
    "fail_final",
    "rate_limited",
    "deadline",
    "still_queued",
    "cancel",
    "force_cancel",
    "pause",
    "resume",
)

moves = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from(["current", "current", "current", "current", "previous", "forged", "other step", "replay"]),
    st.sampled_from([0.0, 0.0, 0.5, 5.0, 12.0, 30.0, "wake", "wake", -7.0, -600.0]),
)
policies = st.builds(
    Policy,
    max_attempts=st.integers(1, 4),
    ack_timeout_seconds=st.floats(0.001, 40),
    queue_timeout_seconds=st.floats(0.001, 90),
    lease_seconds=st.floats(0.001, 40),
    max_step_seconds=st.floats(0.001, 90),
    dispatch_backoff_seconds=st.lists(st.floats(0, 20), max_size=3).map(tuple),
    ack_backoff_seconds=st.lists(st.floats(0, 20), max_size=3).map(tuple),
    execution_backoff_seconds=st.lists(st.floats(0, 20), max_size=3).map(tuple),
)


def fact_of(kind: str, whom: str, job: Job, told: list[Input]) -> Input:
    if whom == "replay" and told:
        return told[len(kind) % len(told)]
    step = job.current_step
    if whom == "other step":
        step = job.steps[(job.current_index + 1) % len(job.steps)]
    name, no = step.spec.step_id, step.attempt_no
    lease = step.attempt.lease_id if step.attempt else "none"
    if whom == "previous":
        no, lease = max(no - 1, 0), "of the attempt before"
    if whom == "forged":
        lease = "forged"
    match kind:
        case "published":
            return Published(name, no)
        case "publish_failed":
            return PublishFailed(name, no, "refused")
        case "publish_deferred":
            return PublishDeferred(name, no)
        case "withdrawn":
            return DirectiveWithdrawn(name, no)
        case "dispatch_due":
            return DispatchDue(force=whom == "previous")
        case "ack":
            return Acked(name, no, lease)
        case "heartbeat":
            return HeartbeatSeen(name, no, lease, progress=0.1 * (len(told) % 10))
        case "succeed":
            return Resulted(name, no, lease, Verdict.SUCCEEDED)
        case "fail":
            return Resulted(name, no, lease, Verdict.FAILED)
        case "fail_final":
            return Resulted(name, no, lease, Verdict.FAILED, retryable=False)
        case "rate_limited":
            return Resulted(name, no, lease, Verdict.FAILED, rate_limited_seconds=2.0)
        case "deadline":
            return DeadlinePassed()
        case "still_queued":
            return DeadlinePassed(still_queued=True)
        case "cancel":
            return CancelAsked("op")
        case "force_cancel":
            return ForceCancelAsked("op", "it hangs")
        case "pause":
            return PauseAsked("op")
        case _:
            return ResumeAsked("op")


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    step_count=st.integers(1, 3),
    policy=policies,
    not_before=st.sampled_from([None, None, -5.0, 20.0]),
    deadline_seconds=st.sampled_from([50.0, 500.0, 50_000.0]),
    publishes_inside=st.booleans(),
    life=st.lists(st.tuples(moves, st.booleans()), min_size=5, max_size=60),
)
def test_random_lives_keep_the_invariants(
    step_count: int,
    policy: Policy,
    not_before: float | None,
    deadline_seconds: float,
    publishes_inside: bool,
    life: list[tuple[tuple[str, str, float | str], bool]],
) -> None:
    clock = ManualClock()
    start_at = None if not_before is None else after(START, not_before)
    fact: Input = accepted(
        clock,
        steps=["ocr", "embedding", "sis"][:step_count],
        policy=policy,
        not_before=start_at,
        deadline_seconds=deadline_seconds,
    )
    leases: set[str] = set()
    decision = ask(None, fact, clock.now(), lambda: FixedFresh(4.0, 0, publishes_inside))
    check_decision(None, fact, decision, leases)
    job, events, told = decision.job, list(decision.events), []
    for number, ((kind, whom, jump), can_publish) in enumerate(life, 1):
        if jump == "wake":
            clock.set(job.wake_at or clock.now())
        else:
            clock.advance(float(jump))
        fact = fact_of(kind, whom, job, told)
        claim_seconds = 4.0 if can_publish else 0.0
        decision = ask(
            job,
            fact,
            clock.now(),
            lambda claim=claim_seconds, no=number: FixedFresh(claim, no, publishes_inside),  # type: ignore[misc]
        )
        check_decision(job, fact, decision, leases)
        job = decision.job
        events += decision.events
        told.append(fact)
    check_trail(job, [(event.type, event.step_id, event.attempt_no, event.data) for event in events])
    assert _ends_by_its_deadline(job)


def _ends_by_its_deadline(job: Job) -> bool:
    """Left to its timer alone, a job comes to its end, and not after its deadline."""
    id_source = ManualClock()
    now = job.updated_at
    for _ in range(2_000):
        if job.wake_at is None:
            return True
        now = max(now, job.wake_at)
        assert now <= max(job.spec.deadline_at, job.updated_at)
        decided = decide(job, DeadlinePassed(), now, id_source)
        assert decided.job is not job, "a timer that fires and changes nothing fires for ever"
        job = replace(decided.job, revision=job.revision + 1)
    return False
