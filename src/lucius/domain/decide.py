"""`decide`: what an input does to a job. One pure function, the same in every engine.

The two tables in `domain/job.py` and `domain/step.py` say which moves exist; `domain/handlers` says which move an input
is. An input that has no move changes nothing: it is answered, and recorded if it is an authentic callback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucius.domain.draft import Draft, IdSource
from lucius.domain.effects import Decision
from lucius.domain.handlers.bus import (
    on_died,
    on_dispatch_due,
    on_publish_deferred,
    on_publish_failed,
    on_publish_held,
    on_published,
    on_withdrawn,
)
from lucius.domain.handlers.callbacks import on_acked, on_heartbeat, on_resulted
from lucius.domain.handlers.deadlines import on_deadline
from lucius.domain.handlers.operators import on_cancel, on_force_cancel, on_pause, on_resume
from lucius.domain.inputs import (
    Accepted,
    Acked,
    CancelAsked,
    DeadlinePassed,
    DirectiveDied,
    DirectiveWithdrawn,
    DispatchDue,
    ForceCancelAsked,
    HeartbeatSeen,
    Input,
    PauseAsked,
    PublishDeferred,
    Published,
    PublishFailed,
    PublishHeld,
    Resulted,
    ResumeAsked,
)
from lucius.domain.job import RULES_VERSION, Job, JobStatus
from lucius.domain.step import Step
from lucius.domain.time import Instant


def decide(job: Job | None, fact: Input, now: Instant, id_source: IdSource) -> Decision:
    """The effect of `fact` on `job` at `now`. `job` is None only for `Accepted`."""
    if isinstance(fact, Accepted):
        if job is not None:
            raise ValueError(f"job {job.job_id} is already accepted")
        return _accept(fact, now, id_source)
    if job is None:
        raise ValueError(f"{type(fact).__name__} needs a job")
    if job.spec.rules_version > RULES_VERSION:
        raise ValueError(f"job {job.job_id} was accepted under rules {job.spec.rules_version}; this is {RULES_VERSION}")
    draft = Draft(job, now, id_source)
    _HANDLERS[type(fact)](draft, fact)
    return draft.decision()


def _accept(fact: Accepted, now: Instant, id_source: IdSource) -> Decision:
    done = fact.done
    steps = done + tuple(Step(spec=spec, created_at=now, updated_at=now) for spec in fact.steps[len(done) :])
    blank = Job(spec=fact.spec, status=JobStatus.QUEUED, steps=steps, current_index=len(done), updated_at=now)
    draft = Draft(blank, now, id_source)
    extra: dict[str, Any] = {"redrive_of": fact.spec.redrive_of} if fact.spec.redrive_of else {}
    if fact.has_new_payload:
        extra["new_payload"] = True
    if fact.redrive_key is not None:
        extra["idempotency_key"] = fact.redrive_key
    if fact.redriven_by is not None:
        extra["by"] = fact.redriven_by
    if fact.redrive_reason is not None:
        extra["reason"] = fact.redrive_reason
    draft.record("ACCEPTED", None, lane=fact.spec.routing.lane, mode=fact.spec.routing.resolved_mode, **extra)
    if fact.spec.not_before is None or fact.spec.not_before <= now:
        draft.start_attempt(draft.current_index)
    return draft.decision()


_HANDLERS: dict[type, Callable[[Draft, Any], None]] = {
    Published: on_published,
    PublishFailed: on_publish_failed,
    PublishDeferred: on_publish_deferred,
    PublishHeld: on_publish_held,
    DirectiveWithdrawn: on_withdrawn,
    DirectiveDied: on_died,
    DispatchDue: on_dispatch_due,
    Acked: on_acked,
    HeartbeatSeen: on_heartbeat,
    Resulted: on_resulted,
    DeadlinePassed: on_deadline,
    CancelAsked: on_cancel,
    ForceCancelAsked: on_force_cancel,
    PauseAsked: on_pause,
    ResumeAsked: on_resume,
}
