"""The rows of the table in commands §6 about dispatch and callbacks, each as an example."""

from __future__ import annotations

import pytest

from lucius.domain.attempt import DispatchStatus, Failure, Verdict
from lucius.domain.effects import CallWebhook, Outcome, PublishDirective, SettleDirective
from lucius.domain.inputs import (
    CancelAsked,
    DeadlinePassed,
    DispatchDue,
    PauseAsked,
    PublishDeferred,
    PublishFailed,
)
from lucius.domain.job import JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.step import StepStatus
from lucius.domain.time import after
from lucius.testing.job_scenario import JobScenario
from lucius.testing.ledger_driver import ack, heartbeat, published, result
from lucius.testing.samples import START, ManualClock

J, S = JobStatus, StepStatus
FAILED = Verdict.FAILED


@pytest.fixture
def scenario(clock: ManualClock) -> JobScenario:
    return JobScenario(clock)


# --- Acceptance and dispatch -----------------------------------------------------------------------------------------


def test_accepted_job_creates_its_first_attempt_at_once(scenario: JobScenario) -> None:
    assert [step.status for step in scenario.job.steps] == [S.DISPATCHING, S.PENDING, S.PENDING]
    assert scenario.job.status is J.DISPATCHING
    assert scenario.last.effects == (PublishDirective(0),)
    assert scenario.types == ["ACCEPTED", "ATTEMPT_CREATED"]
    attempt = scenario.job.current_step.attempt
    assert attempt is not None
    assert (attempt.attempt_no, attempt.dispatch) == (1, DispatchStatus.PENDING)
    assert attempt.claimed_until == after(START, scenario.clock.claim_seconds)


def test_accepted_job_waits_for_its_start_time(clock: ManualClock) -> None:
    scenario = JobScenario(clock, not_before=after(START, 60))
    assert (scenario.job.status, scenario.step, scenario.job.wake_at) == (J.QUEUED, S.PENDING, after(START, 60))
    assert scenario.last.effects == ()
    assert scenario.tell(DeadlinePassed()).outcome is Outcome.IGNORED
    scenario.wait(60)
    assert (scenario.job.status, scenario.step) == (J.DISPATCHING, S.DISPATCHING)


def test_accepted_while_nothing_can_be_published_leaves_the_row_unclaimed(clock: ManualClock) -> None:
    clock.claim_seconds = 0.0
    scenario = JobScenario(clock)
    assert scenario.last.effects == ()
    assert scenario.job.current_step.attempt is not None
    assert scenario.job.current_step.attempt.claimed_until == START
    clock.claim_seconds = 30.0
    assert scenario.tell(DispatchDue()).effects == (PublishDirective(0),)


def test_accepted_where_the_bus_shares_the_commit_is_published_at_once(clock: ManualClock) -> None:
    clock.publishes_inside = True
    scenario = JobScenario(clock)
    assert (scenario.job.status, scenario.step) == (J.IN_PROGRESS, S.INITIATED)
    assert scenario.last.effects == (PublishDirective(0),)
    assert scenario.types == ["ACCEPTED", "ATTEMPT_CREATED", "PUBLISHED"]
    assert scenario.job.wake_at == after(START, 30)
    scenario.tell(result(scenario.job))
    assert scenario.types == ["RESULT", "ATTEMPT_CREATED", "PUBLISHED"]
    assert PublishDirective(1) in scenario.last.effects


def test_job_deadline_counts_from_not_before(clock: ManualClock) -> None:
    scenario = JobScenario(clock, not_before=after(START, 1_000), deadline_seconds=100)
    assert scenario.job.spec.deadline_at == after(START, 1_100)


def test_published_directive_is_initiated_and_sets_the_ack_clock(scenario: JobScenario) -> None:
    scenario.tell(published(scenario.job))
    step = scenario.job.current_step
    assert (scenario.job.status, scenario.step) == (J.IN_PROGRESS, S.INITIATED)
    assert step.due_at == scenario.job.wake_at == after(START, 30)
    assert step.queue_until == after(START, 86_400)
    assert step.attempt is not None
    assert (step.attempt.dispatch, step.attempt.sent_at) == (DispatchStatus.SENT, START)
    assert scenario.types == ["PUBLISHED"]


