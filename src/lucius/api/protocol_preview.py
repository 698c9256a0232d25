"""The impact preview of a protocol over HTTP."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from lucius.api import admin_answers
from lucius.api.endpoint import Call, answer
from lucius.api.lists import listing
from lucius.api.operation import BODY_ERRORS, LIST_ERRORS, Operation
from lucius.api.requests import read_typed
from lucius.api.runbook_requests import body_bytes_max
from lucius.domain.errors import CallerError, Fault
from lucius.domain.json_types import stated
from lucius.domain.protocol import Protocol
from lucius.domain.time import iso
from lucius.registries.documents import DocumentFault, read_protocol
from lucius.registries.protocol_text import protocol_diff
from lucius.usecases.preview_protocol import PAYLOADS_DEFAULT, PAYLOADS_MAX, Refusal, preview_protocol
from lucius.yaml_text import BYTES_MAX, YamlFault, read_yaml


class ProtocolDraft(Struct, frozen=True, forbid_unknown_fields=True):
    yaml: Annotated[str, stated(minLength=1)]
    payloads: Annotated[int, Meta(ge=0, le=PAYLOADS_MAX, description="How many of the newest payloads to try")] = (
        PAYLOADS_DEFAULT
    )


@listing
async def preview(call: Call) -> Response:
    body = await read_typed(call.request, body_bytes_max(BYTES_MAX), ProtocolDraft)
    protocol = await asyncio.to_thread(_read, body.yaml)
    context = call.context
    found = await preview_protocol(context.ledger, context.registry.snapshot(), protocol, body.payloads)
    return answer(
        admin_answers.ProtocolPreview(
            id=protocol.id,
            version=protocol.version,
            current_version=found.current.version if found.current else None,
            problems=list(found.problems),
            diff=protocol_diff(found.current, protocol),
            in_flight=[{"version": version, "jobs": jobs} for version, jobs in found.in_flight.items()],
            in_flight_cut_off=found.is_cut_off,
            payloads=found.payload_count,
            refused=found.refusal_count,
            refusals=[_show_refusal(one) for one in found.refusals],
            dropped_request_types=list(found.dropped_request_types),
            dropped_services=list(found.dropped_services),
        )
    )


def _read(text: str) -> Protocol:
    try:
        document = read_yaml(text.encode())
    except YamlFault as fault:
        raise CallerError.of("PROTOCOL_INVALID", f"line {fault.line}: {fault.detail}") from fault
    try:
        return read_protocol(document.value)
    except DocumentFault as error:
        faults = [
            Fault("PROTOCOL_INVALID", pointer, f"line {document.line_of(pointer)}: {detail}")
            for pointer, detail in error.faults
        ]
        raise CallerError(faults) from error


def _show_refusal(refusal: Refusal) -> admin_answers.PayloadRefusal:
    spec = refusal.job.spec
    return {
        "jobId": refusal.job.job_id,
        "tenant_id": spec.tenant_id,
        "request_type": spec.request_type,
        "protocol_version": spec.protocol_version,
        "created_at": iso(spec.created_at),
        "faults": [{"code": one.code, "pointer": one.pointer, "detail": one.detail} for one in refusal.faults],
        "fault_count": refusal.fault_count,
    }


PREVIEW_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST", path="/v1/admin/protocols:preview", name="previewProtocol", handler=preview, tag="operators",
        summary="What a protocol would change: jobs in flight by version, and recent payloads that it would refuse",
        role="operate", on_all_tenants=True, body="ProtocolDraft", answer="ProtocolPreview",
        errors=(*BODY_ERRORS, *LIST_ERRORS, "PROTOCOL_INVALID"),
    ),
)  # fmt: skip
