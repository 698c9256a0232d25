"""Jobs: list, look, follow, operate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import msgspec
from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from lucius.api.endpoint import Call, answer
from lucius.api.requests import JOB_ID, Parameters, read_typed
from lucius.domain.errors import CallerError, LuciusError
from lucius.domain.inputs import CancelAsked, Operation, PauseAsked, ResumeAsked
from lucius.domain.job import Job, JobStatus
from lucius.domain.routing import normal_form
from lucius.ports.ledger import JobFilter
from lucius.usecases.query import show_event, show_job, show_step

PAGE_SIZE = 50
EVENTS_PAGE_SIZE = 200
SSE_KEEPALIVE_SECONDS = 15.0
SSE_SECONDS_MAX = 3_600.0
REASON_CHARS_MAX = 500
SMALL_BODY_BYTES_MAX = 4_096

_encode = msgspec.json.Encoder().encode


def _job_id(call: Call) -> str:
    job_id: str = call.request.path_params["job_id"]
    if not JOB_ID.fullmatch(job_id):
        raise CallerError.of("JOB_NOT_FOUND", "there is no such job")
    return job_id


async def list_jobs(call: Call) -> Response:
    parameters = Parameters(call.request)
    tenant = parameters.text("tenant_id", 128)
    status = parameters.choice("status", JobStatus)
    request_type = parameters.text("request_type")
    created_from, created_to = parameters.moment("created_from"), parameters.moment("created_to")
    limit = parameters.whole("limit", PAGE_SIZE, 1, call.desk.settings.page_size_max)
    cursor = parameters.job_cursor()
    parameters.close()
    own = call.caller.tenants
    tenants = None if own is None else tuple(sorted(own))
    if tenant is not None:
        wanted = normal_form(tenant)
        tenants = (wanted,) if call.caller.sees(wanted) else ()
    filter_ = JobFilter(
        tenants=tenants, status=status, request_type=request_type, created_from=created_from, created_to=created_to
    )
    jobs, after_id = await call.desk.queries.jobs(filter_, limit, cursor)
    return answer({"items": [show_job(job) for job in jobs], "next": after_id})


async def get_job(call: Call) -> Response:
    parameters = Parameters(call.request)
    wait_seconds = parameters.number("wait_seconds", 0.0, 0.0, call.desk.settings.wait_seconds_max)
    parameters.close()
    job_id, queries = _job_id(call), call.desk.queries
    if wait_seconds:
        stopping = call.desk.stopping.is_set
        job = await queries.job_when_ended(job_id, call.caller.sees, wait_seconds, stopping)
    else:
        job = await queries.job(job_id, call.caller.sees)
    return answer(show_job(job))


async def get_steps(call: Call) -> Response:
    Parameters(call.request).close()
    job = await call.desk.queries.job(_job_id(call), call.caller.sees)
    attempts = await call.desk.queries.attempts(job.job_id)
    return answer({"steps": [show_step(job, step, attempts.get(step.spec.step_id, [])) for step in job.steps]})


async def get_events(call: Call) -> Response:
    parameters = Parameters(call.request)
    limit = parameters.whole("limit", EVENTS_PAGE_SIZE, 1, call.desk.settings.page_size_max)
    after_seq = parameters.whole("cursor", 0, 0, 1 << 53)
    parameters.close()
    job = await call.desk.queries.job(_job_id(call), call.caller.sees)
    if "text/event-stream" in call.request.headers.get("accept", ""):
        last = call.request.headers.get("last-event-id", "")
        seen = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else after_seq
        return StreamingResponse(
            _follow(call, job, seen), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )
    events, next_seq = await call.desk.queries.events(job.job_id, after_seq, limit)
    return answer(
        {"events": [show_event(event) for event in events], "next": str(next_seq) if next_seq is not None else None}
    )


async def _follow(call: Call, job: Job, seen: int) -> AsyncIterator[bytes]:
    """Events as they come, until the job has ended and its last one was sent."""
    desk, loop = call.desk, asyncio.get_running_loop()
    end = loop.time() + SSE_SECONDS_MAX
    quiet_since = loop.time()
    while loop.time() < end:
        try:
            job = await desk.queries.job(job.job_id, call.caller.sees)
            events, _ = await desk.queries.events(job.job_id, seen, EVENTS_PAGE_SIZE)
        except LuciusError as error:
            yield f"event: problem\ndata: {error.code}\n\n".encode()
            return
        for event in events:
            seen, quiet_since = event.seq, loop.time()
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), _encode(show_event(event)))
        if events:
            continue
        if job.is_terminal or desk.stopping.is_set():
            yield b'event: end\ndata: {"status":"%s"}\n\n' % job.status.value.encode()
            return
        if loop.time() - quiet_since > SSE_KEEPALIVE_SECONDS:
            quiet_since = loop.time()
            yield b": still here\n\n"
        await desk.engine.wait_for_change(job.job_id, desk.engine.changes_elsewhere_seconds)


class _Reason(Struct, frozen=True, forbid_unknown_fields=True):
    reason: str | None = None


async def _operate(call: Call, name: str) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, _Reason, may_be_empty=True)
    by = call.caller.name
    operation: Operation
    match name:
        case "cancel":
            reason = body.reason.replace("\x00", "")[:REASON_CHARS_MAX] if body.reason else None
            operation = CancelAsked(by, reason)
        case "pause":
            operation = PauseAsked(by)
        case _:
            operation = ResumeAsked(by)
    job_id = _job_id(call)
    told = await call.desk.operations.apply(job_id, operation, call.caller.sees)
    return answer({"jobId": job_id, "status": told.status}, 202)


cancel = partial(_operate, name="cancel")
pause = partial(_operate, name="pause")
resume = partial(_operate, name="resume")


async def redrive(call: Call) -> Response:
    await read_typed(call.request, SMALL_BODY_BYTES_MAX, _Reason, may_be_empty=True)
    job_id = _job_id(call)
    started = await call.desk.operations.redrive(job_id, call.caller.sees)
    headers = {"Location": f"/v1/jobs/{started.job_id}"}
    return answer({"jobId": started.job_id, "status": started.status, "redrive_of": job_id}, 202, headers)
