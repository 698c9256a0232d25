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
from lucius.testing.samples import START, ManualClock
from lucius.testing.scribe import ack, heartbeat, published, result
from lucius.testing.story import Story

J, S = JobStatus, StepStatus
FAILED = Verdict.FAILED


@pytest.fixture
def story(clock: ManualClock) -> Story:
    return Story(clock)


# --- Acceptance and dispatch -----------------------------------------------------------------------------------------


def test_accepted_job_creates_its_first_attempt_at_once(story: Story) -> None:
    assert [step.status for step in story.job.steps] == [S.DISPATCHING, S.PENDING, S.PENDING]
    assert story.job.status is J.DISPATCHING
    assert story.last.effects == (PublishDirective(0),)
    assert story.types == ["ACCEPTED", "ATTEMPT_CREATED"]
    attempt = story.job.current_step.attempt
    assert attempt is not None
    assert (attempt.attempt_no, attempt.dispatch) == (1, DispatchStatus.PENDING)
    assert attempt.claimed_until == after(START, story.clock.claim_seconds)


def test_accepted_job_waits_for_its_start_time(clock: ManualClock) -> None:
    story = Story(clock, not_before=after(START, 60))
    assert (story.job.status, story.step, story.job.wake_at) == (J.QUEUED, S.PENDING, after(START, 60))
    assert story.last.effects == ()
    assert story.tell(DeadlinePassed()).outcome is Outcome.IGNORED
    story.wait(60)
    assert (story.job.status, story.step) == (J.DISPATCHING, S.DISPATCHING)


def test_accepted_while_nothing_can_be_published_leaves_the_row_unclaimed(clock: ManualClock) -> None:
    clock.claim_seconds = 0.0
    story = Story(clock)
    assert story.last.effects == ()
    assert story.job.current_step.attempt is not None
    assert story.job.current_step.attempt.claimed_until == START
    clock.claim_seconds = 30.0
    assert story.tell(DispatchDue()).effects == (PublishDirective(0),)


def test_accepted_where_the_bus_shares_the_commit_is_published_at_once(clock: ManualClock) -> None:
    clock.publishes_inside = True
    story = Story(clock)
    assert (story.job.status, story.step) == (J.IN_PROGRESS, S.INITIATED)
    assert story.last.effects == (PublishDirective(0),)
    assert story.types == ["ACCEPTED", "ATTEMPT_CREATED", "PUBLISHED"]
    assert story.job.wake_at == after(START, 30)
    story.tell(result(story.job))
    assert story.types == ["RESULT", "ATTEMPT_CREATED", "PUBLISHED"]
    assert PublishDirective(1) in story.last.effects


def test_job_deadline_counts_from_not_before(clock: ManualClock) -> None:
    story = Story(clock, not_before=after(START, 1_000), deadline_seconds=100)
    assert story.job.spec.deadline_at == after(START, 1_100)


def test_published_directive_is_initiated_and_sets_the_ack_clock(story: Story) -> None:
    story.tell(published(story.job))
    step = story.job.current_step
    assert (story.job.status, story.step) == (J.IN_PROGRESS, S.INITIATED)
    assert step.due_at == story.job.wake_at == after(START, 30)
    assert step.queue_until == after(START, 86_400)
    assert step.attempt is not None
    assert (step.attempt.dispatch, step.attempt.sent_at) == (DispatchStatus.SENT, START)
    assert story.types == ["PUBLISHED"]


def test_published_twice_is_ignored(story: Story) -> None:
    story.tell(published(story.job))
    before = story.job
    assert story.tell(published(before)).outcome is Outcome.IGNORED
    assert story.job is before


def test_published_never_moves_a_job_out_of_paused_or_cancelling(clock: ManualClock) -> None:
    for fact, status in ((PauseAsked("op"), J.PAUSED), (CancelAsked("op"), J.CANCELLING)):
        story = Story(clock)
        story.tell(fact, published(story.job))
        assert (story.job.status, story.step) == (status, S.INITIATED)


def test_published_after_ack_changes_nothing(story: Story) -> None:
    fact = published(story.job)
    story.tell(ack(story.job))
    assert story.tell(fact).outcome is Outcome.IGNORED
    assert story.step is S.PROCESSING


def test_published_after_the_end_is_ignored(clock: ManualClock) -> None:
    story = Story(clock, deadline_seconds=10)
    fact = published(story.job)
    story.wait(10)
    assert story.tell(fact).outcome is Outcome.IGNORED
    attempt = story.job.steps[0].attempt
    assert attempt is not None
    assert attempt.dispatch is DispatchStatus.FAILED_FINAL


