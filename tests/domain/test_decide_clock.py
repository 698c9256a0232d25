"""A job that a clock which was ahead has written to: once repair makes it due, its waits are as long as they may be."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lucius.domain.attempt import Verdict
from lucius.domain.decide import decide
from lucius.domain.effects import Decision, Outcome
from lucius.domain.inputs import DeadlinePassed, Input
from lucius.domain.job import Job
from lucius.domain.protocol import Policy
from lucius.domain.time import after
from lucius.testing.ledger_driver import ack, heartbeat, published, result
from lucius.testing.samples import START, ManualClock, accepted

POLICY = Policy(
    ack_timeout_seconds=30.0, queue_timeout_seconds=600.0, lease_seconds=900.0, max_step_seconds=7_200.0,
    execution_backoff_seconds=(60.0,),
)  # fmt: skip
HOUR = 3_600.0


def written(clock: ManualClock, ahead_seconds: float, *steps: str) -> Job:
    """A job to which these things happen, the last of them while the clock is ahead."""
    job = decide(None, accepted(clock, policy=POLICY, deadline_seconds=86_400.0), START, clock).job
    facts = {
        "published": published, "acked": ack, "heartbeat": heartbeat,
        "failed": lambda job: result(job, Verdict.FAILED),
        "limited": lambda job: result(job, Verdict.FAILED, rate_limited_seconds=300.0),
    }  # fmt: skip
    for place, name in enumerate(steps):
        fact: Input = facts[name](job)
        at = after(START, ahead_seconds if place == len(steps) - 1 else 0)
        job = decide(job, fact, at, clock).job
    return job


def repaired(job: Job, clock: ManualClock) -> Decision:
    return decide(replace(job, wake_at=START), DeadlinePassed(), START, clock)


@pytest.mark.parametrize(
    ("steps", "due_after", "ends_after", "queue_after"),
    [
        (("published",), 30.0, None, 600.0),
        (("acked",), 900.0, 7_200.0, None),
        (("acked", "heartbeat"), 900.0, 7_200.0, None),
        (("acked", "failed"), 66.0, 7_200.0, None),  # The jitter of these tests is half of a tenth.
        (("acked", "limited"), 300.0, 7_200.0, None),
    ],
)
def test_wait_written_an_hour_ahead_is_as_long_as_its_policy_says(
    clock: ManualClock, steps: tuple[str, ...], due_after: float, ends_after: float | None, queue_after: float | None
) -> None:
    decision = repaired(written(clock, HOUR, *steps), clock)
    step = decision.job.current_step
    assert step.due_at is not None
    assert START < step.due_at <= after(START, due_after)
    assert step.due_at == decision.job.wake_at
    assert step.ends_by == (None if ends_after is None else after(START, ends_after))
    assert step.queue_until == (None if queue_after is None else after(START, queue_after))
    assert step.updated_at == decision.job.updated_at == START
    assert decision.outcome is Outcome.APPLIED
    assert [(event.type, event.data["ahead_seconds"]) for event in decision.events] == [("CLOCK_CORRECTED", HOUR)]
    assert repaired(decision.job, clock).events == ()


@pytest.mark.parametrize("steps", [("published",), ("acked",), ("acked", "failed")])
def test_clock_that_is_ahead_by_no_more_than_clocks_differ_changes_nothing(
    clock: ManualClock, steps: tuple[str, ...]
) -> None:
    job = written(clock, 4.0, *steps)
    decision = repaired(job, clock)
    assert (decision.job, decision.events, decision.outcome) == (job, (), Outcome.IGNORED)


def test_claim_that_is_longer_than_a_claim_is_shortened(clock: ManualClock) -> None:
    job = decide(None, accepted(clock, policy=POLICY), after(START, HOUR), clock).job
    attempt = repaired(job, clock).job.current_step.attempt
    assert attempt is not None
    assert attempt.claimed_until == after(START, clock.claim_seconds)