def test_published_twice_is_ignored(scenario: JobScenario) -> None:
    scenario.tell(published(scenario.job))
    before = scenario.job
    assert scenario.tell(published(before)).outcome is Outcome.IGNORED
    assert scenario.job is before


def test_published_never_moves_a_job_out_of_paused_or_cancelling(clock: ManualClock) -> None:
    for fact, status in ((PauseAsked("op"), J.PAUSED), (CancelAsked("op"), J.CANCELLING)):
        scenario = JobScenario(clock)
        scenario.tell(fact, published(scenario.job))
        assert (scenario.job.status, scenario.step) == (status, S.INITIATED)


def test_published_after_ack_changes_nothing(scenario: JobScenario) -> None:
    fact = published(scenario.job)
    scenario.tell(ack(scenario.job))
    assert scenario.tell(fact).outcome is Outcome.IGNORED
    assert scenario.step is S.PROCESSING


def test_published_after_the_end_is_ignored(clock: ManualClock) -> None:
    scenario = JobScenario(clock, deadline_seconds=10)
    fact = published(scenario.job)
    scenario.wait(10)
    assert scenario.tell(fact).outcome is Outcome.IGNORED
    attempt = scenario.job.steps[0].attempt
    assert attempt is not None
    assert attempt.dispatch is DispatchStatus.FAILED_FINAL


def test_publish_failed_waits_for_the_dispatch_backoff(scenario: JobScenario) -> None:
    scenario.clock._jitter = 0.0
    scenario.tell(PublishFailed("ocr", 1, "too large"))
    step = scenario.job.current_step
    assert (scenario.step, step.due_at) == (S.FAILED_RETRY, after(START, 30))
    assert step.error == Failure("PUBLISH_FAILED", "too large")
    assert step.attempt is not None
    assert step.attempt.dispatch is DispatchStatus.FAILED_FINAL
    scenario.wait(30)
    assert (scenario.step, scenario.job.current_step.attempt_no) == (S.DISPATCHING, 2)
    assert scenario.last.effects == (PublishDirective(0),)


def test_publish_failed_for_the_last_time_ends_the_job(scenario: JobScenario) -> None:
    for attempt_no in (1, 2, 3):
        scenario.tell(PublishFailed("ocr", attempt_no, "too large"))
        scenario.wait(1_000)
    assert (scenario.job.status, scenario.job.steps[0].status) == (J.FAILED_FINAL, S.FAILED_FINAL)
    assert scenario.job.dead_letter
    assert scenario.job.error == Failure("PUBLISH_FAILED", "too large")


def test_publish_deferred_uses_up_no_attempt(scenario: JobScenario) -> None:
    scenario.clock.advance(5)
    scenario.tell(PublishDeferred("ocr", 1))
    step = scenario.job.current_step
    assert (scenario.step, step.attempt_no, step.attempts_counted) == (S.DISPATCHING, 1, 1)
    assert scenario.tell(DispatchDue()).effects == (PublishDirective(0),)
    assert (scenario.job.current_step.attempt_no, scenario.job.current_step.attempts_counted) == (1, 1)


def test_dispatch_due_leaves_a_claimed_row_to_its_claimer(scenario: JobScenario) -> None:
    assert scenario.tell(DispatchDue()).outcome is Outcome.IGNORED
    assert scenario.tell(DispatchDue(force=True)).effects == (PublishDirective(0),)
    scenario.clock.advance(30)
    assert scenario.tell(DispatchDue()).effects == (PublishDirective(0),)


# --- Callbacks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_published", [False, True])
def test_ack_starts_the_lease(scenario: JobScenario, is_published: bool) -> None:
    if is_published:
        scenario.tell(published(scenario.job))
    decision = scenario.tell(ack(scenario.job))
    step = scenario.job.current_step
    assert (decision.outcome, scenario.job.status, scenario.step) == (Outcome.APPLIED, J.IN_PROGRESS, S.PROCESSING)
    assert (step.due_at, step.ends_by) == (after(START, 900), after(START, 21_600))
    assert decision.effects == (SettleDirective(0, 1),)
    assert step.attempt is not None
    assert step.attempt.dispatch is DispatchStatus.SENT


