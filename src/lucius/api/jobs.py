"""Jobs: list, show, follow, operate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from starlette.responses import Response

from lucius.api import answers
from lucius.api.endpoint import Call, answer
from lucius.api.holding import HeldStream, hold, should_stop_waiting
from lucius.api.job_views import show_event, show_job, show_step
from lucius.api.lists import listing, shown
from lucius.api.requests import JOB_ID, REASON_CHARS_MAX, SMALL_BODY_BYTES_MAX, Parameters, Reason, read_typed
from lucius.domain.errors import CallerError, InfrastructureError, LuciusError
from lucius.domain.fields import FieldFault, read_idempotency_key
from lucius.domain.inputs import CancelAsked, Operation, PauseAsked, ResumeAsked
from lucius.domain.job import Job, JobStatus
from lucius.domain.routing import normal_form
from lucius.ports.ledger import JobFilter
from lucius.usecases.fair_slots import NoSlot
from lucius.usecases.operate import Done
from lucius.usecases.waits import WaitKind

PAGE_SIZE = 50
EVENTS_PAGE_SIZE = 200
SSE_KEEPALIVE_SECONDS = 15.0
SSE_SECONDS_MAX = 3_600.0
KEY_HEADER = "Idempotency-Key"

_encode = msgspec.json.Encoder().encode


def _job_id(call: Call) -> str:
    job_id: str = call.request.path_params["job_id"]
    if not JOB_ID.fullmatch(job_id):
        raise CallerError.of("JOB_NOT_FOUND", "there is no such job")
    return job_id


@listing
async def list_jobs(call: Call) -> Response:
    parameters = Parameters(call.request)
    tenant = parameters.text("tenant_id", 128)
    status = parameters.choice("status", JobStatus)
    request_type = parameters.text("request_type")
    created_from, created_to = parameters.moment("created_from"), parameters.moment("created_to")
    error_signature = parameters.text("error_signature", 1_000)
    limit = parameters.whole("limit", PAGE_SIZE, 1, call.context.settings.page_size_max)
    cursor = parameters.job_cursor()
    parameters.close()
    visible = call.caller.tenants
    tenants = None if visible is None else tuple(sorted(visible))
    if tenant is not None:
        tenant_norm = normal_form(tenant)
        tenants = (tenant_norm,) if call.caller.sees(tenant_norm) else ()
    filter_ = JobFilter(
        tenants=tenants, status=status, request_type=request_type, created_from=created_from, created_to=created_to,
        error_signature=error_signature,
    )  # fmt: skip
    jobs, after_id = await call.context.queries.jobs(filter_, limit, cursor)
    return answer(answers.JobList(items=await shown(call, jobs), next=after_id))


async def get_job(call: Call) -> Response:
    parameters = Parameters(call.request)
    wait_seconds = parameters.number("wait_seconds", 0.0, 0.0, call.context.settings.wait_seconds_max)
    parameters.close()
    job_id, queries = _job_id(call), call.context.queries
    if wait_seconds:
        with hold(call, WaitKind.WAIT):
            job = await queries.job_when_ended(job_id, call.sees, wait_seconds, partial(should_stop_waiting, call))
    else:
        job = await queries.job(job_id, call.caller.sees)
    return answer(show_job(job, call.context.sightings.absent_service))


async def get_steps(call: Call) -> Response:
    Parameters(call.request).close()
    job = await call.context.queries.job(_job_id(call), call.caller.sees)
    attempts = await call.context.queries.attempts(job.job_id)
    steps = [show_step(job, step, attempts.get(step.spec.step_id, [])) for step in job.steps]
    return answer(answers.Steps(steps=steps))


async def get_events(call: Call) -> Response:
    parameters = Parameters(call.request)
    limit = parameters.whole("limit", EVENTS_PAGE_SIZE, 1, call.context.settings.page_size_max)
    after_seq = parameters.whole("cursor", 0, 0, 1 << 53)
    parameters.close()
    if "text/event-stream" in call.request.headers.get("accept", ""):
        last = call.request.headers.get("last-event-id", "")
        seen = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else after_seq
        return await _event_stream(call, seen)
    job = await call.context.queries.job(_job_id(call), call.caller.sees)
    events, next_seq = await call.context.queries.events(job.job_id, after_seq, limit)
    return answer(
        {"events": [show_event(event) for event in events], "next": str(next_seq) if next_seq is not None else None}
    )


async def _event_stream(call: Call, seen: int) -> Response:
    slot = hold(call, WaitKind.STREAM)
    try:
        async with _stream_slot(call):
            job = await call.context.queries.job(_job_id(call), call.caller.sees)
    except BaseException:
        slot.release()
        raise
    return HeldStream(slot, _follow(call, job, seen), "text/event-stream", {"Cache-Control": "no-store"})


@asynccontextmanager
async def _stream_slot(call: Call) -> AsyncIterator[None]:
    """A turn to read the ledger: a caller's many streams do not take its connections from the other callers."""
    try:
        async with call.context.stream_slots.slot(call.caller.name):
            yield
    except NoSlot as error:
        raise InfrastructureError.unavailable(f"too many event streams are being read: {error}") from None


