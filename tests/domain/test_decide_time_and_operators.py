"""The rows of the table in commands §6 about timeouts, cancel, pause, resume and redrive, each as an example."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lucius.domain.attempt import DispatchStatus, Verdict
from lucius.domain.decide import decide
from lucius.domain.effects import Outcome, PublishDirective
from lucius.domain.inputs import (
    CancelAsked,
    DeadlinePassed,
    Input,
    PauseAsked,
    PublishDeferred,
    PublishFailed,
    ResumeAsked,
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


# --- Time ------------------------------------------------------------------------------------------------------------


def test_no_ack_in_time_waits_for_the_ack_backoff(scenario: JobScenario) -> None:
    scenario.clock._jitter = 0.0
    scenario.tell(published(scenario.job))
    scenario.wait(30)
    step = scenario.job.current_step
    assert (scenario.step, step.due_at) == (S.FAILED_RETRY, after(START, 90))
    assert step.error is not None
    assert step.error.code == "ACK_TIMEOUT"
    scenario.wait(60)
    scenario.tell(published(scenario.job))
    scenario.wait(30)
    assert scenario.job.current_step.due_at == after(scenario.clock.now(), 300)
    scenario.wait(300)
    scenario.tell(published(scenario.job))
    scenario.wait(30)
    assert (scenario.job.status, scenario.job.steps[0].status) == (J.FAILED_FINAL, S.FAILED_FINAL)


def test_ack_deadline_moves_on_while_the_directive_is_queued(clock: ManualClock) -> None:
    scenario = JobScenario(clock, policy=Policy(queue_timeout_seconds=100), deadline_seconds=10_000)
    scenario.tell(published(scenario.job))
    for due, recorded in ((60, ["STILL_QUEUED"]), (90, []), (100, [])):
        clock.set(scenario.job.wake_at or 0)
        scenario.tell(DeadlinePassed(still_queued=True))
        assert (scenario.step, scenario.job.wake_at) == (S.INITIATED, after(START, due))
        assert scenario.types == recorded, "that it waits is recorded once"
    clock.set(after(START, 100))
    scenario.tell(DeadlinePassed(still_queued=True))
    assert scenario.step is S.FAILED_RETRY
    assert scenario.job.current_step.attempts_counted == 1


def test_lease_that_ran_out_waits_for_the_execution_backoff(scenario: JobScenario) -> None:
    scenario.clock._jitter = 0.0
    scenario.tell(ack(scenario.job))
    scenario.wait(900)
    step = scenario.job.current_step
    assert (scenario.step, step.due_at) == (S.FAILED_RETRY, after(START, 930))
    assert step.error is not None
    assert step.error.code == "LEASE_EXPIRED"


@pytest.mark.parametrize("state", ["queued", "dispatching", "initiated", "processing", "failed_retry", "paused"])
def test_job_deadline_ends_the_job_in_any_state(clock: ManualClock, state: str) -> None:
    not_before = after(START, 50) if state == "queued" else None
    scenario = JobScenario(clock, deadline_seconds=25, not_before=not_before)
    if state in ("initiated", "processing"):
        scenario.tell(published(scenario.job))
    if state == "processing":
        scenario.tell(ack(scenario.job))
    if state == "failed_retry":
        scenario.tell(result(scenario.job, FAILED))
    if state == "paused":
        scenario.tell(PauseAsked("op"))
    clock.set(scenario.job.spec.deadline_at)
    scenario.tell(DeadlinePassed())
    assert scenario.job.status is J.FAILED_FINAL
    assert scenario.job.error is not None
    assert scenario.job.error.code == "DEADLINE_EXCEEDED"
    assert {step.status for step in scenario.job.steps} == {S.CANCELLED}
    assert scenario.job.dead_letter


def test_deadline_is_a_hint_that_counts_only_once_it_has_come(scenario: JobScenario) -> None:
    scenario.tell(published(scenario.job))
    scenario.clock.advance(29.999)
    before = scenario.job
    decision = scenario.tell(DeadlinePassed())
    assert (decision.outcome, scenario.job) == (Outcome.IGNORED, before)
    assert decision.events == ()


@pytest.mark.parametrize("state", ["queued", "dispatching", "initiated", "processing", "failed_retry", "paused"])
def test_timer_that_was_lost_and_set_anew_does_no_harm(clock: ManualClock, state: str) -> None:
    """Drift repair wakes a job at once; what its step waits for has not come for all that."""
    scenario = JobScenario(clock, not_before=after(START, 50) if state == "queued" else None)
    if state in ("initiated", "processing"):
        scenario.tell(published(scenario.job))
    if state == "processing":
        scenario.tell(ack(scenario.job))
    if state == "failed_retry":
        scenario.tell(result(scenario.job, FAILED))
    if state == "paused":
        scenario.tell(result(scenario.job, FAILED), PauseAsked("op"))
    clock.advance(1)
    sound = scenario.job
    woken = replace(sound, wake_at=clock.now())
    decision = decide(woken, DeadlinePassed(), clock.now(), clock)
    assert decision.job.steps == sound.steps
    assert (decision.job.status, decision.job.wake_at) == (sound.status, sound.wake_at)


# --- Operators -------------------------------------------------------------------------------------------------------


def test_cancel_ends_a_job_with_no_live_attempt_at_once(clock: ManualClock) -> None:
    waiting = JobScenario(clock, not_before=after(START, 60))
    backing_off = JobScenario(clock)
    backing_off.tell(result(backing_off.job, FAILED))
    between = JobScenario(clock)
    between.tell(PauseAsked("op"), result(between.job))
    for scenario in (waiting, backing_off, between):
        scenario.tell(CancelAsked("operator", "no longer wanted"))
        assert (scenario.job.status, scenario.job.completed_at) == (J.CANCELLED, clock.now())
        assert scenario.types == ["CANCEL_ASKED", "JOB_CANCELLED"]
        assert all(step.status in (S.CANCELLED, S.SUCCEEDED) for step in scenario.job.steps)
    assert between.job.steps[0].status is S.SUCCEEDED


def test_cancel_closes_an_unclaimed_row_unpublished(scenario: JobScenario) -> None:
    scenario.tell(PublishDeferred("ocr", 1), CancelAsked("op"))
    assert scenario.job.status is J.CANCELLED
    attempt = scenario.job.steps[0].attempt
    assert attempt is not None
    assert attempt.dispatch is DispatchStatus.FAILED_FINAL


@pytest.mark.parametrize("state", ["claimed", "initiated", "processing"])
def test_cancel_lets_a_live_attempt_finish(scenario: JobScenario, state: str) -> None:
    if state != "claimed":
        scenario.tell(published(scenario.job))
    if state == "processing":
        scenario.tell(ack(scenario.job))
    decision = scenario.tell(CancelAsked("op"))
    assert (decision.outcome, scenario.job.status) == (Outcome.APPLIED, J.CANCELLING)
    assert decision.effects == ()
    scenario.tell(result(scenario.job))
    assert scenario.job.status is J.CANCELLED
    assert [step.status for step in scenario.job.steps] == [S.SUCCEEDED, S.CANCELLED, S.CANCELLED]


def test_cancelling_ends_with_a_failed_publish(scenario: JobScenario) -> None:
    scenario.tell(CancelAsked("op"), PublishFailed("ocr", 1, "too large"))
    assert (scenario.job.status, scenario.job.steps[0].status) == (J.CANCELLED, S.CANCELLED)


def test_cancelling_ends_with_a_deferred_publish(scenario: JobScenario) -> None:
    scenario.tell(CancelAsked("op"), PublishDeferred("ocr", 1))
    assert scenario.job.status is J.CANCELLED


def test_cancelling_ends_when_the_claim_on_an_unsent_row_runs_out(scenario: JobScenario) -> None:
    scenario.tell(CancelAsked("op"))
    assert scenario.job.wake_at == after(START, 30)
    scenario.wait(30)
    assert scenario.job.status is J.CANCELLED


@pytest.mark.parametrize("acked", [False, True])
def test_cancelling_ends_with_a_timeout_and_without_retry(scenario: JobScenario, acked: bool) -> None:
    scenario.tell(published(scenario.job))
    if acked:
        scenario.tell(ack(scenario.job))
    scenario.tell(CancelAsked("op"))
    scenario.wait(900 if acked else 30)
    assert (scenario.job.status, scenario.job.steps[0].status) == (J.CANCELLED, S.CANCELLED)


def test_cancelling_ends_with_a_failed_result_and_without_retry(scenario: JobScenario) -> None:
    scenario.tell(ack(scenario.job), CancelAsked("op"), result(scenario.job, FAILED))
    assert (scenario.job.status, scenario.job.steps[0].status) == (J.CANCELLED, S.CANCELLED)


def test_last_step_that_succeeds_while_cancelling_stays_succeeded(clock: ManualClock) -> None:
    scenario = JobScenario(clock, steps=["ocr"])
    scenario.tell(ack(scenario.job), CancelAsked("op"), result(scenario.job))
    assert (scenario.job.status, scenario.job.steps[0].status) == (J.CANCELLED, S.SUCCEEDED)


def test_cancel_again_is_accepted_and_pause_is_not(scenario: JobScenario) -> None:
    scenario.tell(ack(scenario.job), CancelAsked("op"))
    assert scenario.tell(CancelAsked("op")).outcome is Outcome.APPLIED
    assert scenario.tell(PauseAsked("op")).outcome is Outcome.CONFLICT
    assert scenario.tell(ResumeAsked("op")).outcome is Outcome.CONFLICT
    assert scenario.job.status is J.CANCELLING


def test_paused_job_lets_the_live_attempt_go_on_and_creates_no_other(scenario: JobScenario) -> None:
    scenario.tell(ack(scenario.job), PauseAsked("op"))
    assert scenario.tell(heartbeat(scenario.job, 0.5)).outcome is Outcome.APPLIED
    decision = scenario.tell(result(scenario.job))
    assert (scenario.job.status, scenario.step) == (J.PAUSED, S.PENDING)
    assert decision.effects == ()
    assert scenario.job.wake_at == scenario.job.spec.deadline_at


def test_paused_job_keeps_its_timeouts_and_backs_off_without_end(scenario: JobScenario) -> None:
    scenario.tell(published(scenario.job), PauseAsked("op"))
    scenario.wait(30)
    assert (scenario.job.status, scenario.step) == (J.PAUSED, S.FAILED_RETRY)
    scenario.wait(3_000)
    assert (scenario.job.status, scenario.step) == (J.PAUSED, S.FAILED_RETRY)
    scenario.tell(ResumeAsked("op"))
    assert (scenario.job.status, scenario.step, scenario.job.current_step.attempt_no) == (
        J.IN_PROGRESS,
        S.DISPATCHING,
        2,
    )


def test_paused_job_still_succeeds_and_fails(clock: ManualClock) -> None:
    done, failed = JobScenario(clock, steps=["ocr"]), JobScenario(clock)
    done.tell(PauseAsked("op"), result(done.job))
    failed.tell(PauseAsked("op"), result(failed.job, FAILED, retryable=False))
    assert (done.job.status, failed.job.status) == (J.SUCCEEDED, J.FAILED_FINAL)


def test_resume_derives_the_state_from_the_steps(clock: ManualClock) -> None:
    queued = JobScenario(clock, not_before=after(START, 60))
    dispatching, running = JobScenario(clock), JobScenario(clock)
    running.tell(published(running.job))
    for scenario, status in ((queued, J.QUEUED), (dispatching, J.DISPATCHING), (running, J.IN_PROGRESS)):
        scenario.tell(PauseAsked("op"))
        assert scenario.job.status is J.PAUSED
        assert scenario.tell(ResumeAsked("op")).effects == ()
        assert scenario.job.status is status
    assert queued.job.wake_at == after(START, 60)


def test_resume_creates_a_due_attempt_in_the_same_decision(scenario: JobScenario) -> None:
    scenario.tell(PauseAsked("op"), result(scenario.job))
    decision = scenario.tell(ResumeAsked("op"))
    assert decision.effects == (PublishDirective(1),)
    assert scenario.types == ["RESUMED", "ATTEMPT_CREATED"]
    assert scenario.job.status is J.IN_PROGRESS


def test_resume_waits_for_a_backoff_that_is_not_over(scenario: JobScenario) -> None:
    scenario.tell(result(scenario.job, FAILED), PauseAsked("op"))
    scenario.clock.advance(10)
    scenario.tell(ResumeAsked("op"))
    assert (scenario.step, scenario.job.current_step.attempt_no) == (S.FAILED_RETRY, 1)
    assert scenario.job.wake_at == scenario.job.current_step.due_at


def test_resume_of_a_job_that_is_not_paused_is_a_conflict(scenario: JobScenario) -> None:
    assert scenario.tell(ResumeAsked("op")).outcome is Outcome.CONFLICT


def test_pause_again_is_accepted(scenario: JobScenario) -> None:
    scenario.tell(PauseAsked("op"))
    decision = scenario.tell(PauseAsked("op"))
    assert (decision.outcome, decision.events) == (Outcome.APPLIED, ())


@pytest.mark.parametrize("fact", [CancelAsked("op"), PauseAsked("op"), ResumeAsked("op")])
def test_operations_on_a_job_that_has_ended_are_refused(scenario: JobScenario, fact: Input) -> None:
    scenario.tell(result(scenario.job, FAILED, retryable=False))
    before = scenario.job
    assert scenario.tell(fact).outcome is Outcome.JOB_TERMINAL
    assert scenario.job is before


def test_redrive_starts_at_the_first_unfinished_step(clock: ManualClock) -> None:
    first = JobScenario(clock)
    first.tell(result(first.job), result(first.job, FAILED, retryable=False))
    done = first.job.steps[:1]
    again = JobScenario(clock, done=done, redrive_of=first.job.job_id)
    assert [step.status for step in again.job.steps] == [S.SUCCEEDED, S.DISPATCHING, S.PENDING]
    assert again.job.steps[0].artifacts == done[0].artifacts
    assert again.last.effects == (PublishDirective(1),)
    assert again.last.events[0].data["redrive_of"] == first.job.job_id
