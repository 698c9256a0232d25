"""The answers of the callback contract in commands §7, in their order, and the edges of `decide`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lucius.domain.attempt import Verdict
from lucius.domain.decide import decide
from lucius.domain.draft import CALLBACKS_RECORDED_MAX
from lucius.domain.effects import Outcome
from lucius.domain.inputs import (
    Accepted,
    Acked,
    PauseAsked,
    Resulted,
)
from lucius.domain.job import RULES_VERSION, JobStatus
from lucius.domain.step import StepStatus
from lucius.testing.job_scenario import JobScenario
from lucius.testing.ledger_driver import ack, heartbeat, result
from lucius.testing.samples import START, ManualClock, accepted

J, S = JobStatus, StepStatus
FAILED = Verdict.FAILED


@pytest.fixture
def scenario(clock: ManualClock) -> JobScenario:
    return JobScenario(clock)


# --- The callback contract -------------------------------------------------------------------------------------------


def test_callback_of_another_lease_or_attempt_is_stale(scenario: JobScenario) -> None:
    scenario.tell(result(scenario.job, FAILED))
    old = ack(scenario.job)
    scenario.wait(33)
    step = scenario.job.current_step
    assert step.attempt is not None
    wrong = [
        old,
        Acked("ocr", 2, "another lease"),
        Acked("ocr", 3, step.attempt.lease_id),
        Acked("embedding", 1, step.attempt.lease_id),
        replace(heartbeat(scenario.job), lease_id="another lease"),
        replace(result(scenario.job), attempt_no=1),
    ]
    for fact in wrong:
        decision = scenario.tell(fact)
        assert decision.outcome is Outcome.STALE_ATTEMPT
        assert len(decision.events) == 1
        assert scenario.step is S.DISPATCHING


def test_callback_of_an_unknown_step_is_not_found(scenario: JobScenario) -> None:
    assert scenario.tell(Acked("nothing", 1, "lease")).outcome is Outcome.STEP_NOT_FOUND


def test_callback_applied_before_is_a_duplicate(scenario: JobScenario) -> None:
    first_ack, first_result = ack(scenario.job), result(scenario.job)
    scenario.tell(first_ack)
    assert scenario.tell(first_ack).outcome is Outcome.DUPLICATE
    scenario.tell(first_result)
    assert scenario.tell(first_result).outcome is Outcome.DUPLICATE
    assert scenario.tell(first_ack).outcome is Outcome.DUPLICATE


def test_callback_duplicate_is_told_also_after_the_end(clock: ManualClock) -> None:
    scenario = JobScenario(clock, steps=["ocr"])
    facts = [ack(scenario.job), result(scenario.job)]
    scenario.tell(*facts)
    assert [scenario.tell(fact).outcome for fact in facts] == [Outcome.DUPLICATE] * 2


def test_callback_after_the_end_is_late_or_terminal(clock: ManualClock) -> None:
    scenario = JobScenario(clock, deadline_seconds=10)
    facts = [result(scenario.job), ack(scenario.job), heartbeat(scenario.job)]
    scenario.wait(10)
    expected = [Outcome.LATE, Outcome.JOB_TERMINAL, Outcome.JOB_TERMINAL]
    for fact, outcome in zip(facts, expected, strict=True):
        decision = scenario.tell(fact)
        assert decision.outcome is outcome
        assert len(decision.events) == 1


def test_result_that_contradicts_the_one_applied_is_late(clock: ManualClock) -> None:
    scenario = JobScenario(clock)
    yes, no = result(scenario.job), result(scenario.job, FAILED)
    scenario.tell(yes)
    assert scenario.tell(no).outcome is Outcome.LATE
    other = JobScenario(clock)
    yes, no = result(other.job), result(other.job, FAILED)
    other.tell(no)
    assert other.step is S.FAILED_RETRY
    assert other.tell(yes).outcome is Outcome.LATE
    assert other.step is S.FAILED_RETRY


def test_heartbeat_after_its_result_is_told_to_stop(scenario: JobScenario) -> None:
    scenario.tell(ack(scenario.job), result(scenario.job, FAILED))
    assert scenario.tell(heartbeat(scenario.job)).outcome is Outcome.STALE_ATTEMPT


def test_result_after_a_lease_that_ran_out_still_counts(scenario: JobScenario) -> None:
    fact: Resulted = result(scenario.job)
    scenario.tell(ack(scenario.job))
    scenario.wait(900)
    assert scenario.tell(fact).outcome is Outcome.APPLIED
    assert scenario.job.steps[0].status is S.SUCCEEDED


# --- Repeats ---------------------------------------------------------------------------------------------------------


def test_a_callback_that_repeats_another_is_recorded_once(scenario: JobScenario) -> None:
    scenario.tell(ack(scenario.job))
    first = scenario.tell(ack(scenario.job))
    assert (first.outcome, scenario.types) == (Outcome.DUPLICATE, ["ACK"])
    again = scenario.tell(ack(scenario.job))
    assert (again.outcome, again.events, again.job) == (Outcome.DUPLICATE, (), first.job)
    scenario.tell(result(scenario.job))
    assert scenario.tell(ack(first.job)).events == (), "the same outcome for the same attempt"
    assert scenario.tell(result(first.job)).outcome is Outcome.DUPLICATE
    assert scenario.types == ["RESULT"], "another type is another kind"


def test_a_job_of_older_rules_records_each_repeat(clock: ManualClock) -> None:
    """Histories that were recorded under them must replay."""
    job = decide(None, accepted(clock, rules_version=1), START, clock).job
    for _ in range(3):
        decision = decide(job, ack(job), START, clock)
        job = decision.job
        assert [event.type for event in decision.events] == ["ACK"]
    assert job.callbacks_recorded == ()


def test_kinds_of_recorded_callbacks_are_bounded(scenario: JobScenario) -> None:
    facts = [Acked("ocr", number, "made up") for number in range(2, CALLBACKS_RECORDED_MAX + 2)]
    scenario.tell(*facts)
    assert len(scenario.job.callbacks_recorded) == CALLBACKS_RECORDED_MAX
    decision = decide(scenario.job, Acked("ocr", 1, "made up"), scenario.clock.now(), scenario.clock)
    assert (decision.outcome, decision.events) == (Outcome.STALE_ATTEMPT, ())


# --- The edges of the function ---------------------------------------------------------------------------------------


def test_decide_refuses_what_makes_no_sense(scenario: JobScenario) -> None:
    fact = accepted(scenario.clock)
    with pytest.raises(ValueError, match="already accepted"):
        decide(scenario.job, fact, START, scenario.clock)
    with pytest.raises(ValueError, match="needs a job"):
        decide(None, PauseAsked("op"), START, scenario.clock)


def test_decide_refuses_a_job_of_rules_it_does_not_know(clock: ManualClock) -> None:
    fact = accepted(clock, rules_version=RULES_VERSION + 1)
    later = Accepted(fact.spec, fact.steps)
    job = decide(None, later, START, clock).job
    with pytest.raises(ValueError, match="rules"):
        decide(job, PauseAsked("op"), START, clock)