async def _follow(call: Call, job: Job, seen: int) -> AsyncGenerator[bytes, None]:
    """Events as they occur, until the job has ended and its last event is sent, or the caller may no longer see it."""
    context, loop = call.context, asyncio.get_running_loop()
    end = loop.time() + SSE_SECONDS_MAX
    quiet_since = loop.time()
    is_stale = False
    with context.queries.following():
        while loop.time() < end:
            try:
                await call.admit_again()
                async with _stream_slot(call):
                    if is_stale or not call.sees(job.spec.tenant_id):
                        job, is_stale = await context.queries.job(job.job_id, call.sees), False
                    events, _ = await context.queries.events(job.job_id, seen, EVENTS_PAGE_SIZE)
            except LuciusError as error:
                yield f"event: problem\ndata: {error.code}\n\n".encode()
                return
            for event in events:
                seen, quiet_since = event.seq, loop.time()
                yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), _encode(show_event(event)))
            if events:
                is_stale = True
                continue
            if job.is_terminal or context.stopping.is_set():
                yield b'event: end\ndata: {"status":"%s"}\n\n' % job.status.value.encode()
                return
            if loop.time() - quiet_since > SSE_KEEPALIVE_SECONDS:
                quiet_since, is_stale = loop.time(), True
                yield b": still here\n\n"
            await context.engine.wait_for_change(job.job_id, context.queries.look_seconds)


async def _operate(call: Call, name: str) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, Reason, may_be_empty=True)
    by, key = call.caller.name, read_key(call)
    operation: Operation
    match name:
        case "cancel":
            reason = body.reason.replace("\x00", "")[:REASON_CHARS_MAX] if body.reason else None
            operation = CancelAsked(by, reason, key)
        case "pause":
            operation = PauseAsked(by, key)
        case _:
            operation = ResumeAsked(by, key)
    done = await call.context.operations.apply(_job_id(call), operation, call.caller.sees)
    return _done(done, key, {})


cancel = partial(_operate, name="cancel")
pause = partial(_operate, name="pause")
resume = partial(_operate, name="resume")


async def redrive(call: Call) -> Response:
    await read_typed(call.request, SMALL_BODY_BYTES_MAX, Reason, may_be_empty=True)
    job_id, key = _job_id(call), read_key(call)
    done = await call.context.operations.redrive(job_id, call.caller.sees, key)
    return _done(done, key, {"Location": f"/v1/jobs/{done.job_id}"}, redrive_of=job_id)


def read_key(call: Call) -> str | None:
    value = call.request.headers.get(KEY_HEADER)
    try:
        return None if value is None else read_idempotency_key(value)
    except FieldFault as fault:
        raise CallerError.of("ENVELOPE_INVALID", f"the header {KEY_HEADER}: {fault}") from fault


def _done(done: Done, key: str | None, headers: dict[str, str], **more: object) -> Response:
    if key is not None:
        more["replayed"] = done.replayed
    if done.replayed:
        headers["Idempotency-Replayed"] = "true"
    return answer({"jobId": done.job_id, "status": done.status, **more}, 202, headers)
