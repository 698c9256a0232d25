"""The command that a job was made of, so that it can be submitted again."""

from __future__ import annotations

from typing import Any

import msgspec

from lucius.domain.errors import CallerError
from lucius.domain.job import Job
from lucius.domain.payload import pointer_tokens
from lucius.domain.protocol import Protocol
from lucius.ports.registry import RegistrySnapshot


def exact_command_of(job: Job, registry: RegistrySnapshot) -> dict[str, Any]:
    """Raises `CallerError` (CONFLICT) if the registry no longer tells where the parts of its payload were."""
    spec = job.spec
    protocol = registry.protocols.get(spec.protocol_id)
    if protocol is None or protocol.version != spec.protocol_version:
        detail = (
            f"the job was accepted under version {spec.protocol_version} of protocol {spec.protocol_id}, and the"
            " registry has another one: its command is no longer known"
        )
        raise CallerError.of("CONFLICT", detail)
    return command_of(job, protocol)


def command_of(job: Job, protocol: Protocol | None) -> dict[str, Any]:
    """Without what makes it one job and no other: idempotency key, correlation id, traceparent, `not_before`.

    A job keeps its payload in the parts that its steps got; `protocol` says where they were.
    """
    spec = job.spec
    pointers = {step.id: step.payload_pointer for step in protocol.steps} if protocol else {}
    payload: dict[str, Any] = {}
    for step in job.steps:
        part = msgspec.json.decode(step.spec.payload)
        _put(payload, pointer_tokens(pointers.get(step.spec.step_id, "")), part)
    optional = {
        "mode": spec.routing.requested_mode, "doc_id": spec.doc_id, "callback_urls": spec.callback_urls or None,
    }  # fmt: skip
    return {
        "tenant_id": spec.tenant_id,
        "request_type": spec.request_type,
        "input_ref": msgspec.json.decode(spec.input_ref),
        "output_ref": msgspec.json.decode(spec.output_ref),
        "payload": payload,
        "schema_version": spec.schema_version,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _put(payload: dict[str, Any], tokens: tuple[str, ...], part: Any) -> None:
    """A part that is not there is the same as an empty one."""
    if not tokens:
        payload.update(part if isinstance(part, dict) else {})
    elif part:
        for token in tokens[:-1]:
            payload = payload.setdefault(token, {})
        payload[tokens[-1]] = part
