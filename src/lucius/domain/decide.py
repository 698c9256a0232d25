"""`decide`: what an input does to a job. One function, pure, the same in every engine.

The two tables in `domain/job.py` and `domain/step.py` say which moves exist; the handlers below say which move an input
is. An input that finds no move changes nothing: it is answered, and where it is an authentic callback, recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from lucius.domain.attempt import DispatchStatus, Failure, Verdict
from lucius.domain.draft import Draft, Fresh
from lucius.domain.effects import Decision, Outcome, PublishDirective, SettleDirective
from lucius.domain.inputs import (
    Accepted,
    Acked,
    Callback,
    CancelAsked,
    DeadlinePassed,
    DispatchDue,
    HeartbeatSeen,
    Input,
    PauseAsked,
    PublishDeferred,
    Published,
    PublishFailed,
    Resulted,
    ResumeAsked,
)
from lucius.domain.job import JOB_TRANSITIONS, RULES_VERSION, Job, JobMove, JobStatus
from lucius.domain.retry import backoff_seconds, rate_limit_seconds
from lucius.domain.step import Step, StepMove, StepStatus
from lucius.domain.time import Instant, after


def decide(job: Job | None, fact: Input, now: Instant, fresh: Fresh) -> Decision:
    """Say what `fact` does to `job` at `now`. `job` is None for `Accepted` alone."""
    if isinstance(fact, Accepted):
        if job is not None:
            raise ValueError(f"job {job.job_id} was accepted already")
        return _accept(fact, now, fresh)
    if job is None:
        raise ValueError(f"{type(fact).__name__} needs a job")
    if job.spec.rules_version > RULES_VERSION:
        raise ValueError(f"job {job.job_id} was accepted under rules {job.spec.rules_version}; this is {RULES_VERSION}")
    draft = Draft(job, now, fresh)
    _HANDLERS[type(fact)](draft, fact)
    return draft.decision()


def _accept(fact: Accepted, now: Instant, fresh: Fresh) -> Decision:
    done = fact.done
    steps = done + tuple(Step(spec=spec, created_at=now, updated_at=now) for spec in fact.steps[len(done) :])
    blank = Job(spec=fact.spec, status=JobStatus.QUEUED, steps=steps, current_index=len(done), updated_at=now)
    draft = Draft(blank, now, fresh)
    extra = {"redrive_of": fact.spec.redrive_of} if fact.spec.redrive_of else {}
    draft.record("ACCEPTED", None, lane=fact.spec.routing.lane, mode=fact.spec.routing.resolved_mode, **extra)
    if fact.spec.not_before is None or fact.spec.not_before <= now:
        draft.start_attempt(draft.current_index)
    return draft.decision()


# --- The bus ---------------------------------------------------------------------------------------------------------


def _dispatched_step(draft: Draft, step_id: str, attempt_no: int) -> int | None:
    """The step whose unsent outbox row this is about, if there is one."""
    index = draft.job.index_of(step_id)
    if index is not None:
        attempt = draft.steps[index].attempt
        if attempt and attempt.attempt_no == attempt_no and attempt.dispatch is DispatchStatus.PENDING:
            return index
    draft.outcome = Outcome.IGNORED
    return None


def _on_published(draft: Draft, fact: Published) -> None:
    index = _dispatched_step(draft, fact.step_id, fact.attempt_no)
    if index is not None:
        draft.mark_published(index)


def _on_publish_failed(draft: Draft, fact: PublishFailed) -> None:
    index = _dispatched_step(draft, fact.step_id, fact.attempt_no)
    if index is None:
        return
    step = draft.steps[index]
    assert step.attempt is not None
    attempt = draft.close_dispatch(step.attempt, DispatchStatus.FAILED_FINAL)
    draft.steps[index] = replace(step, attempt=attempt)
    failure = Failure("PUBLISH_FAILED", fact.reason)
    if step.status is not StepStatus.DISPATCHING or draft.is_terminal:
        draft.record("PUBLISH_FAILED", index, message=fact.reason)
        return
    _fail(draft, index, failure, step.spec.policy.dispatch_backoff_seconds)


def _on_publish_deferred(draft: Draft, fact: PublishDeferred) -> None:
    index = _dispatched_step(draft, fact.step_id, fact.attempt_no)
    if index is None or draft.is_terminal:
        return
    step = draft.steps[index]
    assert step.attempt is not None
    draft.steps[index] = replace(step, attempt=replace(step.attempt, claimed_until=draft.now))
    if draft.status is JobStatus.CANCELLING and step.status is StepStatus.DISPATCHING:
        _finish_cancelling(draft)


def _on_dispatch_due(draft: Draft, fact: DispatchDue) -> None:
    """Take up an outbox row that nobody is publishing: claim it again, or close it if the job is being cancelled."""
    step = draft.step
    attempt = step.attempt
    is_unsent = attempt is not None and attempt.dispatch is DispatchStatus.PENDING
    if not is_unsent or step.status is not StepStatus.DISPATCHING or draft.is_terminal:
        draft.outcome = Outcome.IGNORED
        return
    assert attempt is not None
    if (attempt.claimed_until > draft.now and not fact.force) or draft.fresh.claim_seconds <= 0:
        draft.outcome = Outcome.IGNORED
        return
    if draft.status is JobStatus.CANCELLING:
        if attempt.claimed_until <= draft.now:
            _finish_cancelling(draft)
        return
    claimed = replace(attempt, claimed_until=after(draft.now, draft.fresh.claim_seconds))
    draft.steps[draft.current_index] = replace(step, attempt=claimed)
    draft.effects.append(PublishDirective(draft.current_index))


# --- Callbacks -------------------------------------------------------------------------------------------------------


def _hear(draft: Draft, fact: Callback, name: str) -> int | None:
    """Apply the order of answers of the callback contract; the step's index if the callback is to be applied."""
    index = draft.job.index_of(fact.step_id)
    if index is None:
        draft.outcome = Outcome.STEP_NOT_FOUND
        return None
    step = draft.steps[index]
    attempt = step.attempt
    if attempt is None or attempt.attempt_no != fact.attempt_no or attempt.lease_id != fact.lease_id:
        outcome = Outcome.STALE_ATTEMPT
    elif isinstance(fact, Acked) and attempt.acked_by and fact.acked_by and fact.acked_by != attempt.acked_by:
        # Delivered to two instances of a service; the other one was first.
        outcome = Outcome.STALE_ATTEMPT
    elif _was_applied(fact, attempt.acked_at, attempt.verdict):
        outcome = Outcome.DUPLICATE
    elif step.is_terminal or draft.is_terminal:
        outcome = Outcome.LATE if isinstance(fact, Resulted) else Outcome.JOB_TERMINAL
    elif attempt.verdict is not None:
        # The attempt was ended by a RESULT while its step lives on, waiting for the next one.
        outcome = _AFTER_ITS_RESULT[type(fact)]
    else:
        return index
    draft.outcome = outcome
    draft.record(name, index, outcome=outcome, of_attempt_no=fact.attempt_no)
    is_known = attempt is not None and 0 < fact.attempt_no <= attempt.attempt_no
    if is_known and not isinstance(fact, HeartbeatSeen):
        # Applied or not, the directive has reached a service: delivering it again would help nobody.
        draft.effects.append(SettleDirective(index, fact.attempt_no))
    return None


