"""Commands: submit, validate, batch."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Raw, Struct
from starlette.responses import Response

from lucius.api.answers import CommandBatchResults, JobTaken, RefusedCommand, Validation
from lucius.api.batch_items import read_each, split_resting
from lucius.api.endpoint import Call, answer
from lucius.api.problems import describe
from lucius.api.requests import decode_typed, find_header, read_body, read_document
from lucius.domain.errors import CallerError, LuciusError
from lucius.domain.fields import is_traceparent
from lucius.domain.job import Job, JobStatus
from lucius.domain.json_types import ref, stated
from lucius.domain.strict_json import parse
from lucius.domain.time import iso
from lucius.settings import Settings
from lucius.usecases.accept import Taken

BATCH_BYTES_MAX = 8_388_608


class CommandBatch(Struct, frozen=True, forbid_unknown_fields=True):
    commands: Annotated[Raw, stated(type="array", items=ref("Envelope"), minItems=1)]


async def submit(call: Call) -> Response:
    settings = call.context.settings
    document = await read_document(call.request, settings.body_bytes_max, settings.body_depth_max)
    if isinstance(document, dict) and (
        call.context.traces.enabled or find_header(call.request, b"traceparent") is not None
    ):
        taken = await _submit_traced(call, document)
    else:
        taken = await call.context.acceptance.submit(document, call.caller.sees)
    headers = {"Location": f"/v1/jobs/{taken.job_id}"}
    if taken.replayed:
        headers["Idempotency-Replayed"] = "true"
    return answer(_taken(taken), 202, headers)


async def _submit_traced(call: Call, document: dict[str, Any]) -> Taken:
    """Join the caller's trace: the one in the envelope, or the one in the request's header."""
    header = call.request.headers.get("traceparent")
    if "traceparent" not in document and header is not None and is_traceparent(header):
        document["traceparent"] = header
    parent = document.get("traceparent")
    with call.context.traces.span("command.submit", parent if isinstance(parent, str) else None) as span:
        if span.traceparent is not None and (parent is None or is_traceparent(parent)):
            document["traceparent"] = span.traceparent
        taken = await call.context.acceptance.submit(document, call.caller.sees)
        span.set("job_id", taken.job_id)
        return taken


async def validate(call: Call) -> Response:
    settings = call.context.settings
    document = await read_document(call.request, settings.body_bytes_max, settings.body_depth_max)
    shown: Validation = {"valid": False, "protocol_id": None, "steps": [], "lane": None, "mode": None, "errors": []}
    try:
        command = await call.context.acceptance.validate(document, call.caller.sees)
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
    settings = call.context.settings
    body = await read_body(call.request, BATCH_BYTES_MAX)
    array = _array(body, settings)
    items = await split_resting(array, "commands", settings.batch_commands_max)
    if not _is_only_value(body, array):
        raise CallerError.of("MALFORMED_JSON", "duplicate key 'commands'")
    documents = await read_each(
        items, lambda item: parse(bytes(item), settings.body_depth_max), settings.body_bytes_max
    )
    readable = [document for document in documents if not isinstance(document, LuciusError)]
    taken = iter(await call.context.acceptance.submit_many(readable, call.caller.sees))
    results = [_result(document if isinstance(document, LuciusError) else next(taken)) for document in documents]
    return answer(CommandBatchResults(results=results))


def _array(body: bytes, settings: Settings) -> Raw:
    try:
        return decode_typed(body, CommandBatch).commands
    except CallerError:
        if len(body) <= settings.body_bytes_max:
            parse(body, settings.body_depth_max + 2)  # Invalid JSON is reported as such before its shape.
        raise


def _is_only_value(body: bytes, array: Raw) -> bool:
    """Whether the array is the only value in the body's object: one colon before it, only a brace after it."""
    start = body.index(b"[")
    return body.count(b":", 0, start) == 1 and body[start + len(array) :].strip() == b"}"


def _result(outcome: Taken | LuciusError) -> JobTaken | RefusedCommand:
    return describe(outcome) if isinstance(outcome, LuciusError) else _taken(outcome)


def _taken(taken: Taken) -> JobTaken:
    shown: JobTaken = {"jobId": taken.job_id, "status": taken.status, "replayed": taken.replayed}
    job = taken.ended
    if job is not None and job.completed_at is not None:
        shown["completed_at"], shown["error"], shown["detail"] = iso(job.completed_at), job.error, _old_job(job)
    return shown


def _old_job(job: Job) -> str:
    ended = f"it ended {job.status.value} at {iso(job.completed_at or 0)}"
    if job.error is not None:
        ended += f" with {job.error.code}: {job.error.message}"
    redrive = "" if job.status is JobStatus.SUCCEEDED else "; to continue where it ended, redrive it"
    again = "To run the same command again, send it with another idempotency_key"
    return f"This is not a new job: the same command was accepted before, and {ended}. {again}{redrive}."
