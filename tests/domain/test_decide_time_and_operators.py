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
from lucius.testing.samples import START, ManualClock
from lucius.testing.scribe import ack, heartbeat, published, result
from lucius.testing.story import Story

J, S = JobStatus, StepStatus
FAILED = Verdict.FAILED


@pytest.fixture
def story(clock: ManualClock) -> Story:
    return Story(clock)


# --- Time ------------------------------------------------------------------------------------------------------------


def test_no_ack_in_time_waits_for_the_ack_backoff(story: Story) -> None:
    story.clock._jitter = 0.0
    story.tell(published(story.job))
    story.wait(30)
    step = story.job.current_step
    assert (story.step, step.due_at) == (S.FAILED_RETRY, after(START, 90))
    assert step.error is not None
    assert step.error.code == "ACK_TIMEOUT"
    story.wait(60)
    story.tell(published(story.job))
    story.wait(30)
    assert story.job.current_step.due_at == after(story.clock.now(), 300)
    story.wait(300)
    story.tell(published(story.job))
    story.wait(30)
    assert (story.job.status, story.job.steps[0].status) == (J.FAILED_FINAL, S.FAILED_FINAL)


def test_ack_deadline_moves_on_while_the_directive_is_queued(clock: ManualClock) -> None:
    story = Story(clock, policy=Policy(queue_timeout_seconds=100), deadline_seconds=10_000)
    story.tell(published(story.job))
    for due in (60, 90, 100):
        clock.set(story.job.wake_at or 0)
        story.tell(DeadlinePassed(still_queued=True))
        assert (story.step, story.job.wake_at) == (S.INITIATED, after(START, due))
        assert story.types == ["STILL_QUEUED"]
    clock.set(after(START, 100))
    story.tell(DeadlinePassed(still_queued=True))
    assert story.step is S.FAILED_RETRY
    assert story.job.current_step.attempts_counted == 1


def test_lease_that_ran_out_waits_for_the_execution_backoff(story: Story) -> None:
    story.clock._jitter = 0.0
    story.tell(ack(story.job))
    story.wait(900)
    step = story.job.current_step
    assert (story.step, step.due_at) == (S.FAILED_RETRY, after(START, 930))
    assert step.error is not None
    assert step.error.code == "LEASE_EXPIRED"


@pytest.mark.parametrize("state", ["queued", "dispatching", "initiated", "processing", "failed_retry", "paused"])
def test_job_deadline_ends_the_job_in_any_state(clock: ManualClock, state: str) -> None:
    not_before = after(START, 50) if state == "queued" else None
    story = Story(clock, deadline_seconds=25, not_before=not_before)
    if state in ("initiated", "processing"):
        story.tell(published(story.job))
    if state == "processing":
        story.tell(ack(story.job))
    if state == "failed_retry":
        story.tell(result(story.job, FAILED))
    if state == "paused":
        story.tell(PauseAsked("op"))
    clock.set(story.job.spec.deadline_at)
    story.tell(DeadlinePassed())
    assert story.job.status is J.FAILED_FINAL
    assert story.job.error is not None
    assert story.job.error.code == "DEADLINE_EXCEEDED"
    assert {step.status for step in story.job.steps} == {S.CANCELLED}
    assert story.job.dead_letter


def test_deadline_is_a_hint_that_counts_only_once_it_has_come(story: Story) -> None:
    story.tell(published(story.job))
    story.clock.advance(29.999)
    before = story.job
    decision = story.tell(DeadlinePassed())
    assert (decision.outcome, story.job) == (Outcome.IGNORED, before)
    assert decision.events == ()


@pytest.mark.parametrize("state", ["queued", "dispatching", "initiated", "processing", "failed_retry", "paused"])
def test_timer_that_was_lost_and_set_anew_does_no_harm(clock: ManualClock, state: str) -> None:
    """Drift repair wakes a job at once; what its step waits for has not come for all that."""
    story = Story(clock, not_before=after(START, 50) if state == "queued" else None)
    if state in ("initiated", "processing"):
        story.tell(published(story.job))
    if state == "processing":
        story.tell(ack(story.job))
    if state == "failed_retry":
        story.tell(result(story.job, FAILED))
    if state == "paused":
        story.tell(result(story.job, FAILED), PauseAsked("op"))
    clock.advance(1)
    sound = story.job
    woken = replace(sound, wake_at=clock.now())
    decision = decide(woken, DeadlinePassed(), clock.now(), clock)
    assert decision.job.steps == sound.steps
    assert (decision.job.status, decision.job.wake_at) == (sound.status, sound.wake_at)