_AFTER_ITS_RESULT = {Acked: Outcome.DUPLICATE, HeartbeatSeen: Outcome.STALE_ATTEMPT, Resulted: Outcome.LATE}


def _was_applied(fact: Callback, acked_at: Instant | None, verdict: Verdict | None) -> bool:
    if isinstance(fact, Acked):
        return acked_at is not None
    return isinstance(fact, Resulted) and verdict is fact.verdict


def _pick_up(draft: Draft, index: int, acked_by: str | None = None) -> None:
    """A service has the directive: its lease starts, whatever LUCIUS believed before."""
    step = draft.steps[index]
    assert step.attempt is not None
    policy = step.spec.policy
    attempt = draft.close_dispatch(step.attempt, DispatchStatus.SENT)
    attempt = replace(attempt, acked_at=draft.now, acked_by=acked_by, ended_at=None, error=None)
    ends_by = after(draft.now, policy.max_step_seconds) if step.ends_by is None else step.ends_by
    draft.move_step(
        index,
        StepMove.ACKED,
        attempt=attempt,
        due_at=min(after(draft.now, policy.lease_seconds), ends_by),
        ends_by=ends_by,
        queue_until=None,
        error=None,
        started_at=step.started_at or draft.now,
    )
    draft.move_job(JobMove.RAN)
    draft.effects.append(SettleDirective(index, attempt.attempt_no))


