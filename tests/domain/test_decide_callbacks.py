"""The answers of the callback contract in commands §7, in their order, and the edges of `decide`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lucius.domain.attempt import Verdict
from lucius.domain.decide import decide
from lucius.domain.effects import Outcome
from lucius.domain.inputs import (
    Accepted,
    Acked,
    PauseAsked,
    Resulted,
)
from lucius.domain.job import RULES_VERSION, JobStatus
from lucius.domain.step import StepStatus
from lucius.testing.samples import START, ManualClock, accepted
from lucius.testing.scribe import ack, heartbeat, result
from lucius.testing.story import Story

J, S = JobStatus, StepStatus
FAILED = Verdict.FAILED


@pytest.fixture
def story(clock: ManualClock) -> Story:
    return Story(clock)


# --- The callback contract -------------------------------------------------------------------------------------------


def test_callback_of_another_lease_or_attempt_is_stale(story: Story) -> None:
    story.tell(result(story.job, FAILED))
    old = ack(story.job)
    story.wait(33)
    step = story.job.current_step
    assert step.attempt is not None
    wrong = [
        old,
        Acked("ocr", 2, "another lease"),
        Acked("ocr", 3, step.attempt.lease_id),
        Acked("embedding", 1, step.attempt.lease_id),
        replace(heartbeat(story.job), lease_id="another lease"),
        replace(result(story.job), attempt_no=1),
    ]
    for fact in wrong:
        decision = story.tell(fact)
        assert decision.outcome is Outcome.STALE_ATTEMPT
        assert len(decision.events) == 1
        assert story.step is S.DISPATCHING


def test_callback_of_an_unknown_step_is_not_found(story: Story) -> None:
    assert story.tell(Acked("nothing", 1, "lease")).outcome is Outcome.STEP_NOT_FOUND


def test_callback_applied_before_is_a_duplicate(story: Story) -> None:
    first_ack, first_result = ack(story.job), result(story.job)
    story.tell(first_ack)
    assert story.tell(first_ack).outcome is Outcome.DUPLICATE
    story.tell(first_result)
    assert story.tell(first_result).outcome is Outcome.DUPLICATE
    assert story.tell(first_ack).outcome is Outcome.DUPLICATE


def test_callback_duplicate_is_told_also_after_the_end(clock: ManualClock) -> None:
    story = Story(clock, steps=["ocr"])
    facts = [ack(story.job), result(story.job)]
    story.tell(*facts)
    assert [story.tell(fact).outcome for fact in facts] == [Outcome.DUPLICATE] * 2


def test_callback_after_the_end_is_late_or_terminal(clock: ManualClock) -> None:
    story = Story(clock, deadline_seconds=10)
    facts = [result(story.job), ack(story.job), heartbeat(story.job)]
    story.wait(10)
    expected = [Outcome.LATE, Outcome.JOB_TERMINAL, Outcome.JOB_TERMINAL]
    for fact, outcome in zip(facts, expected, strict=True):
        decision = story.tell(fact)
        assert decision.outcome is outcome
        assert len(decision.events) == 1


def test_result_that_contradicts_the_one_applied_is_late(clock: ManualClock) -> None:
    story = Story(clock)
    yes, no = result(story.job), result(story.job, FAILED)
    story.tell(yes)
    assert story.tell(no).outcome is Outcome.LATE
    other = Story(clock)
    yes, no = result(other.job), result(other.job, FAILED)
    other.tell(no)
    assert other.step is S.FAILED_RETRY
    assert other.tell(yes).outcome is Outcome.LATE
    assert other.step is S.FAILED_RETRY


def test_heartbeat_after_its_result_is_told_to_stop(story: Story) -> None:
    story.tell(ack(story.job), result(story.job, FAILED))
    assert story.tell(heartbeat(story.job)).outcome is Outcome.STALE_ATTEMPT


def test_result_after_a_lease_that_ran_out_still_counts(story: Story) -> None:
    fact: Resulted = result(story.job)
    story.tell(ack(story.job))
    story.wait(900)
    assert story.tell(fact).outcome is Outcome.APPLIED
    assert story.job.steps[0].status is S.SUCCEEDED


# --- The edges of the function ---------------------------------------------------------------------------------------


def test_decide_refuses_what_makes_no_sense(story: Story) -> None:
    fact = accepted(story.clock)
    with pytest.raises(ValueError, match="accepted already"):
        decide(story.job, fact, START, story.clock)
    with pytest.raises(ValueError, match="needs a job"):
        decide(None, PauseAsked("op"), START, story.clock)


def test_decide_refuses_a_job_of_rules_it_does_not_know(clock: ManualClock) -> None:
    fact = accepted(clock, rules_version=RULES_VERSION + 1)
    later = Accepted(fact.spec, fact.steps)
    job = decide(None, later, START, clock).job
    with pytest.raises(ValueError, match="rules"):
        decide(job, PauseAsked("op"), START, clock)
