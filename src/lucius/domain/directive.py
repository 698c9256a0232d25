"""Directives: the message that gives an attempt to a platform service. Built when it is published, never stored."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from lucius.domain.callbacks import CallbackIds, TokenSigner
from lucius.domain.job import Job
from lucius.domain.time import Instant, after, iso


class CallbackUrls(Struct, frozen=True):
    ack: str
    result: str
    heartbeat: str

    @classmethod
    def under(cls, url: str) -> CallbackUrls:
        root = url.rstrip("/")
        return cls(*(f"{root}/v1/callbacks/{name}" for name in ("ack", "result", "heartbeat")))


class Directive(Struct, frozen=True, kw_only=True):
    type: str = "DIRECTIVE"
    jobId: str
    tenant_id: str
    stepId: str
    protocol_id: str
    step_type: str
    service: str
    last_step: bool
    attempt_no: int
    lease_id: str
    ack_by: str
    lease_seconds: float
    input_ref: Raw
    workspace_ref: str
    output_ref: Raw
    payload: Raw
    previous: dict[str, Raw]
    callback_urls: CallbackUrls
    callback_token: str
    mode: str
    lane: int
    routing_key_used: str
    correlation_id: str
    traceparent: str | None


_encode = msgspec.json.Encoder().encode


def message_id(job_id: str, step_id: str, attempt_no: int) -> str:
    """The message id, which the bus uses to detect duplicates."""
    return f"{job_id}:{step_id}:{attempt_no}"


def build_directive(
    job: Job, step_index: int, now: Instant, signer: TokenSigner, urls: CallbackUrls, traceparent: str | None = None
) -> tuple[bytes, dict[str, Any]]:
    """The body of the current attempt's directive, with a fresh token, and the message's properties."""
    spec, step = job.spec, job.steps[step_index]
    routing, policy, attempt = spec.routing, step.spec.policy, step.attempt
    if attempt is None:
        raise ValueError(f"step {step.spec.step_id} of job {job.job_id} has no attempt to publish")
    ids = CallbackIds(spec.tenant_id, spec.job_id, step.spec.step_id, attempt.attempt_no, attempt.lease_id)
    directive = Directive(
        jobId=spec.job_id,
        tenant_id=spec.tenant_id,
        stepId=step.spec.step_id,
        protocol_id=spec.protocol_id,
        step_type=step.spec.step_type,
        service=step.spec.service,
        last_step=step_index == len(job.steps) - 1,
        attempt_no=attempt.attempt_no,
        lease_id=attempt.lease_id,
        ack_by=iso(after(now, policy.ack_timeout_seconds)),
        lease_seconds=policy.lease_seconds,
        input_ref=spec.input_ref,
        workspace_ref=f"{step.spec.workspace_ref}/{attempt.attempt_no}/",
        output_ref=spec.output_ref,
        payload=step.spec.payload,
        previous={s.spec.step_id: s.artifacts for s in job.steps[:step_index]},
        callback_urls=urls,
        callback_token=signer.mint(ids, now, policy.max_step_seconds),
        mode=routing.resolved_mode,
        lane=routing.lane,
        routing_key_used=routing.routing_key_used,
        correlation_id=spec.correlation_id,
        traceparent=traceparent or spec.traceparent,
    )
    properties: dict[str, Any] = {
        "mode": directive.mode,
        "lane": directive.lane,
        "tenant_id": directive.tenant_id,
        "jobId": directive.jobId,
        "stepId": directive.stepId,
        "attempt_no": directive.attempt_no,
        "lease_id": directive.lease_id,
        "service": directive.service,
        "message_key": directive.routing_key_used,
    }
    return _encode(directive), properties