def test_ack_revives_an_attempt_that_timed_out_or_failed_to_publish(clock: ManualClock) -> None:
    timed_out = JobScenario(clock)
    timed_out.tell(published(timed_out.job))
    timed_out.wait(30)
    unsent = JobScenario(clock)
    unsent.tell(PublishFailed("ocr", 1, "no answer"))
    for scenario in (timed_out, unsent):
        assert scenario.step is S.FAILED_RETRY
        assert scenario.tell(ack(scenario.job)).outcome is Outcome.APPLIED
        assert scenario.step is S.PROCESSING
        assert scenario.job.current_step.attempt_no == 1
    assert unsent.job.current_step.attempt is not None
    assert unsent.job.current_step.attempt.dispatch is DispatchStatus.FAILED_FINAL


def test_heartbeat_extends_the_lease_up_to_the_steps_end(clock: ManualClock) -> None:
    scenario = JobScenario(clock, policy=Policy(lease_seconds=100, max_step_seconds=250))
    scenario.tell(ack(scenario.job))
    for waited, due in ((90, 190), (90, 250), (60, 250)):
        clock.advance(waited)
        assert scenario.tell(heartbeat(scenario.job)).outcome is Outcome.APPLIED
        assert scenario.job.wake_at == after(START, due)
    scenario.wait(10)
    assert scenario.step is S.FAILED_RETRY
    assert scenario.job.current_step.error is not None
    assert scenario.job.current_step.error.code == "STEP_TIMEOUT"


def test_heartbeat_keeps_progress_and_writes_one_event_per_tenth(scenario: JobScenario) -> None:
    scenario.tell(ack(scenario.job))
    written = []
    for percent in (1, 5, 9, 10, 12, 19, 30, 30):
        decision = scenario.tell(heartbeat(scenario.job, percent / 100, f"{percent} %"))
        written.append(len(decision.events))
        assert (scenario.job.current_step.progress, scenario.job.current_step.note) == (percent / 100, f"{percent} %")
    assert written == [0, 0, 0, 1, 0, 0, 1, 0]


def test_heartbeat_stands_in_for_a_lost_ack(scenario: JobScenario) -> None:
    scenario.tell(published(scenario.job), heartbeat(scenario.job, 0.2))
    assert scenario.step is S.PROCESSING


def test_heartbeats_cannot_keep_an_attempt_alive_beyond_max_step_seconds(clock: ManualClock) -> None:
    """Whatever a service goes on reporting, its attempt is over when the step's time is."""
    scenario = JobScenario(clock, policy=Policy(lease_seconds=100, max_step_seconds=200))
    scenario.tell(ack(scenario.job))
    for _ in range(2):
        clock.advance(90)
        scenario.tell(heartbeat(scenario.job))
    scenario.wait(20)
    assert (scenario.step, scenario.job.wake_at) == (S.FAILED_RETRY, scenario.job.current_step.due_at)
    scenario.tell(heartbeat(scenario.job, 0.9))
    assert scenario.step is S.FAILED_RETRY or scenario.job.current_step.ends_by == after(START, 200)


@pytest.mark.parametrize("steps_before", ["dispatching", "initiated", "processing", "failed_retry"])
def test_result_succeeded_starts_the_next_step_in_the_same_decision(scenario: JobScenario, steps_before: str) -> None:
    if steps_before != "dispatching":
        scenario.tell(published(scenario.job))
    if steps_before == "processing":
        scenario.tell(ack(scenario.job))
    if steps_before == "failed_retry":
        scenario.wait(30)
    decision = scenario.tell(result(scenario.job))
    assert decision.outcome is Outcome.APPLIED
    assert [step.status for step in scenario.job.steps] == [S.SUCCEEDED, S.DISPATCHING, S.PENDING]
    assert scenario.job.status is J.IN_PROGRESS
    settles = () if steps_before == "processing" else (SettleDirective(0, 1),)  # Its ACK did so already.
    assert decision.effects == (*settles, PublishDirective(1))
    assert scenario.types == ["RESULT", "ATTEMPT_CREATED"]