def _on_acked(draft: Draft, fact: Acked) -> None:
    index = _hear(draft, fact, "ACK")
    if index is None:
        return
    _pick_up(draft, index, fact.acked_by)
    draft.record("ACK", index, outcome=Outcome.APPLIED)


def _on_heartbeat(draft: Draft, fact: HeartbeatSeen) -> None:
    index = _hear(draft, fact, "HEARTBEAT")
    if index is None:
        return
    step = draft.steps[index]
    is_pickup = step.status is not StepStatus.PROCESSING
    if step.ends_by is not None and step.ends_by <= draft.now:
        draft.outcome = Outcome.STALE_ATTEMPT
        draft.record("HEARTBEAT", index, outcome=Outcome.STALE_ATTEMPT)
        return
    if is_pickup:
        # Its ACK was lost, but the work is under way: a heartbeat proves as much.
        _pick_up(draft, index)
    step = draft.steps[index]
    assert step.ends_by is not None
    progress = step.progress if fact.progress is None else fact.progress
    is_tenth = int(progress * 10) != int(step.progress * 10)
    draft.steps[index] = replace(
        step,
        due_at=min(after(draft.now, step.spec.policy.lease_seconds), step.ends_by),
        progress=progress,
        note=step.note if fact.note is None else fact.note,
        updated_at=draft.now,
    )
    if is_pickup or is_tenth:
        draft.record("HEARTBEAT", index, outcome=Outcome.APPLIED, progress=progress)


def _on_resulted(draft: Draft, fact: Resulted) -> None:
    index = _hear(draft, fact, "RESULT")
    if index is None:
        return
    step = draft.steps[index]
    assert step.attempt is not None
    attempt = draft.close_dispatch(step.attempt, DispatchStatus.SENT)
    if attempt.acked_at is None:
        draft.effects.append(SettleDirective(index, attempt.attempt_no))
    attempt = replace(attempt, verdict=fact.verdict, ended_at=draft.now)
    draft.move_job(JobMove.RAN)
    if fact.verdict is Verdict.SUCCEEDED:
        draft.move_step(
            index,
            StepMove.SUCCEEDED,
            attempt=replace(attempt, error=None),
            artifacts=fact.artifacts,
            output_ref=fact.output_ref,
            error=None,
            progress=1.0,
            started_at=step.started_at or draft.now,
        )
        draft.record("RESULT", index, outcome=Outcome.APPLIED, verdict=fact.verdict)
        _go_on(draft, index)
        return
    failure = fact.error or Failure("STEP_FAILED", "the service reported a failure and gave no reason")
    limited = fact.rate_limited_seconds
    draft.steps[index] = replace(
        step, attempt=attempt, attempts_counted=step.attempts_counted - (1 if limited is not None else 0)
    )
    _fail(
        draft,
        index,
        failure,
        step.spec.policy.execution_backoff_seconds,
        event="RESULT",
        may_retry=fact.retryable or limited is not None,
        wait_seconds=None if limited is None else rate_limit_seconds(limited),
        outcome=Outcome.APPLIED,
        verdict=fact.verdict,
        **({"rate_limited": True} if limited is not None else {}),
    )


