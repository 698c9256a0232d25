"""Jobs: list, show, follow, operate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from lucius.api import answers
from lucius.api.endpoint import Call, answer
from lucius.api.figures import visible_tenants
from lucius.api.holding import HeldStream, hold, should_stop_waiting
from lucius.api.job_views import show_event, show_job, show_step
from lucius.api.lists import listing, shown
from lucius.api.requests import (
    JOB_ID,
    REASON_CHARS_MAX,
    SMALL_BODY_BYTES_MAX,
    Cancel,
    Parameters,
    Reason,
    Redrive,
    read_typed,
)
from lucius.domain.effects import Event
from lucius.domain.errors import CallerError, InfrastructureError, LuciusError
from lucius.domain.fields import (
    CORRELATION_ID_CHARS_MAX,
    IDEMPOTENCY_KEY_CHARS_MAX,
    FieldFault,
    read_idempotency_key,
)
from lucius.domain.inputs import CancelAsked, ForceCancelAsked, Operation, PauseAsked, ResumeAsked
from lucius.domain.job import Job, JobStatus
from lucius.domain.search import SearchValue, search_text
from lucius.domain.strict_json import parse
from lucius.domain.waiting import WAIT_CAUSES
from lucius.ports.audit import OPERATION_KEY
from lucius.ports.ledger import JobFilter
from lucius.usecases.command_of_job import exact_command_of
from lucius.usecases.fair_slots import NoSlot
from lucius.usecases.operate import Done
from lucius.usecases.shared_reads import Followed
from lucius.usecases.waits import WaitKind

PAGE_SIZE = 50
EVENTS_PAGE_SIZE = 200
SSE_KEEPALIVE_SECONDS = 15.0
SSE_SECONDS_MAX = 3_600.0
KEY_HEADER = "Idempotency-Key"
PAYLOAD_FILTER_CHARS_MAX = 1_000

_encode = msgspec.json.Encoder().encode


def read_job_id(call: Call) -> str:
    job_id: str = call.request.path_params["job_id"]
    if not JOB_ID.fullmatch(job_id):
        raise CallerError.of("JOB_NOT_FOUND", "there is no such job")
    return job_id


def read_job_filter(call: Call, parameters: Parameters) -> JobFilter:
    """Within the tenants that the caller sees."""
    tenant = parameters.text("tenant_id", 128)
    return JobFilter(
        tenants=visible_tenants(call, tenant),
        statuses=parameters.choices("status", JobStatus),
        job_id_prefix=parameters.id_prefix("job_id_prefix"),
        request_type=parameters.text("request_type"),
        created_from=parameters.moment("created_from"),
        created_to=parameters.moment("created_to"),
        error_signature=parameters.text("error_signature", 1_000),
        wait_cause=parameters.choice("waits_for", WAIT_CAUSES),
        correlation_id=parameters.text("correlation_id", CORRELATION_ID_CHARS_MAX),
        idempotency_key=parameters.text("idempotency_key", IDEMPOTENCY_KEY_CHARS_MAX),
        search=_read_search(call, parameters),
    )


def searchable_fields(call: Call) -> list[str]:
    """Of all protocols."""
    protocols = call.context.registry.snapshot().protocols.values()
    return sorted({field for protocol in protocols for step in protocol.steps for field in step.searchable})


def _read_search(call: Call, parameters: Parameters) -> SearchValue | None:
    """`field=value`, of a field that a protocol declares searchable."""
    text = parameters.text("payload", PAYLOAD_FILTER_CHARS_MAX)
    if text is None:
        return None
    field, sign, value = text.partition("=")
    if not field or not sign:
        detail = "query parameter payload must be field=value, such as payload=customer=4711"
        raise CallerError.of("ENVELOPE_INVALID", detail, "?payload")
    fields = searchable_fields(call)
    if field not in fields:
        declared = f"searchable are {', '.join(fields)}" if fields else "no protocol declares searchable fields"
        raise CallerError.of("ENVELOPE_INVALID", f"payloads cannot be searched by {field[:80]}: {declared}", "?payload")
    return SearchValue(field, search_text(value) or "")


@listing
async def list_jobs(call: Call) -> Response:
    parameters = Parameters(call.request)
    filter_ = read_job_filter(call, parameters)
    limit = parameters.whole("limit", PAGE_SIZE, 1, call.context.settings.page_size_max)
    cursor = parameters.job_cursor()
    parameters.close()
    jobs, after_id = await call.context.queries.jobs(filter_, limit, cursor)
    return answer(answers.JobList(items=await shown(call, jobs), next=after_id))


async def get_job(call: Call) -> Response:
    parameters = Parameters(call.request)
    wait_seconds = parameters.number("wait_seconds", 0.0, 0.0, call.context.settings.wait_seconds_max)
    parameters.close()
    job_id, queries = read_job_id(call), call.context.queries
    if wait_seconds:
        with hold(call, WaitKind.WAIT):
            job = await queries.job_when_ended(job_id, call.sees, wait_seconds, partial(should_stop_waiting, call))
    else:
        job = await queries.job(job_id, call.caller.sees)
    return answer(show_job(job, call.context.sightings.absent_service))


async def get_steps(call: Call) -> Response:
    Parameters(call.request).close()
    job = await call.context.queries.job(read_job_id(call), call.caller.sees)
    attempts = await call.context.queries.attempts(job.job_id)
    steps = [show_step(job, step, attempts.get(step.spec.step_id, [])) for step in job.steps]
    return answer(answers.Steps(steps=steps))


async def get_command(call: Call) -> Response:
    Parameters(call.request).close()
    job = await call.context.queries.job(read_job_id(call), call.caller.sees)
    return answer(exact_command_of(job, call.context.registry.snapshot()))


async def get_events(call: Call) -> Response:
    parameters = Parameters(call.request)
    limit = parameters.whole("limit", EVENTS_PAGE_SIZE, 1, call.context.settings.page_size_max)
    after_seq = parameters.whole("cursor", 0, 0, 1 << 53)
    parameters.close()
    if "text/event-stream" in call.request.headers.get("accept", ""):
        last = call.request.headers.get("last-event-id", "")
        seen = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else after_seq
        return await _event_stream(call, seen)
    job = await call.context.queries.job(read_job_id(call), call.caller.sees)
    events, next_seq = await call.context.queries.events(job.job_id, after_seq, limit)
    return answer(
        {"events": [show_event(event) for event in events], "next": str(next_seq) if next_seq is not None else None}
    )


async def _event_stream(call: Call, seen: int) -> Response:
    job_id = read_job_id(call)
    slot = hold(call, WaitKind.STREAM)
    try:
        with call.context.queries.following(job_id, call.caller.name) as followed:
            job = await _followed_job(call, followed, job_id, time.monotonic())
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


async def _followed_job(call: Call, followed: Followed, job_id: str, since: float) -> Job:
    """The job as it was read, by this stream or by another one of the same caller, after `since`."""

    async def read() -> Job:
        async with _stream_slot(call):
            return await call.context.queries.job(job_id, call.sees)

    job = await followed.read("job", job_id, since, read)
    if not call.sees(job.spec.tenant_id):
        raise CallerError.of("JOB_NOT_FOUND", "there is no such job")
    return job


async def _followed_events(call: Call, followed: Followed, job_id: str, seen: int, since: float) -> list[Event]:
    async def read() -> list[Event]:
        async with _stream_slot(call):
            return (await call.context.queries.events(job_id, seen, EVENTS_PAGE_SIZE))[0]

    return await followed.read("events", seen, since, read)


async def _follow(call: Call, job: Job, seen: int) -> AsyncGenerator[bytes, None]:
    """Events as they occur, until the job has ended and its last event is sent, or the caller may no longer see it."""
    context, loop = call.context, asyncio.get_running_loop()
    end = loop.time() + SSE_SECONDS_MAX
    quiet_since = loop.time()
    is_stale = False
    with context.queries.following(job.job_id, call.caller.name) as followed:
        while loop.time() < end:
            # What changes from here on ends the wait below, so what was read after this is not out of date.
            change = context.engine.wait_for_change(job.job_id, context.queries.look_seconds(job.job_id))
            since = time.monotonic()
            try:
                await call.admit_again()
                if is_stale or not call.sees(job.spec.tenant_id):
                    job, is_stale = await _followed_job(call, followed, job.job_id, since), False
                    since = time.monotonic()  # Events of a job that had ended then must not have been read before.
                events = await _followed_events(call, followed, job.job_id, seen, since)
                for event in events:
                    seen, quiet_since = event.seq, loop.time()
                    yield _line(event)
                if events:
                    is_stale = True
                    continue
                if job.is_terminal or context.stopping.is_set():
                    yield b'event: end\ndata: {"status":"%s"}\n\n' % job.status.value.encode()
                    return
                if loop.time() - quiet_since > SSE_KEEPALIVE_SECONDS:
                    quiet_since, is_stale = loop.time(), True
                    yield b": still here\n\n"
                await change
            except LuciusError as error:
                yield f"event: problem\ndata: {error.code}\n\n".encode()
                return
            finally:
                change.cancel()


def _line(event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), _encode(show_event(event)))


async def cancel(call: Call) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, Cancel, may_be_empty=True)
    by, key, reason = call.caller.name, read_key(call), _reason_in(body.reason)
    if not body.force:
        return await _operate(call, CancelAsked(by, reason, key))
    if not reason:
        detail = "to force a cancel, say why: the reason is kept in the audit trail"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/reason")
    return await _operate(call, ForceCancelAsked(by, reason, key))


async def pause(call: Call) -> Response:
    reason = await _read_reason(call)
    return await _operate(call, PauseAsked(call.caller.name, read_key(call), reason))


async def resume(call: Call) -> Response:
    reason = await _read_reason(call)
    return await _operate(call, ResumeAsked(call.caller.name, read_key(call), reason))


async def _read_reason(call: Call) -> str | None:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, Reason, may_be_empty=True)
    return _reason_in(body.reason)


def _reason_in(text: str | None) -> str | None:
    return text.replace("\x00", "").strip()[:REASON_CHARS_MAX] or None if text else None


async def _operate(call: Call, operation: Operation) -> Response:
    done = await call.context.operations.apply(read_job_id(call), operation, call.caller.sees)
    return _done(done, operation.key, {})


async def redrive(call: Call) -> Response:
    settings, operations, caller = call.context.settings, call.context.operations, call.caller
    body = await read_typed(call.request, settings.body_bytes_max, Redrive, may_be_empty=True)
    job_id, key, reason = read_job_id(call), read_key(call), _reason_in(body.reason)
    instead = None
    if body.payload is not UNSET:
        if not caller.may("submit"):
            detail = "a redrive with another payload is a new command: it needs the role submit too"
            raise CallerError.of("FORBIDDEN", detail, "/payload")
        payload = parse(bytes(body.payload), settings.body_depth_max - 1)
        job = await call.context.queries.job(job_id, caller.sees)
        instead = await call.context.acceptance.with_payload(job, payload, caller.sees)
    done = await operations.redrive(job_id, caller.sees, key, by=caller.name, reason=reason, instead=instead)
    return _done(done, key, {"Location": f"/v1/jobs/{done.job_id}"}, redrive_of=job_id)


def read_key(call: Call) -> str | None:
    value = call.request.headers.get(KEY_HEADER)
    if value is not None and value.startswith(OPERATION_KEY):
        raise CallerError.of("ENVELOPE_INVALID", f"the header {KEY_HEADER}: keys with {OPERATION_KEY} are reserved")
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
