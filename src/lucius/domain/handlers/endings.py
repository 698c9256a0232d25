"""How attempts, steps and jobs end: success, failure, retry, cancellation."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lucius.domain.attempt import Failure
from lucius.domain.draft import Draft
from lucius.domain.job import JobMove, JobStatus
from lucius.domain.retry import backoff_seconds
from lucius.domain.step import StepMove
from lucius.domain.time import after


def go_on(draft: Draft, index: int) -> None:
    """After a step's success: end the job, start the next step, or stop if that was requested."""
    is_last = index + 1 == len(draft.steps)
    if draft.status is JobStatus.CANCELLING:
        finish_cancelling(draft)
    elif is_last:
        draft.end(JobMove.SUCCEEDED, "JOB_SUCCEEDED")
    else:
        draft.current_index = index + 1
        if draft.status is not JobStatus.PAUSED:
            draft.start_attempt(index + 1)


def fail(
    draft: Draft,
    index: int,
    failure: Failure,
    schedule: tuple[float, ...],
    event: str | None = None,
    may_retry: bool = True,
    wait_seconds: float | None = None,
    **data: Any,
) -> None:
    """A step's current attempt failed: try again later, or give up."""
    step = draft.steps[index]
    assert step.attempt is not None
    if failure.instance is None and step.attempt.acked_by is not None:
        failure = replace(failure, instance=step.attempt.acked_by)
    draft.settle_directive(index)
    failed = replace(step, attempt=replace(step.attempt, error=failure, ended_at=draft.now), error=failure)
    event = event or failure.code
    details = {"code": failure.code, "message": failure.message, **data}
    if failure.instance is not None:
        details["instance"] = failure.instance
    is_left = step.attempts_counted < step.spec.policy.max_attempts or wait_seconds is not None
    if draft.status is JobStatus.CANCELLING:
        draft.move_step(index, StepMove.CANCELLED, failed)
        draft.record(event, index, **details)
        finish_cancelling(draft)
    elif may_retry and is_left:
        if wait_seconds is None:
            wait_seconds = backoff_seconds(schedule, step.attempts_counted, draft.id_source.jitter())
        due_at = after(draft.now, wait_seconds)
        draft.move_step(index, StepMove.FAILED, replace(failed, due_at=due_at))
        draft.record(event, index, retry_at=due_at, **details)
    else:
        draft.move_step(index, StepMove.EXHAUSTED, failed)
        draft.record(event, index, **details)
        draft.end(JobMove.FAILED, "JOB_FAILED", failure)


def finish_cancelling(draft: Draft) -> None:
    draft.cancel_open_steps()
    draft.end(JobMove.CANCELLED, "JOB_CANCELLED")
