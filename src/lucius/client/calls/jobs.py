"""Commands and the jobs that they become."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from lucius.client.call import Json, Pause, Script, get, post
from lucius.client.calls.pages import given, paged
from lucius.client.errors import RateLimited, WaitTimedOut, content_of
from lucius.client.following import Following
from lucius.client.retrying import PATIENCE_SECONDS, WAITS_SATURATED
from lucius.client.statuses import JOB_TERMINAL

SCHEMA_VERSION = "1"
LONG_POLL_SECONDS_MAX = 20.0
LOOK_SECONDS = 0.25
WAIT_SECONDS = 3_600.0
JOBS_LIMIT = 50
EVENTS_LIMIT = 200

Ref = str | Mapping[str, Any]


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def envelope(
    *,
    tenant_id: str,
    request_type: str,
    input_ref: Ref,
    output_ref: Ref,
    payload: Mapping[str, Any],
    idempotency_key: str | None = None,
    **optional: Any,
) -> Json:
    """A command in the form that is posted. Without an idempotency key it gets a new one, so that sending it twice
    creates one job. `optional` fields: `mode`, `doc_id`, `correlation_id`, `callback_urls`, `traceparent`,
    `not_before`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tenant_id": tenant_id,
        "request_type": request_type,
        "input_ref": input_ref,
        "output_ref": output_ref,
        "payload": payload,
        "idempotency_key": idempotency_key or uuid.uuid4().hex,
        **{name: value for name, value in optional.items() if value is not None},
    }


def submit_envelope(command: Mapping[str, Any]) -> Script[tuple[Json, bool]]:
    """Submit a command unchanged; returns the accepted job, and whether the command was already submitted. Commands
    without an idempotency key are one job if their content is the same."""
    response = yield post("/v1/commands", dict(command), is_repeatable=True)
    replayed = response.headers.get("Idempotency-Replayed", "").lower() == "true"
    return content_of(response), replayed


def submit(
    *,
    tenant_id: str,
    request_type: str,
    input_ref: Ref,
    output_ref: Ref,
    payload: Mapping[str, Any],
    idempotency_key: str | None = None,
    mode: str | None = None,
    doc_id: str | None = None,
    correlation_id: str | None = None,
    callback_urls: Mapping[str, str] | None = None,
    traceparent: str | None = None,
    not_before: str | None = None,
) -> Script[Json]:
    """Submit a command; it becomes a job. Without an `idempotency_key` each call creates one new job, even if the
    client retries it."""
    command = envelope(
        tenant_id=tenant_id,
        request_type=request_type,
        input_ref=input_ref,
        output_ref=output_ref,
        payload=payload,
        idempotency_key=idempotency_key,
        mode=mode,
        doc_id=doc_id,
        correlation_id=correlation_id,
        callback_urls=callback_urls,
        traceparent=traceparent,
        not_before=not_before,
    )
    accepted, replayed = yield from submit_envelope(command)
    return {**accepted, "replayed": replayed}


def submit_many(commands: Sequence[Mapping[str, Any]]) -> Script[list[Json]]:
    """Submit up to 500 commands, made with `envelope`, in one call. Each is independent and gets its own answer: a job,
    or a `code` and a `detail`."""
    response = yield post(
        "/v1/commands:batch", {"commands": [dict(command) for command in commands]}, is_repeatable=True
    )
    results: list[Json] = content_of(response).get("results") or []
    return results


def validate(command: Mapping[str, Any]) -> Script[Json]:
    """The routing of a command, or every fault if it would be rejected. Nothing is submitted."""
    return content_of((yield post("/v1/commands:validate", dict(command), is_repeatable=True)))


def get_job(job_id: str, *, patience_seconds: float | None = None) -> Script[Json]:
    """A job, its steps, and what it waits for."""
    return content_of((yield get(job_path(job_id), patience_seconds=patience_seconds)))


def steps(job_id: str) -> Script[Json]:
    """Every step of a job, with every attempt."""
    return content_of((yield get(job_path(job_id) + "/steps")))


def command(job_id: str) -> Script[Json]:
    """The command that a job was made of, without its keys: to submit one like it."""
    return content_of((yield get(job_path(job_id) + "/command")))


def jobs(
    *,
    tenant_id: str | None = None,
    status: str | Sequence[str] | None = None,
    request_type: str | None = None,
    created_from: str | None = None,
    created_to: str | None = None,
    error_signature: str | None = None,
    correlation_id: str | None = None,
    idempotency_key: str | None = None,
    payload: str | None = None,
    job_id_prefix: str | None = None,
    limit: int = JOBS_LIMIT,
    cursor: str = "",
) -> Script[Json]:
    """Jobs, newest first: at most `limit`, over as many pages as needed. `status` is one, or several.
    `payload` is `field=value`: jobs with this value in a field that their protocol declares searchable."""
    query = given(
        tenant_id=tenant_id,
        status=status if status is None or isinstance(status, str) else ",".join(status),
        request_type=request_type,
        created_from=created_from,
        created_to=created_to,
        error_signature=error_signature,
        correlation_id=correlation_id,
        idempotency_key=idempotency_key,
        payload=payload,
        job_id_prefix=job_id_prefix,
    )
    return (yield from paged("/v1/jobs", query, limit, cursor))