# --- Operators -------------------------------------------------------------------------------------------------------


def test_cancel_ends_a_job_with_no_live_attempt_at_once(clock: ManualClock) -> None:
    waiting = Story(clock, not_before=after(START, 60))
    backing_off = Story(clock)
    backing_off.tell(result(backing_off.job, FAILED))
    between = Story(clock)
    between.tell(PauseAsked("op"), result(between.job))
    for story in (waiting, backing_off, between):
        story.tell(CancelAsked("operator", "no longer wanted"))
        assert (story.job.status, story.job.completed_at) == (J.CANCELLED, clock.now())
        assert story.types == ["CANCEL_ASKED", "JOB_CANCELLED"]
        assert all(step.status in (S.CANCELLED, S.SUCCEEDED) for step in story.job.steps)
    assert between.job.steps[0].status is S.SUCCEEDED


def test_cancel_closes_an_unclaimed_row_unpublished(story: Story) -> None:
    story.tell(PublishDeferred("ocr", 1), CancelAsked("op"))
    assert story.job.status is J.CANCELLED
    attempt = story.job.steps[0].attempt
    assert attempt is not None
    assert attempt.dispatch is DispatchStatus.FAILED_FINAL


@pytest.mark.parametrize("state", ["claimed", "initiated", "processing"])
def test_cancel_lets_a_live_attempt_finish(story: Story, state: str) -> None:
    if state != "claimed":
        story.tell(published(story.job))
    if state == "processing":
        story.tell(ack(story.job))
    decision = story.tell(CancelAsked("op"))
    assert (decision.outcome, story.job.status) == (Outcome.APPLIED, J.CANCELLING)
    assert decision.effects == ()
    story.tell(result(story.job))
    assert story.job.status is J.CANCELLED
    assert [step.status for step in story.job.steps] == [S.SUCCEEDED, S.CANCELLED, S.CANCELLED]


def test_cancelling_ends_with_a_failed_publish(story: Story) -> None:
    story.tell(CancelAsked("op"), PublishFailed("ocr", 1, "too large"))
    assert (story.job.status, story.job.steps[0].status) == (J.CANCELLED, S.CANCELLED)


def test_cancelling_ends_with_a_deferred_publish(story: Story) -> None:
    story.tell(CancelAsked("op"), PublishDeferred("ocr", 1))
    assert story.job.status is J.CANCELLED


def test_cancelling_ends_when_the_claim_on_an_unsent_row_runs_out(story: Story) -> None:
    story.tell(CancelAsked("op"))
    assert story.job.wake_at == after(START, 30)
    story.wait(30)
    assert story.job.status is J.CANCELLED


@pytest.mark.parametrize("acked", [False, True])
def test_cancelling_ends_with_a_timeout_and_without_retry(story: Story, acked: bool) -> None:
    story.tell(published(story.job))
    if acked:
        story.tell(ack(story.job))
    story.tell(CancelAsked("op"))
    story.wait(900 if acked else 30)
    assert (story.job.status, story.job.steps[0].status) == (J.CANCELLED, S.CANCELLED)


def test_cancelling_ends_with_a_failed_result_and_without_retry(story: Story) -> None:
    story.tell(ack(story.job), CancelAsked("op"), result(story.job, FAILED))
    assert (story.job.status, story.job.steps[0].status) == (J.CANCELLED, S.CANCELLED)


def test_last_step_that_succeeds_while_cancelling_stays_succeeded(clock: ManualClock) -> None:
    story = Story(clock, steps=["ocr"])
    story.tell(ack(story.job), CancelAsked("op"), result(story.job))
    assert (story.job.status, story.job.steps[0].status) == (J.CANCELLED, S.SUCCEEDED)


def test_cancel_again_is_accepted_and_pause_is_not(story: Story) -> None:
    story.tell(ack(story.job), CancelAsked("op"))
    assert story.tell(CancelAsked("op")).outcome is Outcome.APPLIED
    assert story.tell(PauseAsked("op")).outcome is Outcome.CONFLICT
    assert story.tell(ResumeAsked("op")).outcome is Outcome.CONFLICT
    assert story.job.status is J.CANCELLING


