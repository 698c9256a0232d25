"""Each row of the table in commands §6, and each answer of the callback contract in §7, as an example."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from lucius.domain.attempt import DispatchStatus, Failure, Verdict
from lucius.domain.decide import decide
from lucius.domain.effects import CallWebhook, Decision, Outcome, PublishDirective, SettleDirective
from lucius.domain.inputs import (
    Accepted,
    Acked,
    CancelAsked,
    DeadlinePassed,
    DispatchDue,
    Input,
    PauseAsked,
    PublishDeferred,
    PublishFailed,
    Resulted,
    ResumeAsked,
)
from lucius.domain.job import RULES_VERSION, Job, JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.step import StepStatus
from lucius.domain.time import after
from lucius.testing.invariants import check_decision
from lucius.testing.samples import START, ManualClock, accepted
from lucius.testing.scribe import ack, heartbeat, published, result

J, S = JobStatus, StepStatus
FAILED = Verdict.FAILED


class Story:
    """A job as it goes from fact to fact; every decision is checked against the invariants."""

    def __init__(self, clock: ManualClock, **wishes: Any) -> None:
        self.clock = clock
        self.leases: set[str] = set()
        fact = accepted(clock, **wishes)
        self.last = decide(None, fact, clock.now(), clock)
        check_decision(None, fact, self.last, self.leases)

    @property
    def job(self) -> Job:
        return self.last.job

    @property
    def step(self) -> StepStatus:
        return self.job.current_step.status

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.last.events]

    def tell(self, *facts: Input) -> Decision:
        for fact in facts:
            before = self.job
            self.last = decide(before, fact, self.clock.now(), self.clock)
            check_decision(before, fact, self.last, self.leases)
        return self.last

    def wait(self, seconds: float, fact: Input | None = None) -> Decision:
        """Let time pass and the timer fire."""
        self.clock.advance(seconds)
        return self.tell(fact or DeadlinePassed())


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
