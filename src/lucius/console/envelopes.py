"""The command of a job, as it could be sent again."""

from __future__ import annotations

from typing import Any

import msgspec

from lucius.domain.job import Job
from lucius.domain.protocol import Protocol


def envelope_of(job: Job, protocol: Protocol | None) -> dict[str, Any]:
    """Without its idempotency key and start time: sent again, it is another command. The payload is put together from
    the parts that the steps were given."""
    spec = job.spec
    envelope: dict[str, Any] = {
        "tenant_id": spec.tenant_id,
        "request_type": spec.request_type,
        "input_ref": msgspec.json.decode(spec.input_ref),
        "output_ref": msgspec.json.decode(spec.output_ref),
        "payload": _payload(job, protocol),
        "schema_version": spec.schema_version,
        "idempotency_key": f"like-{spec.job_id}",
    }
    if spec.doc_id is not None:
        envelope["doc_id"] = spec.doc_id
    if spec.routing.requested_mode is not None:
        envelope["mode"] = spec.routing.requested_mode
    return envelope


def _payload(job: Job, protocol: Protocol | None) -> Any:
    pointers = {step.id: step.payload_pointer for step in protocol.steps} if protocol else {}
    payload: dict[str, Any] = {}
    for step in job.steps:
        part = msgspec.json.decode(step.spec.payload)
        tokens = [token for token in pointers.get(step.spec.step_id, "").split("/") if token]
        if not tokens:
            if isinstance(part, dict):
                payload |= part
            continue
        if part is None:
            continue
        place = payload
        for token in tokens[:-1]:
            place = place.setdefault(token.replace("~1", "/").replace("~0", "~"), {})
        place[tokens[-1].replace("~1", "/").replace("~0", "~")] = part
    return payload
