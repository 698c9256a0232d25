"""Jobs, steps, attempts and events as callers see them."""

from __future__ import annotations

from typing import Any

from lucius.api import answers
from lucius.domain.attempt import Attempt, Failure
from lucius.domain.effects import Event
from lucius.domain.job import Job
from lucius.domain.routing import Routing
from lucius.domain.signature import error_signature
from lucius.domain.step import Step
from lucius.domain.time import Instant, iso
from lucius.domain.waiting import Absent, waiting_on
from lucius.ports.ledger import UnreadableJob
from lucius.usecases.query import UNREADABLE_TEXT


def show_listed_job(job: Job | UnreadableJob, absent: Absent) -> answers.Job | answers.Unreadable:
    """A job in a list; a job that cannot be read must not make the list fail."""
    return show_unreadable(job) if isinstance(job, UnreadableJob) else show_job(job, absent)


def show_unreadable(job: UnreadableJob) -> answers.Unreadable:
    error = Failure("ROW_UNREADABLE", UNREADABLE_TEXT)
    return {"jobId": job.job_id, "tenant_id": job.tenant_id, "error": error}


def show_job(job: Job, absent: Absent = lambda service: None) -> answers.Job:
    spec, waits = job.spec, waiting_on(job, absent)
    return {
        "jobId": spec.job_id,
        "tenant_id": spec.tenant_id,
        "request_type": spec.request_type,
        "protocol_id": spec.protocol_id,
        "protocol_version": spec.protocol_version,
        "engine": job.engine,
        "status": job.status,
        "current_step_id": job.current_step.spec.step_id,
        "progress": job.progress,
        "waiting_on": {
            "what": waits.what,
            "since": iso(waits.since),
            "until": _iso(waits.until),
            "sentence": waits.sentence,
            "progress_at": _iso(waits.progress_at),
        }
        if waits
        else None,
        "requested_mode": spec.routing.requested_mode,
        "mode": spec.routing.resolved_mode,
        "decision_source": spec.routing.decision_source,
        "decision_reason": spec.routing.decision_reason,
        "lane": spec.routing.lane,
        "routing_key_used": spec.routing.routing_key_used,
        "doc_id": spec.doc_id,
        "input_ref": spec.input_ref,
        "output_ref": spec.output_ref,
        "idempotency_key": spec.idempotency_key,
        "idempotency_hash": spec.idempotency_hash,
        "correlation_id": spec.correlation_id,
        "traceparent": spec.traceparent,
        "attempts_total": job.attempts_total,
        "created_at": iso(spec.created_at),
        "updated_at": iso(job.updated_at),
        "completed_at": _iso(job.completed_at),
        "not_before": _iso(spec.not_before),
        "deadline_at": iso(spec.deadline_at),
        "redrive_of": spec.redrive_of,
        "dead_letter": job.dead_letter,
        "error": job.error,
        "error_signature": error_signature(job),
        "steps": [show_step(job, step) for step in job.steps],
    }


def show_step(job: Job, step: Step, attempts: list[Attempt] | None = None) -> answers.Step:
    routing, attempt = job.spec.routing, step.attempt
    shown: answers.Step = {
        "stepId": step.spec.step_id,
        "step_type": step.spec.step_type,
        "service": step.spec.service,
        "status": step.status,
        "attempt_no": step.attempt_no,
        "lease_id": attempt.lease_id if attempt else None,
        "lease_expires_at": _iso(step.due_at) if step.status == "PROCESSING" else None,
        "input_ref": job.spec.input_ref,
        "mode": routing.resolved_mode,
        "decision_source": routing.decision_source,
        "decision_reason": routing.decision_reason,
        "lane": routing.lane,
        "routing_key_used": routing.routing_key_used,
        "workspace_ref": f"{step.spec.workspace_ref}/{step.attempt_no}/" if attempt else None,
        "progress": step.progress,
        "progress_at": _iso(step.progress_at),
        "note": step.note,
        "artifacts": step.artifacts,
        "output_ref": step.output_ref,
        "error": step.error,
        "retry_at": _iso(step.due_at) if step.status == "FAILED_RETRY" else None,
        "created_at": iso(step.created_at),
        "updated_at": iso(step.updated_at),
        "started_at": _iso(step.started_at),
        "completed_at": _iso(step.completed_at),
    }
    if attempts is not None:
        shown["attempts"] = [show_attempt(attempt, routing) for attempt in attempts]
    return shown


def show_attempt(attempt: Attempt, routing: Routing) -> answers.Attempt:
    return {
        "attempt_no": attempt.attempt_no,
        "lease_id": attempt.lease_id,
        "status": attempt.status,
        "started_at": iso(attempt.created_at),
        "sent_at": _iso(attempt.sent_at),
        "acked_at": _iso(attempt.acked_at),
        "acked_by": attempt.acked_by,
        "ended_at": _iso(attempt.ended_at),
        "outbox_status": attempt.dispatch,
        "error": attempt.error,
        "mode": routing.resolved_mode,
        "decision_source": routing.decision_source,
        "decision_reason": routing.decision_reason,
        "lane": routing.lane,
        "routing_key_used": routing.routing_key_used,
    }


INSTANTS_IN_EVENTS = ("retry_at", "ack_by", "acked_at", "completed_at")


def show_event(event: Event) -> dict[str, Any]:
    data = {
        name: iso(value) if name in INSTANTS_IN_EVENTS and isinstance(value, int) else value
        for name, value in event.data.items()
    }
    shown: answers.Event = {
        "seq": event.seq,
        "at": iso(event.at),
        "type": event.type,
        "stepId": event.step_id,
        "attempt_no": event.attempt_no,
    }
    return {**shown, **data}


def _iso(instant: Instant | None) -> str | None:
    return iso(instant) if instant is not None else None
