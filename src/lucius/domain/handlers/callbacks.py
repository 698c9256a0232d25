"""Callbacks of services: ACK, HEARTBEAT, RESULT."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lucius.domain.attempt import DispatchStatus, Failure, Verdict
from lucius.domain.draft import Draft
from lucius.domain.effects import Outcome, SettleDirective
from lucius.domain.handlers.endings import fail, go_on
from lucius.domain.inputs import Acked, Callback, HeartbeatSeen, Resulted
from lucius.domain.job import JobMove
from lucius.domain.retry import rate_limit_seconds
from lucius.domain.step import StepMove, StepStatus
from lucius.domain.time import Instant, after

# Named here once, as in `draft.py`: these are in every callback.
_SENT, _JOB_RAN, _APPLIED, _SUCCEEDED = DispatchStatus.SENT, JobMove.RAN, Outcome.APPLIED, Verdict.SUCCEEDED
_STEP_ACKED, _STEP_SUCCEEDED = StepMove.ACKED, StepMove.SUCCEEDED


def _match_callback(draft: Draft, fact: Callback, name: str) -> int | None:
    """Apply the order of answers of the callback contract; the step's index if the callback is to be applied."""
    index = draft.job.index_of(fact.step_id)
    if index is None:
        draft.outcome = Outcome.STEP_NOT_FOUND
        return None
    step = draft.steps[index]
    attempt = step.attempt
    if attempt is None or attempt.attempt_no != fact.attempt_no or attempt.lease_id != fact.lease_id:
        outcome = Outcome.STALE_ATTEMPT
    elif isinstance(fact, Acked) and _is_held_by_another(fact, attempt.acked_by or fact.held_by):
        # Delivered to two instances of a service; the other was first.
        outcome = Outcome.STALE_ATTEMPT
    elif _was_applied(fact, attempt.acked_at, attempt.verdict):
        outcome = Outcome.DUPLICATE
    elif step.is_terminal or draft.is_terminal:
        outcome = Outcome.LATE if isinstance(fact, Resulted) else Outcome.JOB_TERMINAL
    elif attempt.verdict is not None:
        # A RESULT ended the attempt, and its step waits for the next attempt.
        outcome = _AFTER_ITS_RESULT[type(fact)]
    else:
        return index
    draft.record_unapplied(name, index, fact.attempt_no, outcome)
    is_known = attempt is not None and 0 < fact.attempt_no <= attempt.attempt_no
    if is_known and not isinstance(fact, HeartbeatSeen):
        # Applied or not, the directive has reached a service: it must not be delivered again.
        draft.effects.append(SettleDirective(index, fact.attempt_no))
    return None


_AFTER_ITS_RESULT = {Acked: Outcome.DUPLICATE, HeartbeatSeen: Outcome.STALE_ATTEMPT, Resulted: Outcome.LATE}


def _is_held_by_another(fact: Acked, holder: str | None) -> bool:
    return bool(holder and fact.acked_by and fact.acked_by != holder)


def _was_applied(fact: Callback, acked_at: Instant | None, verdict: Verdict | None) -> bool:
    if isinstance(fact, Acked):
        return acked_at is not None
    return isinstance(fact, Resulted) and verdict is fact.verdict


def _pick_up(draft: Draft, index: int, acked_by: str | None = None) -> None:
    """A service has the directive: its lease starts, whatever the step's status was."""
    step = draft.steps[index]
    assert step.attempt is not None
    policy, now = step.spec.policy, draft.now
    attempt = draft.close_dispatch(step.attempt, _SENT)
    attempt = replace(attempt, acked_at=now, acked_by=acked_by, ended_at=None, error=None)
    ends_by = after(now, policy.max_step_seconds) if step.ends_by is None else step.ends_by
    step = replace(
        step,
        attempt=attempt,
        due_at=min(after(now, policy.lease_seconds), ends_by),
        ends_by=ends_by,
        queue_until=None,
        error=None,
        started_at=step.started_at or now,
    )
    draft.move_step(index, _STEP_ACKED, step)
    draft.move_job(_JOB_RAN)
    draft.effects.append(SettleDirective(index, attempt.attempt_no))


def _as_told(draft: Draft, fact: Callback, **said: Any) -> dict[str, Any]:
    """What a service says besides what counts, for the trail: only what it says, and a correlation id only if it is not
    the job's."""
    told = {name: value for name, value in said.items() if value is not None}
    if fact.correlation_id is not None and fact.correlation_id != draft.job.spec.correlation_id:
        told["correlation_id"] = fact.correlation_id
    return told


def on_acked(draft: Draft, fact: Acked) -> None:
    index = _match_callback(draft, fact, "ACK")
    if index is None:
        return
    _pick_up(draft, index, fact.acked_by)
    draft.record("ACK", index, outcome=_APPLIED, **_as_told(draft, fact, status=fact.status, acked_at=fact.at))


def on_heartbeat(draft: Draft, fact: HeartbeatSeen) -> None:
    index = _match_callback(draft, fact, "HEARTBEAT")
    if index is None:
        return
    step = draft.steps[index]
    is_pickup = step.status is not StepStatus.PROCESSING
    if step.ends_by is not None and step.ends_by <= draft.now:
        draft.record_unapplied("HEARTBEAT", index, fact.attempt_no, Outcome.STALE_ATTEMPT)
        return
    if is_pickup:
        # Its ACK was lost, but the heartbeat shows that the work is under way.
        _pick_up(draft, index)
    step = draft.steps[index]
    assert step.ends_by is not None
    progress = step.progress if fact.progress is None else fact.progress
    note = step.note if fact.note is None else fact.note
    is_tenth = int(progress * 10) != int(step.progress * 10)
    is_news = progress != step.progress or (note or "") != (step.note or "")
    draft.steps[index] = replace(
        step,
        due_at=min(after(draft.now, step.spec.policy.lease_seconds), step.ends_by),
        progress=progress,
        note=note,
        progress_at=draft.now if is_news else step.progress_at,
        updated_at=draft.now,
    )
    if is_pickup or is_tenth:
        draft.record("HEARTBEAT", index, outcome=Outcome.APPLIED, progress=progress, **_as_told(draft, fact))


def on_resulted(draft: Draft, fact: Resulted) -> None:
    index = _match_callback(draft, fact, "RESULT")
    if index is None:
        return
    step = draft.steps[index]
    assert step.attempt is not None
    attempt = draft.close_dispatch(step.attempt, _SENT)
    attempt = replace(attempt, verdict=fact.verdict, ended_at=draft.now)
    draft.move_job(_JOB_RAN)
    told = _as_told(draft, fact, completed_at=fact.at)
    if fact.verdict is _SUCCEEDED:
        draft.settle_directive(index)
        step = replace(
            step,
            attempt=replace(attempt, error=None),
            artifacts=fact.artifacts,
            output_ref=fact.output_ref,
            error=None,
            progress=1.0,
            started_at=step.started_at or draft.now,
        )
        draft.move_step(index, _STEP_SUCCEEDED, step)
        draft.record("RESULT", index, outcome=_APPLIED, verdict=fact.verdict, **told)
        go_on(draft, index)
        return
    failure = fact.error or Failure("STEP_FAILED", "the service reported a failure and gave no reason")
    limited = fact.rate_limited_seconds
    draft.steps[index] = replace(
        step, attempt=attempt, attempts_counted=step.attempts_counted - (1 if limited is not None else 0)
    )
    fail(
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
        **told,
    )