def _go_on(draft: Draft, index: int) -> None:
    """After a step's success: the end, the next step, or a stop because somebody asked for it."""
    is_last = index + 1 == len(draft.steps)
    if draft.status is JobStatus.CANCELLING:
        _finish_cancelling(draft)
    elif is_last:
        draft.end(JobMove.SUCCEEDED, "JOB_SUCCEEDED")
    else:
        draft.current_index = index + 1
        if draft.status is not JobStatus.PAUSED:
            draft.start_attempt(index + 1)


def _fail(
    draft: Draft,
    index: int,
    failure: Failure,
    schedule: tuple[float, ...],
    event: str | None = None,
    may_retry: bool = True,
    wait_seconds: float | None = None,
    **data: Any,
) -> None:
    """A step's current attempt came to nothing: try again later, or give up."""
    step = draft.steps[index]
    assert step.attempt is not None
    attempt = replace(step.attempt, error=failure, ended_at=draft.now)
    event = event or failure.code
    told = {"code": failure.code, "message": failure.message, **data}
    is_left = step.attempts_counted < step.spec.policy.max_attempts or wait_seconds is not None
    if draft.status is JobStatus.CANCELLING:
        draft.move_step(index, StepMove.CANCELLED, attempt=attempt, error=failure)
        draft.record(event, index, **told)
        _finish_cancelling(draft)
    elif may_retry and is_left:
        if wait_seconds is None:
            wait_seconds = backoff_seconds(schedule, step.attempts_counted, draft.fresh.jitter())
        due_at = after(draft.now, wait_seconds)
        draft.move_step(index, StepMove.FAILED, attempt=attempt, error=failure, due_at=due_at)
        draft.record(event, index, retry_at=due_at, **told)
    else:
        draft.move_step(index, StepMove.EXHAUSTED, attempt=attempt, error=failure)
        draft.record(event, index, **told)
        draft.end(JobMove.FAILED, "JOB_FAILED", failure)


# --- Time ------------------------------------------------------------------------------------------------------------


def _on_deadline(draft: Draft, fact: DeadlinePassed) -> None:
    now = draft.now
    if draft.is_terminal or draft.job.wake_at is None or draft.job.wake_at > now:
        draft.outcome = Outcome.IGNORED
        return
    if now >= draft.job.spec.deadline_at:
        _job_deadline(draft)
        return
    step, index = draft.step, draft.current_index
    policy = step.spec.policy
    if not draft.is_due():
        # The timer was lost and set anew, or meant something that has passed: it is set again to what it should be.
        draft.outcome = Outcome.IGNORED
        return
    match step.status:
        case StepStatus.PENDING | StepStatus.FAILED_RETRY:
            draft.start_attempt(index)
        case StepStatus.DISPATCHING if draft.status is JobStatus.CANCELLING:
            _finish_cancelling(draft)
        case StepStatus.DISPATCHING:
            # No engine leaves this behind; drift repair wakes a job that it finds so.
            text = "the directive's outbox row was closed and its fate is unknown"
            _fail(draft, index, Failure("PUBLISH_LOST", text), policy.dispatch_backoff_seconds)
        case StepStatus.INITIATED if fact.still_queued and step.queue_until is not None and now < step.queue_until:
            moved = min(after(now, policy.ack_timeout_seconds), step.queue_until)
            draft.steps[index] = replace(step, due_at=moved, updated_at=now)
            draft.record("STILL_QUEUED", index, ack_by=moved)
        case StepStatus.INITIATED:
            text = f"no ACK within {policy.ack_timeout_seconds:g} s of the directive being taken by the bus"
            _fail(draft, index, Failure("ACK_TIMEOUT", text), policy.ack_backoff_seconds)
        case StepStatus.PROCESSING if step.ends_by is not None and now >= step.ends_by:
            text = f"the step took longer than {policy.max_step_seconds:g} s"
            _fail(draft, index, Failure("STEP_TIMEOUT", text), policy.execution_backoff_seconds)
        case StepStatus.PROCESSING:
            text = f"no heartbeat and no RESULT for {policy.lease_seconds:g} s"
            _fail(draft, index, Failure("LEASE_EXPIRED", text), policy.execution_backoff_seconds)


