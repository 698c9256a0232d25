"""Deadlines: retries that are due, timeouts, expired leases, the job's deadline."""

from __future__ import annotations

from msgspec.structs import replace

from lucius.domain.attempt import Failure
from lucius.domain.draft import Draft
from lucius.domain.effects import Outcome
from lucius.domain.handlers.endings import fail, finish_cancelling
from lucius.domain.inputs import DeadlinePassed
from lucius.domain.job import RECORDS_WAITING_ONCE, WITHDRAWS_DIRECTIVES, JobMove, JobStatus
from lucius.domain.step import StepStatus
from lucius.domain.time import after


def on_deadline(draft: Draft, fact: DeadlinePassed) -> None:
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
        # The timer was lost and recreated, or was for something that is over: set it again.
        if not draft.shorten_waits():
            draft.outcome = Outcome.IGNORED
        return
    match step.status:
        case StepStatus.PENDING | StepStatus.FAILED_RETRY:
            draft.start_attempt(index)
        case StepStatus.DISPATCHING if draft.status is JobStatus.CANCELLING:
            finish_cancelling(draft)
        case StepStatus.DISPATCHING:
            # No engine leaves a job in this state; drift repair wakes one that it finds.
            text = "the directive's outbox row was closed and its fate is unknown"
            fail(draft, index, Failure("PUBLISH_LOST", text), policy.dispatch_backoff_seconds)
        case StepStatus.INITIATED if fact.still_queued and _may_wait_in_queue(draft):
            _wait_in_queue(draft)
        case StepStatus.INITIATED:
            text = f"no ACK within {policy.ack_timeout_seconds:g} s of the directive being taken by the bus"
            fail(draft, index, Failure("ACK_TIMEOUT", text), policy.ack_backoff_seconds)
        case StepStatus.PROCESSING if step.ends_by is not None and now >= step.ends_by:
            text = f"the step took longer than {policy.max_step_seconds:g} s"
            fail(draft, index, Failure("STEP_TIMEOUT", text), policy.execution_backoff_seconds)
        case StepStatus.PROCESSING:
            text = f"no heartbeat and no RESULT for {policy.lease_seconds:g} s"
            fail(draft, index, Failure("LEASE_EXPIRED", text), policy.execution_backoff_seconds)


def _may_wait_in_queue(draft: Draft) -> bool:
    if draft.status is JobStatus.CANCELLING and draft.job.spec.rules_version >= WITHDRAWS_DIRECTIVES:
        return False
    queue_until = draft.step.queue_until
    return queue_until is not None and draft.now < queue_until


def _wait_in_queue(draft: Draft) -> None:
    """Extend the ack deadline. Only the first extension of a directive is an event."""
    step, policy = draft.step, draft.step.spec.policy
    assert step.attempt is not None
    assert step.attempt.sent_at is not None
    assert step.queue_until is not None
    moved = min(after(draft.now, policy.ack_timeout_seconds), step.queue_until)
    is_first = step.due_at == after(step.attempt.sent_at, policy.ack_timeout_seconds)
    draft.steps[draft.current_index] = replace(step, due_at=moved, updated_at=draft.now)
    if is_first or draft.job.spec.rules_version < RECORDS_WAITING_ONCE:
        draft.record("STILL_QUEUED", draft.current_index, ack_by=moved)


def _job_deadline(draft: Draft) -> None:
    if draft.status is JobStatus.CANCELLING:
        finish_cancelling(draft)
        return
    draft.cancel_open_steps()
    failure = Failure("DEADLINE_EXCEEDED", "the job did not end before its deadline")
    draft.end(JobMove.FAILED, "JOB_FAILED", failure)
