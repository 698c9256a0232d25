"""Between the aggregate and its rows. The order of the columns here is the order in `statements.py`."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from lucius.domain.attempt import NULL, Attempt, DispatchStatus, Failure, Verdict
from lucius.domain.effects import Event
from lucius.domain.job import Job, JobSpec, JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.routing import DecisionSource, Mode, Routing
from lucius.domain.step import Step, StepSpec, StepStatus
from lucius.ports.ledger import Change, Webhook

_encode = msgspec.json.Encoder().encode
_decode_policy = msgspec.json.Decoder(Policy).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_urls = msgspec.json.Decoder(dict[str, str]).decode

_policy_texts: dict[Policy, str] = {}
_POLICY_TEXTS_MAX = 1_000


def claim_key(key: bytes) -> str:
    return urlsafe_b64encode(key).rstrip(b"=").decode()


def job_row(change: Change) -> tuple[Any, ...]:
    """Every column of a new job."""
    job, spec = change.after, change.after.spec
    routing = spec.routing
    return (
        spec.job_id,
        spec.tenant_id,
        spec.request_type,
        spec.protocol_id,
        spec.protocol_version,
        spec.schema_version,
        routing.resolved_mode,
        routing.decision_source,
        routing.decision_reason,
        routing.routing_key_used,
        routing.lane,
        bytes(spec.input_ref).decode(),
        bytes(spec.output_ref).decode(),
        claim_key(change.claim.key) if change.claim else None,
        spec.idempotency_key,
        spec.idempotency_hash,
        spec.doc_id,
        _encode(spec.callback_urls).decode() if spec.callback_urls else None,
        spec.correlation_id,
        spec.traceparent,
        spec.not_before,
        spec.deadline_at,
        spec.created_at,
        spec.redrive_of,
        spec.rules_version,
        *_job_state(job),
    )


def job_update_row(change: Change) -> tuple[Any, ...]:
    return (change.after.spec.job_id, *_job_state(change.after))


def _job_state(job: Job) -> tuple[Any, ...]:
    error = job.error
    return (
        job.status,
        job.current_step.spec.step_id,
        job.current_index,
        job.attempts_total,
        job.updated_at,
        job.completed_at,
        error.code if error else None,
        error.message if error else None,
        1 if job.dead_letter else 0,
        job.wake_at,
        job.event_seq,
        job.revision + 1,
        job.engine,
    )


def step_rows(change: Change) -> list[tuple[Any, ...]]:
    """Every column of every step of a new job."""
    job_id = change.after.spec.job_id
    return [
        (
            job_id,
            index,
            step.spec.step_id,
            step.spec.step_type,
            step.spec.service,
            bytes(step.spec.payload).decode(),
            _policy_text(step.spec.policy),
            step.spec.workspace_ref,
            step.created_at,
            *_step_state(step),
        )
        for index, step in enumerate(change.after.steps)
    ]


def step_update_rows(change: Change) -> list[tuple[Any, ...]]:
    """Only the steps that the change touched."""
    assert change.before is not None
    job_id, before = change.after.spec.job_id, change.before.steps
    return [
        (job_id, index, *_step_state(step))
        for index, step in enumerate(change.after.steps)
        if step is not before[index]
    ]


def _step_state(step: Step) -> tuple[Any, ...]:
    error, attempt = step.error, step.attempt
    return (
        step.status,
        attempt.attempt_no if attempt else 0,
        step.attempts_counted,
        attempt.lease_id if attempt else None,
        step.due_at,
        step.queue_until,
        step.ends_by,
        step.progress,
        step.note,
        _json_text(step.artifacts),
        _json_text(step.output_ref),
        error.code if error else None,
        error.message if error else None,
        step.updated_at,
        step.started_at,
        step.completed_at,
    )


def attempt_rows(change: Change) -> list[tuple[Any, ...]]:
    """The attempts that the change created or touched, with every column."""
    spec, before = change.after.spec, change.before
    routing = spec.routing
    rows = []
    for index, step in enumerate(change.after.steps):
        attempt = step.attempt
        if attempt is None or (before is not None and attempt is before.steps[index].attempt):
            continue
        error = attempt.error
        rows.append(
            (
                spec.job_id,
                index,
                attempt.attempt_no,
                step.spec.step_id,
                attempt.lease_id,
                spec.tenant_id,
                routing.resolved_mode,
                routing.lane,
                routing.routing_key_used,
                attempt.created_at,
                attempt.status,
                attempt.dispatch,
                attempt.claimed_until,
                attempt.sent_at,
                attempt.acked_at,
                attempt.ended_at,
                attempt.verdict,
                error.code if error else None,
                error.message if error else None,
                attempt.acked_by,
            )
        )
    return rows


def event_rows(change: Change) -> list[tuple[Any, ...]]:
    job_id = change.after.spec.job_id
    return [(job_id, e.seq, e.at, e.type, e.step_id, e.attempt_no, _encode(e.data).decode()) for e in change.events]


def webhook_row(webhook: Webhook) -> tuple[Any, ...]:
    return (webhook.job_id, webhook.url, webhook.tenant_id, webhook.attempts, webhook.next_at, webhook.last_error)


def _policy_text(policy: Policy) -> str:
    text = _policy_texts.get(policy)
    if text is None:
        if len(_policy_texts) >= _POLICY_TEXTS_MAX:
            _policy_texts.clear()
        text = _policy_texts[policy] = _encode(policy).decode()
    return text


# --- And back --------------------------------------------------------------------------------------------------------


def read_job(row: Sequence[Any], steps: tuple[Step, ...]) -> Job:
    routing = Routing(Mode(row[6]), DecisionSource(row[7]), row[8], row[9], row[10])
    spec = JobSpec(
        job_id=row[0],
        tenant_id=row[1],
        request_type=row[2],
        protocol_id=row[3],
        protocol_version=row[4],
        schema_version=row[5],
        routing=routing,
        input_ref=Raw(row[11].encode()),
        output_ref=Raw(row[12].encode()),
        idempotency_key=row[14],
        idempotency_hash=row[15],
        doc_id=row[16],
        callback_urls=_decode_urls(row[17]) if row[17] else {},
        correlation_id=row[18],
        traceparent=row[19],
        not_before=row[20],
        deadline_at=row[21],
        created_at=row[22],
        redrive_of=row[23],
        rules_version=row[24],
    )
    return Job(
        spec=spec,
        status=JobStatus(row[25]),
        steps=steps,
        current_index=row[27],
        attempts_total=row[28],
        updated_at=row[29],
        completed_at=row[30],
        error=_failure(row[31], row[32]),
        dead_letter=bool(row[33]),
        wake_at=row[34],
        event_seq=row[35],
        revision=row[36],
        engine=row[37],
    )


def read_step(row: Sequence[Any], attempt: Attempt | None) -> Step:
    spec = StepSpec(
        step_id=row[2],
        step_type=row[3],
        service=row[4],
        payload=Raw(row[5].encode()),
        policy=_decode_policy(row[6]),
        workspace_ref=row[7],
    )
    return Step(
        spec=spec,
        created_at=row[8],
        status=StepStatus(row[9]),
        attempt=attempt,
        attempts_counted=row[11],
        due_at=row[13],
        queue_until=row[14],
        ends_by=row[15],
        progress=row[16],
        note=row[17],
        artifacts=_json(row[18]),
        output_ref=_json(row[19]),
        error=_failure(row[20], row[21]),
        updated_at=row[22],
        started_at=row[23],
        completed_at=row[24],
    )


def read_attempt(row: Sequence[Any]) -> Attempt:
    return Attempt(
        attempt_no=row[2],
        lease_id=row[4],
        created_at=row[9],
        status=row[10],
        dispatch=DispatchStatus(row[11]),
        claimed_until=row[12],
        sent_at=row[13],
        acked_at=row[14],
        ended_at=row[15],
        verdict=Verdict(row[16]) if row[16] else None,
        error=_failure(row[17], row[18]),
        acked_by=row[19],
    )


def read_event(row: Sequence[Any]) -> Event:
    return Event(row[1], row[2], row[3], row[4], row[5], _decode_object(row[6]))


def read_webhook(row: Sequence[Any]) -> Webhook:
    return Webhook(job_id=row[0], url=row[1], tenant_id=row[2], attempts=row[3], next_at=row[4], last_error=row[5])


def _json_text(value: Raw) -> str | None:
    """JSON's null is SQL's NULL."""
    return bytes(value).decode() if value is not NULL and value != NULL else None


def _json(text: str | None) -> Raw:
    return Raw(text.encode()) if text is not None else NULL


def _failure(code: str | None, message: str | None) -> Failure | None:
    return Failure(code, message or "") if code else None