def test_paused_job_lets_the_live_attempt_go_on_and_creates_no_other(story: Story) -> None:
    story.tell(ack(story.job), PauseAsked("op"))
    assert story.tell(heartbeat(story.job, 0.5)).outcome is Outcome.APPLIED
    decision = story.tell(result(story.job))
    assert (story.job.status, story.step) == (J.PAUSED, S.PENDING)
    assert decision.effects == ()
    assert story.job.wake_at == story.job.spec.deadline_at


def test_paused_job_keeps_its_timeouts_and_backs_off_without_end(story: Story) -> None:
    story.tell(published(story.job), PauseAsked("op"))
    story.wait(30)
    assert (story.job.status, story.step) == (J.PAUSED, S.FAILED_RETRY)
    story.wait(3_000)
    assert (story.job.status, story.step) == (J.PAUSED, S.FAILED_RETRY)
    story.tell(ResumeAsked("op"))
    assert (story.job.status, story.step, story.job.current_step.attempt_no) == (J.IN_PROGRESS, S.DISPATCHING, 2)


def test_paused_job_still_succeeds_and_fails(clock: ManualClock) -> None:
    done, failed = Story(clock, steps=["ocr"]), Story(clock)
    done.tell(PauseAsked("op"), result(done.job))
    failed.tell(PauseAsked("op"), result(failed.job, FAILED, retryable=False))
    assert (done.job.status, failed.job.status) == (J.SUCCEEDED, J.FAILED_FINAL)


def test_resume_derives_the_state_from_the_steps(clock: ManualClock) -> None:
    queued = Story(clock, not_before=after(START, 60))
    dispatching, running = Story(clock), Story(clock)
    running.tell(published(running.job))
    for story, status in ((queued, J.QUEUED), (dispatching, J.DISPATCHING), (running, J.IN_PROGRESS)):
        story.tell(PauseAsked("op"))
        assert story.job.status is J.PAUSED
        assert story.tell(ResumeAsked("op")).effects == ()
        assert story.job.status is status
    assert queued.job.wake_at == after(START, 60)


def test_resume_creates_a_due_attempt_in_the_same_decision(story: Story) -> None:
    story.tell(PauseAsked("op"), result(story.job))
    decision = story.tell(ResumeAsked("op"))
    assert decision.effects == (PublishDirective(1),)
    assert story.types == ["RESUMED", "ATTEMPT_CREATED"]
    assert story.job.status is J.IN_PROGRESS


def test_resume_waits_for_a_backoff_that_is_not_over(story: Story) -> None:
    story.tell(result(story.job, FAILED), PauseAsked("op"))
    story.clock.advance(10)
    story.tell(ResumeAsked("op"))
    assert (story.step, story.job.current_step.attempt_no) == (S.FAILED_RETRY, 1)
    assert story.job.wake_at == story.job.current_step.due_at


def test_resume_of_a_job_that_is_not_paused_is_a_conflict(story: Story) -> None:
    assert story.tell(ResumeAsked("op")).outcome is Outcome.CONFLICT


def test_pause_again_is_accepted(story: Story) -> None:
    story.tell(PauseAsked("op"))
    decision = story.tell(PauseAsked("op"))
    assert (decision.outcome, decision.events) == (Outcome.APPLIED, ())


@pytest.mark.parametrize("fact", [CancelAsked("op"), PauseAsked("op"), ResumeAsked("op")])
def test_operations_on_a_job_that_has_ended_are_refused(story: Story, fact: Input) -> None:
    story.tell(result(story.job, FAILED, retryable=False))
    before = story.job
    assert story.tell(fact).outcome is Outcome.JOB_TERMINAL
    assert story.job is before


def test_redrive_starts_at_the_first_unfinished_step(clock: ManualClock) -> None:
    first = Story(clock)
    first.tell(result(first.job), result(first.job, FAILED, retryable=False))
    done = first.job.steps[:1]
    again = Story(clock, done=done, redrive_of=first.job.job_id)
    assert [step.status for step in again.job.steps] == [S.SUCCEEDED, S.DISPATCHING, S.PENDING]
    assert again.job.steps[0].artifacts == done[0].artifacts
    assert again.last.effects == (PublishDirective(1),)
    assert again.last.events[0].data["redrive_of"] == first.job.job_id
