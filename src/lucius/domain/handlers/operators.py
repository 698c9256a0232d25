"""Operations by operators: cancel, force-cancel, pause, resume."""

from __future__ import annotations

from lucius.domain.attempt import DispatchStatus
from lucius.domain.draft import Draft
from lucius.domain.effects import Outcome
from lucius.domain.handlers.endings import finish_cancelling
from lucius.domain.inputs import CancelAsked, ForceCancelAsked, Operation, PauseAsked, ResumeAsked
from lucius.domain.job import JOB_TRANSITIONS, JobMove, JobStatus
from lucius.domain.step import StepStatus


def _asked_by(fact: Operation) -> dict[str, str]:
    return {"by": fact.by} if fact.key is None else {"by": fact.by, "idempotency_key": fact.key}


def on_cancel(draft: Draft, fact: CancelAsked) -> None:
    if draft.is_terminal:
        draft.outcome = Outcome.JOB_TERMINAL
        return
    if draft.status is JobStatus.CANCELLING:
        return
    data = _with_reason(fact)
    step = draft.step
    attempt = step.attempt
    is_unclaimed = attempt is not None and (
        step.status is StepStatus.DISPATCHING
        and attempt.dispatch is DispatchStatus.PENDING
        and attempt.claimed_until <= draft.now
    )
    if step.is_live and not is_unclaimed:
        draft.move_job(JobMove.CANCEL_ASKED)
        draft.record("CANCEL_ASKED", None, **data)
        return
    draft.record("CANCEL_ASKED", None, **data)
    finish_cancelling(draft)


def _with_reason(fact: CancelAsked | PauseAsked | ResumeAsked) -> dict[str, str]:
    return _asked_by(fact) if fact.reason is None else {**_asked_by(fact), "reason": fact.reason}


def on_force_cancel(draft: Draft, fact: ForceCancelAsked) -> None:
    """Nobody waits for the live attempt. If its directive is being published right now, no ACK of it is accepted."""
    if draft.is_terminal:
        draft.outcome = Outcome.JOB_TERMINAL
        return
    draft.record("CANCEL_FORCED", None, **_asked_by(fact), reason=fact.reason)
    draft.cancel_open_steps()
    draft.end(JobMove.CANCEL_FORCED, "JOB_CANCELLED")


def on_pause(draft: Draft, fact: PauseAsked) -> None:
    if draft.is_terminal:
        draft.outcome = Outcome.JOB_TERMINAL
    elif (draft.status, JobMove.PAUSED) not in JOB_TRANSITIONS:
        draft.outcome = Outcome.CONFLICT
    elif draft.status is not JobStatus.PAUSED:
        draft.move_job(JobMove.PAUSED)
        draft.record("PAUSED", **_with_reason(fact))


def on_resume(draft: Draft, fact: ResumeAsked) -> None:
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
    draft.record("RESUMED", **_with_reason(fact))
    not_before = draft.job.spec.not_before
    if step.status is StepStatus.PENDING:
        is_due = step.attempt is not None or draft.current_index > 0 or not_before is None or not_before <= now
    else:
        is_due = step.status is StepStatus.FAILED_RETRY and step.due_at is not None and step.due_at <= now
    if is_due:
        draft.start_attempt(draft.current_index)