def events(job_id: str, *, limit: int = EVENTS_LIMIT, cursor: str = "") -> Script[Json]:
    """A job's audit trail, oldest first: at most `limit` events."""
    return (yield from paged(job_path(job_id) + "/events", {}, limit, cursor, name="events"))


def wait(
    job_id: str, *, timeout_seconds: float = WAIT_SECONDS, patience_seconds: float = PATIENCE_SECONDS
) -> Script[Json]:
    """The job when it has ended. Raises `WaitTimedOut` after `timeout_seconds`; the job then continues. The server may
    be unavailable for `patience_seconds` at a time."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        left = max(0.0, deadline - time.monotonic())
        job = yield from _long_poll(job_id, min(left, LONG_POLL_SECONDS_MAX), min(left, patience_seconds))
        if job.get("status") in JOB_TERMINAL:
            return job
        left = deadline - time.monotonic()
        if left <= 0:
            message = f"job {job.get('jobId')} is still {job.get('status')} after {timeout_seconds:g} s; it continues"
            raise WaitTimedOut(message, job)
        # A server that answers at once despite `wait_seconds` must not be polled in a tight loop.
        yield Pause(min(LOOK_SECONDS, left))


def _long_poll(job_id: str, wait_seconds: float, patience_seconds: float) -> Script[Json]:
    """The job as soon as it has ended, or after `wait_seconds`."""
    path = job_path(job_id)
    if wait_seconds > 0:
        call = get(
            path, {"wait_seconds": f"{wait_seconds:g}"}, wait_seconds=wait_seconds, patience_seconds=patience_seconds
        )
        try:
            return content_of((yield call))
        except RateLimited as error:
            if error.code != WAITS_SATURATED:
                raise
    return content_of((yield get(path, patience_seconds=patience_seconds)))


def follow(
    job_id: str,
    *,
    after: int = 0,
    timeout_seconds: float = WAIT_SECONDS,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Following:
    """A job's events after the number `after`, as they happen, until the job has ended. Raises `WaitTimedOut` after
    `timeout_seconds`. The server may be unavailable for `patience_seconds` at a time."""
    return Following(job_id, after=after, timeout_seconds=timeout_seconds, patience_seconds=patience_seconds)


def cancel(job_id: str, *, reason: str | None = None, force: bool = False) -> Script[Json]:
    """Cancel a job. A step in progress may finish; nothing new starts. `force` ends the job at once, whatever its step
    does, and needs a reason."""
    return (yield from operate(job_id, "cancel", cancel_body(reason, force)))


def cancel_body(reason: str | None, force: bool) -> Json:
    return {**({"reason": reason} if reason else {}), **({"force": True} if force else {})}


def pause(job_id: str) -> Script[Json]:
    """Pause a job: the step in progress continues, and no other starts."""
    return (yield from operate(job_id, "pause"))


def resume(job_id: str) -> Script[Json]:
    """Resume a paused job."""
    return (yield from operate(job_id, "resume"))


def redrive(job_id: str, *, reason: str | None = None, payload: Mapping[str, Any] | None = None) -> Script[Json]:
    """Start a new job where a failed or cancelled one ended; or, with another `payload`, from its first step."""
    return (yield from operate(job_id, "redrive", redrive_body(reason, payload)))


def redrive_body(reason: str | None, payload: Mapping[str, Any] | None) -> Json:
    return {**({"reason": reason} if reason else {}), **({} if payload is None else {"payload": dict(payload)})}


def operate(job_id: str, verb: str, body: Json | None = None, *, patience_seconds: float | None = None) -> Script[Json]:
    """Retried with the same key if there is no answer, so that it is not applied twice."""
    call = post(
        f"{job_path(job_id)}:{verb}",
        body or {},
        headers={"Idempotency-Key": uuid.uuid4().hex},
        is_repeatable=True,
        patience_seconds=patience_seconds,
    )
    return content_of((yield call))


def protocols() -> Script[Json]:
    """The newest version of each protocol."""
    return content_of((yield get("/v1/protocols")))


def protocol(protocol_id: str) -> Script[Json]:
    """One protocol, by its id or a request type that it serves."""
    return content_of((yield get(f"/v1/protocols/{quote(protocol_id, safe='')}")))
