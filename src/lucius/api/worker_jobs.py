"""Jobs that runbook workers pull over HTTP, and the results that they send back."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct
from starlette.responses import Response

from lucius.api.answers import WorkerOutcomes, WorkerRenewed, WorkerResultRefused, WorkerResultTaken
from lucius.api.batch_items import read_each, split_resting
from lucius.api.endpoint import Call, JsonResponse, answer
from lucius.api.holding import check_pull, long_poll
from lucius.api.requests import SMALL_BODY_BYTES_MAX, decode_typed, read_typed
from lucius.api.sightings import saw, worker_failed
from lucius.domain.errors import CallerError, LuciusError
from lucius.domain.json_types import ref, stated
from lucius.domain.strict_json import is_deeper
from lucius.ports.bus import Delivery, DeliveryRef
from lucius.ports.workers import WorkerKind
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.messages import JOBS_TOPIC, MessageInvalid, WorkerResult, job_ref, read_result
from lucius.runbooks.engine.facts import Outcome, holds_job
from lucius.runbooks.service.publishing import Publishing

RENEW_BODY_BYTES_MAX = 65_536
WORKER_ID_CHARS_MAX = 128
JOB_ID_CHARS_MAX = 100
RESULTS_MAX = 500
RESULT_BYTES_MAX = 524_288
KNOWN_SHOWN_MAX = 20
WorkerId = Annotated[str, stated(minLength=1, maxLength=WORKER_ID_CHARS_MAX)]
JobId = Annotated[str, stated(minLength=1, maxLength=JOB_ID_CHARS_MAX)]


class WorkerPull(Struct, frozen=True, forbid_unknown_fields=True):
    workerId: WorkerId
    max: Annotated[int, stated(minimum=0)] = 1
    wait_seconds: Annotated[float, stated(minimum=0)] = 0.0


async def pull(call: Call) -> Response:
    settings = call.context.settings
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, WorkerPull)
    _check_worker(body.workerId)
    call.require_worker(body.workerId)
    check_pull(settings, body.max, body.wait_seconds)
    publishing = call.context.runbooks.publishing  # Also before jobs of an earlier time are given out.
    if not body.max:  # Its jobs come from the bus, where nobody would see that it is there.
        await _ensure_known(call, publishing, body.workerId)
        saw(call, WorkerKind.WORKER, body.workerId)
        return JsonResponse(b'{"jobs":[]}')

    async def receive(seconds: float) -> list[Delivery]:
        lock_seconds = settings.worker_lock_seconds
        saw(call, WorkerKind.WORKER, body.workerId)
        return await call.context.bus.receive([JOBS_TOPIC], body.workerId, body.max, lock_seconds, seconds)

    # A worker can be unknown only if it has no jobs, so taking jobs costs no lookup.
    deliveries = await long_poll(
        call,
        body.wait_seconds,
        receive,
        partial(call.require_worker, body.workerId),
        before_waiting=partial(_ensure_known, call, publishing, body.workerId),
    )
    saw(call, WorkerKind.WORKER, body.workerId, len(deliveries))
    return JsonResponse(b'{"jobs":[' + b",".join(delivery.body for delivery in deliveries) + b"]}")


def _check_worker(worker_id: str) -> None:
    if not 1 <= len(worker_id) <= WORKER_ID_CHARS_MAX or "\x00" in worker_id:
        detail = f"workerId must have 1 to {WORKER_ID_CHARS_MAX} characters"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/workerId")


async def _ensure_known(call: Call, publishing: Publishing, worker_id: str) -> None:
    if await publishing.knows_worker(worker_id):
        return
    known = [one for one in await publishing.workers() if call.worker_ids is None or one in call.worker_ids]
    named = ", ".join(known[:KNOWN_SHOWN_MAX]) + (" …" if len(known) > KNOWN_SHOWN_MAX else "")
    detail = f"no runbook names the worker {worker_id}; known workers: {named or 'none, publish a runbook first'}"
    raise CallerError.of("ENVELOPE_INVALID", detail, "/workerId")


class WorkerRenew(Struct, frozen=True, forbid_unknown_fields=True):
    jobIds: Annotated[list[JobId], stated(minItems=1)]
    tokens: (
        Annotated[
            list[str | None],
            Meta(description="The `token` in each job's correlationData", extra_json_schema={"minItems": 1}),
        ]
        | None
    ) = None
    workerId: WorkerId | None = None


async def renew(call: Call) -> Response:
    settings = call.context.settings
    body = await read_typed(call.request, RENEW_BODY_BYTES_MAX, WorkerRenew)
    if body.workerId is not None:
        _check_worker(body.workerId)
        call.require_worker(body.workerId)
        saw(call, WorkerKind.WORKER, body.workerId)
    if not 1 <= len(body.jobIds) <= settings.pull_max:
        raise CallerError.of("ENVELOPE_INVALID", f"jobIds must name 1 to {settings.pull_max} jobs", "/jobIds")
    for index, job_id in enumerate(body.jobIds):
        if not 1 <= len(job_id) <= JOB_ID_CHARS_MAX or "\x00" in job_id:
            detail = f"a jobId must have 1 to {JOB_ID_CHARS_MAX} characters"
            raise CallerError.of("ENVELOPE_INVALID", detail, f"/jobIds/{index}")
    if body.tokens is not None and len(body.tokens) != len(body.jobIds):
        detail = f"tokens must have one entry for each of jobIds: {len(body.jobIds)}, not {len(body.tokens)}"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/tokens")
    refs = await _renewable(call, body)
    held = [ref for ref in refs if ref is not None]
    renewed = iter(await call.context.bus.renew(held, settings.worker_lock_seconds) if held else ())
    return answer(WorkerRenewed(renewed=[ref is not None and next(renewed) for ref in refs]))


async def _renewable(call: Call, body: WorkerRenew) -> list[DeliveryRef | None]:
    """The jobs whose locks this caller may extend, by their tokens or because its key is limited to their worker; None
    for each other job."""
    runbooks, is_limited = call.context.runbooks, call.worker_ids is not None
    found = await _jobs_in_sight(call, body.jobIds)
    refs: list[DeliveryRef | None] = []
    for job_id, token in zip(body.jobIds, body.tokens or [None] * len(body.jobIds), strict=True):
        execution = found.get(job_id)
        if execution is None or body.workerId not in (None, execution.worker_id):
            refs.append(None)
            continue
        call.require_worker(execution.worker_id)
        may_renew = is_limited or holds_job(runbooks.turns.tokens, execution, job_id, token)
        if not may_renew and body.tokens is None:
            detail = (
                "send in tokens, for each of jobIds, the token in the job's correlationData, or use a key that is"
                f" limited to the worker {execution.worker_id}"
            )
            raise CallerError.of("FORBIDDEN", detail, "/tokens")
        refs.append(job_ref(execution.worker_id, job_id) if may_renew else None)
    return refs


class WorkerResults(Struct, frozen=True, forbid_unknown_fields=True):
    results: Annotated[Raw, stated(type="array", items=ref("WorkerResult"), minItems=1, maxItems=RESULTS_MAX)]


_Read = WorkerResult | WorkerResultTaken | WorkerResultRefused
"""A result, or its answer if it is not to be applied."""


async def results(call: Call) -> Response:
    """Many results in one turn; an unreadable result does not affect the others."""
    context = call.context
    body = await read_typed(call.request, context.settings.callbacks_body_bytes_max, WorkerResults)
    items = await split_resting(body.results, "results", RESULTS_MAX)
    depth_max = context.settings.body_depth_max
    found = await read_each(items, lambda item: _read_item(item, depth_max), RESULT_BYTES_MAX)
    read: list[_Read] = [_refused(None, result) if isinstance(result, LuciusError) else result for result in found]
    if call.worker_ids is not None:
        read = await _only_own(call, read)
    taken = [result for result in read if isinstance(result, WorkerResult)]
    orchestrator = context.runbooks.orchestrator
    done = await orchestrator.take_results(taken, needs_token=True) if taken else []
    failures = (not one.is_success for one, outcome in zip(taken, done, strict=True) if outcome is Outcome.APPLIED)
    worker_failed(call, sum(failures))
    outcomes = iter(done)
    answers = [_shown(result.jobId, next(outcomes)) if isinstance(result, WorkerResult) else result for result in read]
    return answer(WorkerOutcomes(outcomes=answers))


async def _only_own(call: Call, read: list[_Read]) -> list[_Read]:
    """Replaces each result of a worker that the caller is not limited to by a rejection, and each of a tenant that it
    does not see by the answer for unknown jobs."""
    job_ids = [result.jobId for result in read if isinstance(result, WorkerResult)]
    jobs = await _jobs_in_sight(call, job_ids)
    checked: list[_Read] = []
    for result in read:
        checked.append(result)
        if not isinstance(result, WorkerResult):
            continue
        if result.jobId in jobs:
            try:
                call.require_worker(jobs[result.jobId].worker_id)
            except CallerError as error:
                checked[-1] = _refused(result.jobId, error)
        elif call.caller.tenants is not None:
            checked[-1] = _shown(result.jobId, Outcome.UNKNOWN)
    return checked


async def _jobs_in_sight(call: Call, job_ids: list[str]) -> dict[str, Execution]:
    """The executions of these jobs; a caller that is limited to tenants knows only those of their own workers."""
    found = await call.context.runbooks.orchestrator.executions_of(job_ids)
    if call.caller.tenants is None:
        return found
    own = call.context.runbooks.turns.grants.own_workers(call.caller.tenants)
    return {job_id: one for job_id, one in found.items() if one.worker_id in own}


def _shown(job_id: str, outcome: Outcome) -> WorkerResultTaken | WorkerResultRefused:
    if outcome is not Outcome.FORGED:
        return {"jobId": job_id, "outcome": outcome}
    detail = "the job's token is missing or belongs to another job: send the job's correlationData back unchanged"
    return {"jobId": job_id, "code": "UNAUTHENTICATED", "detail": detail}


def _read_item(item: Raw, depth_max: int) -> _Read:
    text = bytes(item)
    # With so few brackets it cannot be nested deeper, and need not be searched.
    may_be_deeper = text.count(b"{") + text.count(b"[") > depth_max
    return _read(decode_typed(item, Any), depth_max if may_be_deeper else None)


def _read(content: Any, depth_max: int | None) -> _Read:
    """`depth_max`: how deep it may be nested, unless that is known."""
    try:
        if depth_max is not None and is_deeper(content, depth_max):
            raise MessageInvalid(f"the result is nested deeper than {depth_max} levels")
        return read_result(content)
    except MessageInvalid as error:
        return _refused(_job_id(content), CallerError.of("ENVELOPE_INVALID", str(error)))


def _refused(job_id: str | None, error: LuciusError) -> WorkerResultRefused:
    return {"jobId": job_id, "code": error.code, "detail": error.detail}


def _job_id(content: Any) -> str | None:
    """The job id of an invalid result, if it has one."""
    fields = content if isinstance(content, dict) else {}
    named = next((value for name, value in fields.items() if name.lower() == "jobid"), None)
    return named[:JOB_ID_CHARS_MAX] if isinstance(named, str) else None
