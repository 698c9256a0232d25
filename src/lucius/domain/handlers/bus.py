"""Inputs about directives on the bus: published, refused, deferred, withdrawn, due."""

from __future__ import annotations

from msgspec.structs import replace

from lucius.domain.attempt import DispatchStatus, Failure
from lucius.domain.draft import Draft
from lucius.domain.effects import Outcome, PublishDirective
from lucius.domain.handlers.endings import fail, finish_cancelling
from lucius.domain.inputs import (
    DirectiveDied,
    DirectiveWithdrawn,
    DispatchDue,
    PublishDeferred,
    Published,
    PublishFailed,
    PublishHeld,
)
from lucius.domain.job import RETRIES_REFUSED_EARLY, Job, JobStatus
from lucius.domain.step import StepStatus
from lucius.domain.time import after


def is_unsent(job: Job) -> bool:
    """Whether the current attempt was not handed to the bus yet."""
    step = job.current_step
    is_pending = step.attempt is not None and step.attempt.dispatch is DispatchStatus.PENDING
    return is_pending and step.status is StepStatus.DISPATCHING and not job.is_terminal


def is_refused_for_now(job: Job) -> bool:
    """Whether the current step waits for another attempt because the bus refused its directive."""
    step = job.current_step
    return (
        step.status is StepStatus.FAILED_RETRY
        and step.error is not None
        and step.error.code == "PUBLISH_FAILED"
        and job.status in (JobStatus.DISPATCHING, JobStatus.IN_PROGRESS)
        and job.spec.rules_version >= RETRIES_REFUSED_EARLY
    )


def _dispatched_step(draft: Draft, step_id: str, attempt_no: int) -> int | None:
    """The step whose unsent outbox row this is about, if there is one."""
    index = draft.job.index_of(step_id)
    if index is not None:
        attempt = draft.steps[index].attempt
        if attempt and attempt.attempt_no == attempt_no and attempt.dispatch is DispatchStatus.PENDING:
            return index
    draft.outcome = Outcome.IGNORED
    return None


def on_published(draft: Draft, fact: Published) -> None:
    index = _dispatched_step(draft, fact.step_id, fact.attempt_no)
    if index is not None:
        draft.mark_published(index)


def on_publish_failed(draft: Draft, fact: PublishFailed) -> None:
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
    fail(draft, index, failure, step.spec.policy.dispatch_backoff_seconds)


def on_publish_deferred(draft: Draft, fact: PublishDeferred) -> None:
    index = _dispatched_step(draft, fact.step_id, fact.attempt_no)
    if index is None or draft.is_terminal:
        return
    step = draft.steps[index]
    assert step.attempt is not None
    draft.steps[index] = replace(step, attempt=replace(step.attempt, claimed_until=draft.now))
    if draft.status is JobStatus.CANCELLING and step.status is StepStatus.DISPATCHING:
        finish_cancelling(draft)


def on_publish_held(draft: Draft, fact: PublishHeld) -> None:
    index = _dispatched_step(draft, fact.step_id, fact.attempt_no)
    if index is None:
        return
    if draft.is_terminal or draft.steps[index].status is not StepStatus.DISPATCHING:
        draft.outcome = Outcome.IGNORED
    elif draft.status is JobStatus.CANCELLING:
        finish_cancelling(draft)
    else:
        _hold(draft, index)


def _hold(draft: Draft, index: int) -> None:
    step = draft.steps[index]
    assert step.attempt is not None
    if step.attempt.is_held:
        draft.outcome = Outcome.IGNORED
        return
    attempt = replace(step.attempt, claimed_until=draft.now, is_held=True)
    draft.steps[index] = replace(step, attempt=attempt)
    draft.record("PUBLISH_HELD", index)


def on_withdrawn(draft: Draft, fact: DirectiveWithdrawn) -> None:
    """No service can pick the attempt up any more. If one already did, its answer is still to come."""
    step = draft.step
    is_current = (step.spec.step_id, step.attempt_no) == (fact.step_id, fact.attempt_no)
    if not draft.job.awaits_withdrawal or not is_current:
        draft.outcome = Outcome.IGNORED
        return
    draft.record("DIRECTIVE_WITHDRAWN", draft.current_index)
    finish_cancelling(draft)


def on_died(draft: Draft, fact: DirectiveDied) -> None:
    """A missed ACK, though its deadline has not passed. If a service has acknowledged the attempt, it is not missed."""
    step = draft.step
    is_current = (step.spec.step_id, step.attempt_no) == (fact.step_id, fact.attempt_no)
    if not is_current or step.status is not StepStatus.INITIATED or draft.is_terminal:
        draft.outcome = Outcome.IGNORED
        return
    text = f"the bus gave up on the directive, and no ACK had come: {fact.reason}"
    fail(draft, draft.current_index, Failure("ACK_TIMEOUT", text), step.spec.policy.ack_backoff_seconds)


def on_dispatch_due(draft: Draft, fact: DispatchDue) -> None:
    """Take up an outbox row that no process is publishing: claim it again, or close it if the job is being
    cancelled. With `force` also a row that is claimed, and a step that waits because its row was refused."""
    step = draft.step
    attempt = step.attempt
    if fact.force and is_refused_for_now(draft.job):
        draft.start_attempt(draft.current_index)
        return
    is_unsent = attempt is not None and attempt.dispatch is DispatchStatus.PENDING
    if not is_unsent or step.status is not StepStatus.DISPATCHING or draft.is_terminal:
        draft.outcome = Outcome.IGNORED
        return
    assert attempt is not None
    if (attempt.claimed_until > draft.now and not fact.force) or draft.id_source.claim_seconds <= 0:
        draft.outcome = Outcome.IGNORED
        return
    if draft.status is JobStatus.CANCELLING:
        if attempt.claimed_until <= draft.now:
            finish_cancelling(draft)
        return
    if draft.id_source.holds_back(draft.job.spec, step.spec):
        _hold(draft, draft.current_index)
        return
    claimed = replace(attempt, claimed_until=after(draft.now, draft.id_source.claim_seconds), is_held=False)
    draft.steps[draft.current_index] = replace(step, attempt=claimed)
    draft.effects.append(PublishDirective(draft.current_index))