def test_publish_failed_waits_for_the_dispatch_backoff(story: Story) -> None:
    story.clock._jitter = 0.0
    story.tell(PublishFailed("ocr", 1, "too large"))
    step = story.job.current_step
    assert (story.step, step.due_at) == (S.FAILED_RETRY, after(START, 30))
    assert step.error == Failure("PUBLISH_FAILED", "too large")
    assert step.attempt is not None
    assert step.attempt.dispatch is DispatchStatus.FAILED_FINAL
    story.wait(30)
    assert (story.step, story.job.current_step.attempt_no) == (S.DISPATCHING, 2)
    assert story.last.effects == (PublishDirective(0),)


def test_publish_failed_for_the_last_time_ends_the_job(story: Story) -> None:
    for attempt_no in (1, 2, 3):
        story.tell(PublishFailed("ocr", attempt_no, "too large"))
        story.wait(1_000)
    assert (story.job.status, story.job.steps[0].status) == (J.FAILED_FINAL, S.FAILED_FINAL)
    assert story.job.dead_letter
    assert story.job.error == Failure("PUBLISH_FAILED", "too large")


def test_publish_deferred_uses_up_no_attempt(story: Story) -> None:
    story.clock.advance(5)
    story.tell(PublishDeferred("ocr", 1))
    step = story.job.current_step
    assert (story.step, step.attempt_no, step.attempts_counted) == (S.DISPATCHING, 1, 1)
    assert story.tell(DispatchDue()).effects == (PublishDirective(0),)
    assert (story.job.current_step.attempt_no, story.job.current_step.attempts_counted) == (1, 1)


def test_dispatch_due_leaves_a_claimed_row_to_its_claimer(story: Story) -> None:
    assert story.tell(DispatchDue()).outcome is Outcome.IGNORED
    assert story.tell(DispatchDue(force=True)).effects == (PublishDirective(0),)
    story.clock.advance(30)
    assert story.tell(DispatchDue()).effects == (PublishDirective(0),)


# --- Callbacks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_published", [False, True])
def test_ack_starts_the_lease(story: Story, is_published: bool) -> None:
    if is_published:
        story.tell(published(story.job))
    decision = story.tell(ack(story.job))
    step = story.job.current_step
    assert (decision.outcome, story.job.status, story.step) == (Outcome.APPLIED, J.IN_PROGRESS, S.PROCESSING)
    assert (step.due_at, step.ends_by) == (after(START, 900), after(START, 21_600))
    assert decision.effects == (SettleDirective(0, 1),)
    assert step.attempt is not None
    assert step.attempt.dispatch is DispatchStatus.SENT


def test_ack_revives_an_attempt_that_timed_out_or_failed_to_publish(clock: ManualClock) -> None:
    timed_out = Story(clock)
    timed_out.tell(published(timed_out.job))
    timed_out.wait(30)
    unsent = Story(clock)
    unsent.tell(PublishFailed("ocr", 1, "no answer"))
    for story in (timed_out, unsent):
        assert story.step is S.FAILED_RETRY
        assert story.tell(ack(story.job)).outcome is Outcome.APPLIED
        assert story.step is S.PROCESSING
        assert story.job.current_step.attempt_no == 1
    assert unsent.job.current_step.attempt is not None
    assert unsent.job.current_step.attempt.dispatch is DispatchStatus.FAILED_FINAL


def test_heartbeat_extends_the_lease_up_to_the_steps_end(clock: ManualClock) -> None:
    story = Story(clock, policy=Policy(lease_seconds=100, max_step_seconds=250))
    story.tell(ack(story.job))
    for waited, due in ((90, 190), (90, 250), (60, 250)):
        clock.advance(waited)
        assert story.tell(heartbeat(story.job)).outcome is Outcome.APPLIED
        assert story.job.wake_at == after(START, due)
    story.wait(10)
    assert story.step is S.FAILED_RETRY
    assert story.job.current_step.error is not None
    assert story.job.current_step.error.code == "STEP_TIMEOUT"


def test_heartbeat_keeps_progress_and_writes_one_event_per_tenth(story: Story) -> None:
    story.tell(ack(story.job))
    written = []
    for percent in (1, 5, 9, 10, 12, 19, 30, 30):
        decision = story.tell(heartbeat(story.job, percent / 100, f"{percent} %"))
        written.append(len(decision.events))
        assert (story.job.current_step.progress, story.job.current_step.note) == (percent / 100, f"{percent} %")
    assert written == [0, 0, 0, 1, 0, 0, 1, 0]


def test_heartbeat_stands_in_for_a_lost_ack(story: Story) -> None:
    story.tell(published(story.job), heartbeat(story.job, 0.2))
    assert story.step is S.PROCESSING


