"""Commands: submit, validate, batch."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from lucius.api.endpoint import Call, answer
from lucius.api.problems import describe
from lucius.api.requests import read_document
from lucius.domain.errors import CallerError, LuciusError
from lucius.domain.fields import is_traceparent
from lucius.usecases.accept import Taken

BATCH_BYTES_MAX = 8_388_608

_encode = msgspec.json.Encoder().encode


async def submit(call: Call) -> Response:
    settings = call.desk.settings
    document = await read_document(call.request, settings.body_bytes_max, settings.body_depth_max)
    if isinstance(document, dict) and (call.desk.traces.enabled or "traceparent" in call.request.headers):
        taken = await _submit_traced(call, document)
    else:
        taken = await call.desk.acceptance.submit(document, call.caller.sees)
    headers = {"Location": f"/v1/jobs/{taken.job_id}"}
    if taken.replayed:
        headers["Idempotency-Replayed"] = "true"
    return answer({"jobId": taken.job_id, "status": taken.status, "replayed": taken.replayed}, 202, headers)


async def _submit_traced(call: Call, document: dict[str, Any]) -> Taken:
    """Join the caller's trace: the envelope's own, or the one that its request came with."""
    header = call.request.headers.get("traceparent")
    if "traceparent" not in document and header is not None and is_traceparent(header):
        document["traceparent"] = header
    parent = document.get("traceparent")
    with call.desk.traces.span("command.submit", parent if isinstance(parent, str) else None) as span:
        if span.traceparent is not None and (parent is None or is_traceparent(parent)):
            document["traceparent"] = span.traceparent
        taken = await call.desk.acceptance.submit(document, call.caller.sees)
        span.set("job_id", taken.job_id)
        return taken


async def validate(call: Call) -> Response:
    settings = call.desk.settings
    document = await read_document(call.request, settings.body_bytes_max, settings.body_depth_max)
    shown: dict[str, Any] = {"valid": False, "protocol_id": None, "steps": [], "lane": None, "mode": None, "errors": []}
    try:
        command = await call.desk.acceptance.validate(document, call.caller.sees)
    except CallerError as error:
        if error.code == "TENANT_FORBIDDEN":
            raise
        return answer({**shown, "errors": describe(error)["errors"]})
    shown |= {
        "valid": True,
        "protocol_id": command.protocol.id,
        "steps": [{"stepId": s.id, "step_type": s.type, "service": s.service} for s in command.protocol.steps],
        "lane": command.routing.lane,
        "mode": command.routing.resolved_mode,
    }
    return answer(shown)


async def batch(call: Call) -> Response:
    settings = call.desk.settings
    document = await read_document(call.request, BATCH_BYTES_MAX, settings.body_depth_max + 2)
    commands = document.get("commands") if isinstance(document, dict) and len(document) == 1 else None
    if not isinstance(commands, list):
        raise CallerError.of("ENVELOPE_INVALID", 'the body must be {"commands": […]}')
    if not 1 <= len(commands) <= settings.batch_commands_max:
        detail = f"a batch has 1 to {settings.batch_commands_max} commands, not {len(commands)}"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/commands")
    too_large = {place: _oversize(one, settings.body_bytes_max) for place, one in enumerate(commands)}
    fitting = [one for place, one in enumerate(commands) if too_large[place] is None]
    taken = iter(await call.desk.acceptance.submit_many(fitting, call.caller.sees))
    return answer({"results": [_result(too_large[place] or next(taken)) for place in range(len(commands))]})


def _oversize(command: object, bytes_max: int) -> LuciusError | None:
    """A command in a batch may be no larger than one that is sent alone."""
    size = len(_encode(command))
    if size <= bytes_max:
        return None
    return CallerError.of("BODY_TOO_LARGE", f"the command has {size} bytes, more than {bytes_max}")


def _result(one: Taken | LuciusError) -> dict[str, Any]:
    if isinstance(one, LuciusError):
        return describe(one)
    return {"jobId": one.job_id, "status": one.status, "replayed": one.replayed}
