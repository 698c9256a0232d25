"""Reading: jobs, steps, attempts and events, as their callers see them. Reads the ledger only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from lucius.domain.attempt import Attempt, Failure
from lucius.domain.effects import Event
from lucius.domain.errors import CallerError, InfrastructureError
from lucius.domain.job import Job
from lucius.domain.step import Step
from lucius.domain.time import Instant, iso
from lucius.domain.waiting import waiting_on
from lucius.ports.engine import Engine
from lucius.ports.ledger import JobFilter, Ledger, LedgerUnavailable

Sees = Callable[[str], bool]
"""Whether the caller may see a tenant's jobs."""


class Queries:
    def __init__(self, ledger: Ledger, engine: Engine) -> None:
        self._ledger = ledger
        self._engine = engine

    async def job(self, job_id: str, sees: Sees) -> Job:
        """The job, or `JOB_NOT_FOUND`: another tenant's job is not found, not forbidden."""
        job = (await self._load(job_id)).get(job_id)
        if job is None or not sees(job.spec.tenant_id):
            raise CallerError.of("JOB_NOT_FOUND", "there is no such job")
        return job

    async def job_when_ended(
        self, job_id: str, sees: Sees, wait_seconds: float, stopping: Callable[[], bool] = lambda: False
    ) -> Job:
        """The job once it has ended, or as it is after so long, or when this process is stopping."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        slice_seconds = self._engine.changes_elsewhere_seconds
        while True:
            # The watch must stand before the job is read, or its end could be missed.
            waiter = asyncio.ensure_future(self._engine.wait_for_change(job_id, slice_seconds, until_ended=True))
            try:
                await asyncio.sleep(0)
                job = await self.job(job_id, sees)
                left = deadline - loop.time()
                if job.is_terminal or left <= 0 or stopping():
                    return job
                await asyncio.wait({waiter}, timeout=left)
            finally:
                waiter.cancel()

    async def jobs(self, filter_: JobFilter, limit: int, before_id: str | None) -> tuple[list[Job], str | None]:
        """A page of jobs, newest first, and where the next one begins."""
        try:
            found = await self._ledger.jobs(filter_, limit + 1, before_id)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        page = found[:limit]
        return page, page[-1].job_id if len(found) > limit else None

    async def attempts(self, job_id: str) -> dict[str, list[Attempt]]:
        try:
            return await self._ledger.attempts(job_id)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error

    async def events(self, job_id: str, after_seq: int, limit: int) -> tuple[list[Event], int | None]:
        try:
            found = await self._ledger.events(job_id, after_seq, limit + 1)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        page = found[:limit]
        return page, page[-1].seq if len(found) > limit else None

    async def _load(self, job_id: str) -> dict[str, Job]:
        try:
            return await self._ledger.load([job_id])
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error


# --- As callers see them ---------------------------------------------------------------------------------------------


def show_job(job: Job) -> dict[str, Any]:
    spec, waits = job.spec, waiting_on(job)
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
        }
        if waits
        else None,
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
        "attempts_total": job.attempts_total,
        "created_at": iso(spec.created_at),
        "updated_at": iso(job.updated_at),
        "completed_at": _iso(job.completed_at),
        "not_before": _iso(spec.not_before),
        "deadline_at": iso(spec.deadline_at),
        "redrive_of": spec.redrive_of,
        "dead_letter": job.dead_letter,
        "error": _error(job.error),
        "steps": [show_step(job, step) for step in job.steps],
    }


def show_step(job: Job, step: Step, attempts: list[Attempt] | None = None) -> dict[str, Any]:
    routing, attempt = job.spec.routing, step.attempt
    shown = {
        "stepId": step.spec.step_id,
        "step_type": step.spec.step_type,
        "service": step.spec.service,
        "status": step.status,
        "attempt_no": step.attempt_no,
        "lease_id": attempt.lease_id if attempt else None,
        "lease_expires_at": _iso(step.due_at) if step.status == "PROCESSING" else None,
        "lane": routing.lane,
        "routing_key_used": routing.routing_key_used,
        "workspace_ref": f"{step.spec.workspace_ref}/{step.attempt_no}/" if attempt else None,
        "progress": step.progress,
        "note": step.note,
        "artifacts": step.artifacts,
        "output_ref": step.output_ref,
        "error": _error(step.error),
        "retry_at": _iso(step.due_at) if step.status == "FAILED_RETRY" else None,
        "created_at": iso(step.created_at),
        "updated_at": iso(step.updated_at),
        "started_at": _iso(step.started_at),
        "completed_at": _iso(step.completed_at),
    }
    if attempts is not None:
        shown["attempts"] = [show_attempt(one) for one in attempts]
    return shown


def show_attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt_no": attempt.attempt_no,
        "lease_id": attempt.lease_id,
        "status": attempt.status,
        "started_at": iso(attempt.created_at),
        "sent_at": _iso(attempt.sent_at),
        "acked_at": _iso(attempt.acked_at),
        "ended_at": _iso(attempt.ended_at),
        "outbox_status": attempt.dispatch,
        "error": _error(attempt.error),
    }


INSTANTS_IN_EVENTS = ("retry_at", "ack_by")


def show_event(event: Event) -> dict[str, Any]:
    data = {name: iso(value) if name in INSTANTS_IN_EVENTS else value for name, value in event.data.items()}
    return {
        "seq": event.seq,
        "at": iso(event.at),
        "type": event.type,
        "stepId": event.step_id,
        "attempt_no": event.attempt_no,
        **data,
    }


def _error(error: Failure | None) -> dict[str, str] | None:
    return {"code": error.code, "message": error.message} if error else None


def _iso(instant: Instant | None) -> str | None:
    return iso(instant) if instant is not None else None