def test_result_of_the_last_step_ends_the_job(clock: ManualClock) -> None:
    scenario = JobScenario(clock, callback_urls={"completed": "https://client.example/done"})
    for _ in range(3):
        scenario.tell(result(scenario.job))
    assert (scenario.job.status, scenario.job.wake_at, scenario.job.completed_at) == (J.SUCCEEDED, None, START)
    assert [step.status for step in scenario.job.steps] == [S.SUCCEEDED] * 3
    assert scenario.last.effects == (SettleDirective(2, 1), CallWebhook("https://client.example/done"))
    assert scenario.types == ["RESULT", "JOB_SUCCEEDED"]
    assert scenario.job.progress == 1.0


def test_result_failed_waits_for_the_execution_backoff(scenario: JobScenario) -> None:
    scenario.clock._jitter = 0.0
    error = Failure("OOM", "out of memory", instance="instance-1")
    for attempt_no, backoff in ((1, 30), (2, 120)):
        scenario.tell(ack(scenario.job), result(scenario.job, FAILED, error=error))
        step = scenario.job.current_step
        assert (scenario.step, step.due_at) == (S.FAILED_RETRY, after(scenario.clock.now(), backoff))
        assert step.error == error
        scenario.wait(backoff)
        assert (scenario.step, scenario.job.current_step.attempt_no) == (S.DISPATCHING, attempt_no + 1)
    scenario.tell(result(scenario.job, FAILED, error=error))
    assert (scenario.job.status, scenario.job.steps[0].status, scenario.job.error) == (
        J.FAILED_FINAL,
        S.FAILED_FINAL,
        error,
    )
    assert [step.status for step in scenario.job.steps[1:]] == [S.PENDING] * 2


def test_jitter_only_lengthens_the_backoff(clock: ManualClock) -> None:
    clock._jitter = 0.999
    scenario = JobScenario(clock)
    scenario.tell(result(scenario.job, FAILED))
    due = scenario.job.current_step.due_at
    assert due is not None
    assert after(START, 30) < due <= after(START, 33)


def test_result_rate_limited_waits_as_asked_and_does_not_count(scenario: JobScenario) -> None:
    for attempt_no in range(1, 9):
        scenario.tell(ack(scenario.job), result(scenario.job, FAILED, rate_limited_seconds=17.5))
        step = scenario.job.current_step
        assert (scenario.step, step.attempts_counted) == (S.FAILED_RETRY, 0)
        assert step.due_at == after(scenario.clock.now(), 17.5)
        scenario.wait(17.5)
        assert scenario.job.current_step.attempt_no == attempt_no + 1
    assert scenario.job.status is J.IN_PROGRESS


@pytest.mark.parametrize(("asked", "waits"), [(0.0, 1.0), (-5.0, 1.0), (10**9, 86_400.0)])
def test_rate_limit_is_kept_within_bounds(clock: ManualClock, asked: float, waits: float) -> None:
    scenario = JobScenario(clock, deadline_seconds=10**6)
    scenario.tell(result(scenario.job, FAILED, rate_limited_seconds=asked))
    assert scenario.job.current_step.due_at == after(START, waits)


def test_result_not_retryable_ends_the_job(scenario: JobScenario) -> None:
    error = Failure("BAD_INPUT", "not a PDF")
    scenario.tell(result(scenario.job, FAILED, retryable=False, error=error))
    assert (scenario.job.status, scenario.job.error, scenario.job.dead_letter) == (J.FAILED_FINAL, error, True)
    assert scenario.job.steps[0].status is S.FAILED_FINAL


def test_result_failed_without_a_reason_gets_one(scenario: JobScenario) -> None:
    scenario.tell(result(scenario.job, FAILED, retryable=False))
    assert scenario.job.error is not None
    assert scenario.job.error.code == "STEP_FAILED"
