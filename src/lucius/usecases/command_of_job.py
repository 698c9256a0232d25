"""The command that a job was made of, so that it can be submitted again."""

from __future__ import annotations

from typing import Any

import msgspec

from lucius.domain.errors import CallerError
from lucius.domain.job import Job
from lucius.domain.payload import pointer_tokens
from lucius.ports.registry import RegistrySnapshot


def command_of(job: Job, registry: RegistrySnapshot) -> dict[str, Any]:
    """Without what makes it one job and no other: idempotency key, correlation id, traceparent, `not_before`.

    A job keeps its payload in the parts that its steps got. Where they were is in its protocol, in the same version.
    """
    spec = job.spec
    protocol = registry.protocols.get(spec.protocol_id)
    if protocol is None or protocol.version != spec.protocol_version:
        detail = (
            f"the job was accepted under version {spec.protocol_version} of protocol {spec.protocol_id}, and the"
            " registry has another one: its command is no longer known"
        )
        raise CallerError.of("CONFLICT", detail)
    payload: dict[str, Any] = {}
    for step, of_protocol in zip(job.steps, protocol.steps, strict=True):
        _put(payload, pointer_tokens(of_protocol.payload_pointer), msgspec.json.decode(step.spec.payload))
    optional = {
        "mode": spec.routing.requested_mode, "doc_id": spec.doc_id, "callback_urls": spec.callback_urls or None,
    }  # fmt: skip
    return {
        "schema_version": spec.schema_version,
        "tenant_id": spec.tenant_id,
        "request_type": spec.request_type,
        "input_ref": spec.input_ref,
        "output_ref": spec.output_ref,
        "payload": payload,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _put(payload: dict[str, Any], tokens: tuple[str, ...], part: Any) -> None:
    """A part that is not there is the same as an empty one."""
    if not tokens:
        payload.update(part)
    elif part:
        for token in tokens[:-1]:
            payload = payload.setdefault(token, {})
        payload[tokens[-1]] = part
