"""Commands: submit, validate, batch."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from lucius.api.endpoint import Call, answer
from lucius.api.problems import describe
from lucius.api.requests import read_document
from lucius.domain.errors import CallerError, LuciusError
from lucius.usecases.accept import Taken

BATCH_BYTES_MAX = 8_388_608


async def submit(call: Call) -> Response:
    settings = call.desk.settings
    document = await read_document(call.request, settings.body_bytes_max, settings.body_depth_max)
    with call.desk.tracing.submitting(document):
        taken = await call.desk.acceptance.submit(document, call.caller.sees)
    headers = {"Location": f"/v1/jobs/{taken.job_id}"}
    if taken.replayed:
        headers["Idempotency-Replayed"] = "true"
    return answer({"jobId": taken.job_id, "status": taken.status, "replayed": taken.replayed}, 202, headers)


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
    commands = document.get("commands") if isinstance(document, dict) else None
    if not isinstance(commands, list) or set(document) != {"commands"}:  # type: ignore[arg-type]
        raise CallerError.of("ENVELOPE_INVALID", 'the body must be {"commands": […]}')
    if not 1 <= len(commands) <= settings.batch_commands_max:
        detail = f"a batch has 1 to {settings.batch_commands_max} commands, not {len(commands)}"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/commands")
    results = await call.desk.acceptance.submit_many(commands, call.caller.sees)
    return answer({"results": [_result(one) for one in results]})


def _result(one: Taken | LuciusError) -> dict[str, Any]:
    if isinstance(one, LuciusError):
        return describe(one)
    return {"jobId": one.job_id, "status": one.status, "replayed": one.replayed}