def _job_deadline(draft: Draft) -> None:
    if draft.status is JobStatus.CANCELLING:
        _finish_cancelling(draft)
        return
    draft.cancel_open_steps()
    failure = Failure("DEADLINE_EXCEEDED", "the job did not end before its deadline")
    draft.end(JobMove.FAILED, "JOB_FAILED", failure)


# --- Operators -------------------------------------------------------------------------------------------------------


def _on_cancel(draft: Draft, fact: CancelAsked) -> None:
    if draft.is_terminal:
        draft.outcome = Outcome.JOB_TERMINAL
        return
    if draft.status is JobStatus.CANCELLING:
        return
    told = {"by": fact.by} if fact.reason is None else {"by": fact.by, "reason": fact.reason}
    step = draft.step
    attempt = step.attempt
    is_unclaimed = attempt is not None and (
        step.status is StepStatus.DISPATCHING
        and attempt.dispatch is DispatchStatus.PENDING
        and attempt.claimed_until <= draft.now
    )
    if step.is_live and not is_unclaimed:
        draft.move_job(JobMove.CANCEL_ASKED)
        draft.record("CANCEL_ASKED", None, **told)
        return
    draft.record("CANCEL_ASKED", None, **told)
    _finish_cancelling(draft)


def _finish_cancelling(draft: Draft) -> None:
    draft.cancel_open_steps()
    draft.end(JobMove.CANCELLED, "JOB_CANCELLED")


def _on_pause(draft: Draft, fact: PauseAsked) -> None:
    if draft.is_terminal:
        draft.outcome = Outcome.JOB_TERMINAL
    elif (draft.status, JobMove.PAUSED) not in JOB_TRANSITIONS:
        draft.outcome = Outcome.CONFLICT
    elif draft.status is not JobStatus.PAUSED:
        draft.move_job(JobMove.PAUSED)
        draft.record("PAUSED", by=fact.by)


def _on_resume(draft: Draft, fact: ResumeAsked) -> None:
    if draft.is_terminal:
        draft.outcome = Outcome.JOB_TERMINAL
        return
    if (draft.status, JobMove.RESUMED) not in JOB_TRANSITIONS:
        draft.outcome = Outcome.CONFLICT
        return
    draft.move_job(JobMove.RESUMED)
    step, now = draft.step, draft.now
    if any(s.attempt is not None for s in draft.steps):
        draft.move_job(JobMove.STARTED)
    if any(s.attempt is not None and s.attempt.dispatch is DispatchStatus.SENT for s in draft.steps):
        draft.move_job(JobMove.RAN)
    draft.record("RESUMED", by=fact.by)
    not_before = draft.job.spec.not_before
    if step.status is StepStatus.PENDING:
        is_due = step.attempt is not None or draft.current_index > 0 or not_before is None or not_before <= now
    else:
        is_due = step.status is StepStatus.FAILED_RETRY and step.due_at is not None and step.due_at <= now
    if is_due:
        draft.start_attempt(draft.current_index)


_HANDLERS: dict[type, Callable[[Draft, Any], None]] = {
    Published: _on_published,
    PublishFailed: _on_publish_failed,
    PublishDeferred: _on_publish_deferred,
    DispatchDue: _on_dispatch_due,
    Acked: _on_acked,
    HeartbeatSeen: _on_heartbeat,
    Resulted: _on_resulted,
    DeadlinePassed: _on_deadline,
    CancelAsked: _on_cancel,
    PauseAsked: _on_pause,
    ResumeAsked: _on_resume,
}