def test_heartbeats_cannot_keep_an_attempt_alive_beyond_max_step_seconds(clock: ManualClock) -> None:
    """Whatever a service goes on reporting, its attempt is over when the step's time is."""
    story = Story(clock, policy=Policy(lease_seconds=100, max_step_seconds=200))
    story.tell(ack(story.job))
    for _ in range(2):
        clock.advance(90)
        story.tell(heartbeat(story.job))
    story.wait(20)
    assert (story.step, story.job.wake_at) == (S.FAILED_RETRY, story.job.current_step.due_at)
    story.tell(heartbeat(story.job, 0.9))
    assert story.step is S.FAILED_RETRY or story.job.current_step.ends_by == after(START, 200)


@pytest.mark.parametrize("steps_before", ["dispatching", "initiated", "processing", "failed_retry"])
def test_result_succeeded_starts_the_next_step_in_the_same_decision(story: Story, steps_before: str) -> None:
    if steps_before != "dispatching":
        story.tell(published(story.job))
    if steps_before == "processing":
        story.tell(ack(story.job))
    if steps_before == "failed_retry":
        story.wait(30)
    decision = story.tell(result(story.job))
    assert decision.outcome is Outcome.APPLIED
    assert [step.status for step in story.job.steps] == [S.SUCCEEDED, S.DISPATCHING, S.PENDING]
    assert story.job.status is J.IN_PROGRESS
    settles = () if steps_before == "processing" else (SettleDirective(0, 1),)  # Its ACK did so already.
    assert decision.effects == (*settles, PublishDirective(1))
    assert story.types == ["RESULT", "ATTEMPT_CREATED"]


def test_result_of_the_last_step_ends_the_job(clock: ManualClock) -> None:
    story = Story(clock, callback_urls={"completed": "https://client.example/done"})
    for _ in range(3):
        story.tell(result(story.job))
    assert (story.job.status, story.job.wake_at, story.job.completed_at) == (J.SUCCEEDED, None, START)
    assert [step.status for step in story.job.steps] == [S.SUCCEEDED] * 3
    assert story.last.effects == (SettleDirective(2, 1), CallWebhook("https://client.example/done"))
    assert story.types == ["RESULT", "JOB_SUCCEEDED"]
    assert story.job.progress == 1.0


def test_result_failed_waits_for_the_execution_backoff(story: Story) -> None:
    story.clock._jitter = 0.0
    error = Failure("OOM", "out of memory")
    for attempt_no, backoff in ((1, 30), (2, 120)):
        story.tell(ack(story.job), result(story.job, FAILED, error=error))
        step = story.job.current_step
        assert (story.step, step.due_at) == (S.FAILED_RETRY, after(story.clock.now(), backoff))
        assert step.error == error
        story.wait(backoff)
        assert (story.step, story.job.current_step.attempt_no) == (S.DISPATCHING, attempt_no + 1)
    story.tell(result(story.job, FAILED, error=error))
    assert (story.job.status, story.job.steps[0].status, story.job.error) == (J.FAILED_FINAL, S.FAILED_FINAL, error)
    assert [step.status for step in story.job.steps[1:]] == [S.PENDING] * 2


def test_jitter_only_lengthens_the_backoff(clock: ManualClock) -> None:
    clock._jitter = 0.999
    story = Story(clock)
    story.tell(result(story.job, FAILED))
    due = story.job.current_step.due_at
    assert due is not None
    assert after(START, 30) < due <= after(START, 33)


def test_result_rate_limited_waits_as_asked_and_does_not_count(story: Story) -> None:
    for attempt_no in range(1, 9):
        story.tell(ack(story.job), result(story.job, FAILED, rate_limited_seconds=17.5))
        step = story.job.current_step
        assert (story.step, step.attempts_counted) == (S.FAILED_RETRY, 0)
        assert step.due_at == after(story.clock.now(), 17.5)
        story.wait(17.5)
        assert story.job.current_step.attempt_no == attempt_no + 1
    assert story.job.status is J.IN_PROGRESS


@pytest.mark.parametrize(("asked", "waits"), [(0.0, 1.0), (-5.0, 1.0), (10**9, 86_400.0)])
def test_rate_limit_is_kept_within_bounds(clock: ManualClock, asked: float, waits: float) -> None:
    story = Story(clock, deadline_seconds=10**6)
    story.tell(result(story.job, FAILED, rate_limited_seconds=asked))
    assert story.job.current_step.due_at == after(START, waits)


def test_result_not_retryable_ends_the_job(story: Story) -> None:
    error = Failure("BAD_INPUT", "not a PDF")
    story.tell(result(story.job, FAILED, retryable=False, error=error))
    assert (story.job.status, story.job.error, story.job.dead_letter) == (J.FAILED_FINAL, error, True)
    assert story.job.steps[0].status is S.FAILED_FINAL


def test_result_failed_without_a_reason_gets_one(story: Story) -> None:
    story.tell(result(story.job, FAILED, retryable=False))
    assert story.job.error is not None
    assert story.job.error.code == "STEP_FAILED"
