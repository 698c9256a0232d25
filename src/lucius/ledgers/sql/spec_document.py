"""The document of what was accepted, written once: the job's spec and its steps', in an array.

It leaves out whatever has a column in `job_states`, and what is nearly always the same as something else: None stands
for that. A new field goes last and has a default, and no field is ever moved or removed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lucius.domain.job import Job, JobSpec
from lucius.domain.protocol import Policy
from lucius.domain.routing import DecisionSource, Mode, Routing
from lucius.domain.search import SearchValue
from lucius.domain.step import StepSpec
from lucius.domain.time import Instant

POLICIES_REMEMBERED_MAX = 1_000

_encode = msgspec.json.Encoder().encode


class StepSpecRecord(Struct, array_like=True, frozen=True):
    step_id: str
    step_type: str
    service: str
    policy_id: str
    """A row of `policies`: the same few policies serve most jobs."""
    workspace: str
    """The step's `workspace_ref` without the part that all steps of the job share."""
    payload: Raw
    created_at: Instant | None = None
    """None: as the job."""


class SpecDocument(Struct, array_like=True, frozen=True):
    created_at: Instant
    deadline_at: Instant
    schema_version: str
    protocol_id: str | None
    """None: the request type."""
    protocol_version: int
    rules_version: int
    decision_source: DecisionSource
    decision_reason: str
    routing_key_used: str
    lane: int
    input_ref: Raw
    output_ref: Raw
    idempotency_key: str | None
    idempotency_hash: str
    workspaces: str
    """What the steps' `workspace_ref` begin with."""
    steps: tuple[StepSpecRecord, ...]
    correlation_id: str | None = None
    """None: the job's id."""
    doc_id: str | None = None
    traceparent: str | None = None
    not_before: Instant | None = None
    redrive_of: str | None = None
    callback_urls: dict[str, str] | None = None
    searchable: tuple[SearchValue, ...] | None = None


decode_spec = msgspec.json.Decoder(SpecDocument).decode
decode_policy = msgspec.json.Decoder(Policy).decode


def policy_text(policy: Policy) -> str:
    return _encode(policy).decode()


def policy_id(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


class PolicyIds:
    """The ids of policies that were met lately, to hash each once."""

    def __init__(self) -> None:
        self._ids: dict[Policy, str] = {}

    def id_of(self, policy: Policy) -> str:
        known = self._ids.get(policy)
        if known is None:
            if len(self._ids) >= POLICIES_REMEMBERED_MAX:
                self._ids.clear()
            known = self._ids[policy] = policy_id(policy_text(policy))
        return known


_policy_ids = PolicyIds()
id_of_policy = _policy_ids.id_of


def encode_spec(job: Job) -> str:
    """In the order of `SpecDocument`."""
    spec = job.spec
    routing = spec.routing
    workspaces = shared_beginning([step.spec.workspace_ref for step in job.steps])
    values: list[Any] = [
        spec.created_at,
        spec.deadline_at,
        spec.schema_version,
        None if spec.protocol_id == spec.request_type else spec.protocol_id,
        spec.protocol_version,
        spec.rules_version,
        routing.decision_source,
        routing.decision_reason,
        routing.routing_key_used,
        routing.lane,
        spec.input_ref,
        spec.output_ref,
        spec.idempotency_key,
        spec.idempotency_hash,
        workspaces,
        [_step_values(step.spec, step.created_at, spec.created_at, len(workspaces)) for step in job.steps],
        None if spec.correlation_id == spec.job_id else spec.correlation_id,
        spec.doc_id,
        spec.traceparent,
        spec.not_before,
        spec.redrive_of,
        spec.callback_urls or None,
        spec.searchable or None,
    ]
    while values[-1] is None:
        values.pop()
    return _encode(values).decode()


def _step_values(step: StepSpec, created_at: Instant, job_created_at: Instant, shared: int) -> tuple[Any, ...]:
    """The fields of `StepSpecRecord`."""
    workspace = step.workspace_ref[shared:]
    values = (step.step_id, step.step_type, step.service, id_of_policy(step.policy), workspace, step.payload)
    return values if created_at == job_created_at else (*values, created_at)


def shared_beginning(refs: list[str]) -> str:
    """The folder that all of these are in, with its slash; empty if they are not in one."""
    folder = refs[0][: refs[0].rfind("/") + 1]
    return folder if all(ref.startswith(folder) for ref in refs) else ""


def read_spec(document: SpecDocument, job_id: str, tenant_id: str, request_type: str, mode: str) -> JobSpec:
    """With what has columns of its own."""
    return JobSpec(
        job_id=job_id,
        tenant_id=tenant_id,
        request_type=request_type,
        schema_version=document.schema_version,
        routing=read_routing(document, mode),
        input_ref=document.input_ref,
        output_ref=document.output_ref,
        idempotency_key=document.idempotency_key,
        idempotency_hash=document.idempotency_hash,
        doc_id=document.doc_id,
        callback_urls=document.callback_urls or {},
        traceparent=document.traceparent,
        not_before=document.not_before,
        protocol_id=request_type if document.protocol_id is None else document.protocol_id,
        protocol_version=document.protocol_version,
        correlation_id=job_id if document.correlation_id is None else document.correlation_id,
        deadline_at=document.deadline_at,
        created_at=document.created_at,
        redrive_of=document.redrive_of,
        rules_version=document.rules_version,
        searchable=document.searchable or (),
    )


def read_routing(document: SpecDocument, mode: str) -> Routing:
    return Routing(
        resolved_mode=Mode(mode),
        decision_source=document.decision_source,
        decision_reason=document.decision_reason,
        routing_key_used=document.routing_key_used,
        lane=document.lane,
    )
