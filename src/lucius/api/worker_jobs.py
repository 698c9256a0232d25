"""Jobs that runbook workers take over HTTP, and the results that they bring back."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response

from lucius.api.endpoint import Answer, Call, answer
from lucius.api.requests import read_body, read_typed
from lucius.domain.errors import CallerError
from lucius.domain.strict_json import is_deeper
from lucius.ports.bus import Delivery
from lucius.runbooks.messages import JOBS_TOPIC, MessageInvalid, WorkerResult, job_ref, read_result
from lucius.usecases.complete import body_error

SMALL_BODY_BYTES_MAX = 4_096
RENEW_BODY_BYTES_MAX = 65_536
WAIT_SLICE_SECONDS = 1.0
WORKER_ID_CHARS_MAX = 128
JOB_ID_CHARS_MAX = 100
RESULTS_MAX = 500
KNOWN_SHOWN_MAX = 20


class _Pull(Struct, frozen=True, forbid_unknown_fields=True):
    workerId: str
    max: int = 1
    wait_seconds: float = 0.0


async def pull(call: Call) -> Response:
    settings = call.desk.settings
    wanted = await read_typed(call.request, SMALL_BODY_BYTES_MAX, _Pull)
    _check_worker(wanted.workerId)
    if not 1 <= wanted.max <= settings.pull_max:
        raise CallerError.of("ENVELOPE_INVALID", f"max lies between 1 and {settings.pull_max}", "/max")
    if not 0 <= wanted.wait_seconds <= settings.wait_seconds_max:
        detail = f"wait_seconds lies between 0 and {settings.wait_seconds_max:g}"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/wait_seconds")
    deliveries = await _receive(call, wanted)
    return Answer(b'{"jobs":[' + b",".join(delivery.body for delivery in deliveries) + b"]}")


def _check_worker(worker_id: str) -> None:
    if not 1 <= len(worker_id) <= WORKER_ID_CHARS_MAX or "\x00" in worker_id:
        raise CallerError.of("ENVELOPE_INVALID", f"workerId has 1 to {WORKER_ID_CHARS_MAX} characters", "/workerId")


async def _receive(call: Call, wanted: _Pull) -> list[Delivery]:
    """Wait a second at a time, and look in between whether anybody is still there to take what comes."""
    loop, desk = asyncio.get_running_loop(), call.desk
    lock_seconds, deadline = desk.settings.worker_lock_seconds, loop.time() + wanted.wait_seconds
    is_known = False
    while True:
        left = max(0.0, min(deadline - loop.time(), WAIT_SLICE_SECONDS)) if is_known else 0.0
        taken = await desk.bus.receive([JOBS_TOPIC], wanted.workerId, wanted.max, lock_seconds, left)
        if wanted.wait_seconds and await call.request.is_disconnected():
            # Whoever asked has gone meanwhile: what was taken for them need not wait until its lock ends.
            await desk.bus.abandon([delivery.ref for delivery in taken])
            return []
        if taken:
            return taken
        if not is_known:
            # Only a worker for whom nothing is there can be unknown, so that taking jobs costs no look-up.
            await _ensure_known(call, wanted.workerId)
            is_known = True
        if loop.time() >= deadline or desk.stopping.is_set():
            return []


async def _ensure_known(call: Call, worker_id: str) -> None:
    publishing = call.desk.runbooks.publishing
    if await publishing.knows_worker(worker_id):
        return
    known = await publishing.workers()
    named = ", ".join(known[:KNOWN_SHOWN_MAX]) + (" …" if len(known) > KNOWN_SHOWN_MAX else "")
    detail = f"no runbook names the worker {worker_id}; known are: {named or 'none, publish a runbook first'}"
    raise CallerError.of("ENVELOPE_INVALID", detail, "/workerId")


class _Renew(Struct, frozen=True, forbid_unknown_fields=True):
    jobIds: list[str]
    workerId: str | None = None
    """Spares a look-up."""


async def renew(call: Call) -> Response:
    settings = call.desk.settings
    wanted = await read_typed(call.request, RENEW_BODY_BYTES_MAX, _Renew)
    if wanted.workerId is not None:
        _check_worker(wanted.workerId)
    if not 1 <= len(wanted.jobIds) <= settings.pull_max:
        raise CallerError.of("ENVELOPE_INVALID", f"jobIds names 1 to {settings.pull_max} jobs", "/jobIds")
    for index, job_id in enumerate(wanted.jobIds):
        if not 1 <= len(job_id) <= JOB_ID_CHARS_MAX or "\x00" in job_id:
            detail = f"a jobId has 1 to {JOB_ID_CHARS_MAX} characters"
            raise CallerError.of("ENVELOPE_INVALID", detail, f"/jobIds/{index}")
    workers = await _workers(call, wanted)
    refs = [job_ref(workers.get(job_id, ""), job_id) for job_id in wanted.jobIds]
    return answer({"renewed": await call.desk.bus.renew(refs, settings.worker_lock_seconds)})


async def _workers(call: Call, wanted: _Renew) -> dict[str, str]:
    if wanted.workerId is not None:
        return dict.fromkeys(wanted.jobIds, wanted.workerId)
    return await call.desk.runbooks.orchestrator.workers_of(wanted.jobIds)


class _Results(Struct, frozen=True, forbid_unknown_fields=True):
    results: list[Any]


_decode_results = msgspec.json.Decoder(_Results).decode


async def results(call: Call) -> Response:
    """Many results, one turn; one that cannot be read takes nobody with it."""
    desk = call.desk
    body = await read_body(call.request, desk.settings.callbacks_body_bytes_max)
    try:
        found = _decode_results(body).results
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise body_error(error) from error
    if not 1 <= len(found) <= RESULTS_MAX:
        raise CallerError.of("ENVELOPE_INVALID", f"1 to {RESULTS_MAX} results, not {len(found)}", "/results")
    depth_max = desk.settings.body_depth_max
    read = [_read(one, depth_max) for one in found]
    taken = [one for one in read if isinstance(one, WorkerResult)]
    outcomes = iter(await desk.runbooks.orchestrator.take_results(taken) if taken else ())
    answers = [
        {"jobId": one.jobId, "outcome": next(outcomes)} if isinstance(one, WorkerResult) else one for one in read
    ]
    return answer({"outcomes": answers})


def _read(content: Any, depth_max: int) -> WorkerResult | dict[str, Any]:
    try:
        if is_deeper(content, depth_max):
            raise MessageInvalid(f"the result is nested deeper than {depth_max} levels")
        return read_result(content)
    except MessageInvalid as error:
        return {"jobId": _job_id(content), "code": "ENVELOPE_INVALID", "detail": str(error)}


def _job_id(content: Any) -> str | None:
    """As far as it can be told from a result that cannot be read."""
    fields = content if isinstance(content, dict) else {}
    named = next((value for name, value in fields.items() if name.lower() == "jobid"), None)
    return named[:JOB_ID_CHARS_MAX] if isinstance(named, str) else None
