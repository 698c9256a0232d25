"""Bulk operations over HTTP: preview, create, list, show, outcomes, pause, resume, abandon."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Struct
from starlette.responses import Response

from lucius.api import answers
from lucius.api.endpoint import Call, answer
from lucius.api.jobs import KEY_HEADER, read_key
from lucius.api.lists import listing, shown
from lucius.api.requests import (
    JOB_ID,
    REASON_CHARS_MAX,
    SMALL_BODY_BYTES_MAX,
    Parameters,
    Reason,
    read_typed,
)
from lucius.domain.bulk_operation import BulkAction, BulkFilter, BulkMove, BulkOperation, ItemStatus, sentence
from lucius.domain.errors import CallerError
from lucius.domain.job import JobStatus
from lucius.domain.json_types import Moment, stated
from lucius.domain.routing import normal_form
from lucius.domain.time import BadMoment, Instant, InstantOutOfRange, from_datetime, iso, read_moment
from lucius.ports.bulk_operations import BulkItem
from lucius.usecases.bulk_operations import RATE_DEFAULT, RATE_MAX, BulkWish

__all__ = ["KEY_HEADER"]

PAGE_SIZE = 50
NUMBER_MAX = 1_000_000
RATE_MIN = 0.01

Number = Annotated[int, stated(minimum=0, maximum=NUMBER_MAX)]


class OperationFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs: those that meet every field that is given."""

    tenant_id: Annotated[str, stated(minLength=1, maxLength=128)] | None = None
    status: JobStatus | None = None
    request_type: Annotated[str, stated(minLength=1, maxLength=256)] | None = None
    created_from: Moment | None = None
    created_to: Moment | None = None
    error_signature: Annotated[str, stated(minLength=1, maxLength=1_000)] | None = None


class OperationPreview(Struct, frozen=True, forbid_unknown_fields=True):
    action: BulkAction
    filter: OperationFilter


class NewOperation(Struct, frozen=True, forbid_unknown_fields=True):
    action: BulkAction
    filter: OperationFilter
    reason: Annotated[str, stated(minLength=1, maxLength=REASON_CHARS_MAX)]
    rate_per_second: Annotated[float, stated(minimum=RATE_MIN, maximum=RATE_MAX)] = RATE_DEFAULT
    canary: Number = 0
    canary_max_failures: Number = 0
    max_failures: Number | None = None


@listing
async def preview(call: Call) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, OperationPreview)
    found = await call.context.bulk.preview(body.action, read_filter(call, body.filter))
    sample = await shown(call, found.sample)
    return answer(answers.OperationPreviewed(action=body.action, count=found.count, sample=sample))


@listing
async def create(call: Call) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, NewOperation)
    wish = BulkWish(
        action=body.action,
        filter=read_filter(call, body.filter),
        reason=_reason(body.reason),
        rate_per_second=_within("rate_per_second", body.rate_per_second, RATE_MIN, RATE_MAX),
        canary=int(_within("canary", body.canary, 0, NUMBER_MAX)),
        canary_max_failures=int(_within("canary_max_failures", body.canary_max_failures, 0, NUMBER_MAX)),
        max_failures=None
        if body.max_failures is None
        else int(_within("max_failures", body.max_failures, 0, NUMBER_MAX)),
    )
    operation, replayed = await call.context.bulk.create(wish, call.caller.name, read_key(call))
    headers = {"Location": f"/v1/operations/{operation.operation_id}"}
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    return answer(show_operation(operation), 202, headers)


@listing
async def list_operations(call: Call) -> Response:
    parameters = Parameters(call.request)
    limit = parameters.whole("limit", PAGE_SIZE, 1, call.context.settings.page_size_max)
    cursor = parameters.job_cursor()
    parameters.close()
    found, following = await call.context.bulk.newest(call.caller.tenants, limit, cursor)
    return answer(answers.OperationList(items=[show_operation(one) for one in found], next=following))


async def get(call: Call) -> Response:
    Parameters(call.request).close()
    return answer(show_operation(await call.context.bulk.get(_operation_id(call), call.caller.tenants)))


@listing
async def list_outcomes(call: Call) -> Response:
    parameters = Parameters(call.request)
    status = parameters.choice("status", ItemStatus)
    limit = parameters.whole("limit", PAGE_SIZE, 1, call.context.settings.page_size_max)
    cursor = parameters.job_cursor()
    parameters.close()
    operation = await call.context.bulk.get(_operation_id(call), call.caller.tenants)
    wanted = None if status is None else ItemStatus(status)
    items, following = await call.context.bulk.items(operation, limit, cursor, wanted)
    return answer(answers.OutcomeList(items=[show_item(item) for item in items], next=following))


async def _steer(call: Call, move: BulkMove) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, Reason, may_be_empty=True)
    reason = None if body.reason is None else _reason(body.reason)
    operation = await call.context.bulk.steer(_operation_id(call), move, call.caller.tenants, call.caller.name, reason)
    return answer(show_operation(operation), 202)


pause = partial(_steer, move=BulkMove.PAUSED)
resume = partial(_steer, move=BulkMove.RESUMED)
abandon = partial(_steer, move=BulkMove.ABANDONED)


# --- Reading ---------------------------------------------------------------------------------------------------------


def _operation_id(call: Call) -> str:
    operation_id: str = call.request.path_params["operation_id"]
    if not JOB_ID.fullmatch(operation_id):
        raise CallerError.of("NOT_FOUND", "there is no such operation")
    return operation_id


def read_filter(call: Call, given: OperationFilter) -> BulkFilter:
    """With the tenants that the caller may touch: an operation never reaches beyond them."""
    visible = call.caller.tenants
    tenants = None if visible is None else tuple(sorted(visible))
    for name, chars_max in (("tenant_id", 128), ("request_type", 256), ("error_signature", 1_000)):
        value = getattr(given, name)
        if value is not None and (not value or len(value) > chars_max or "\x00" in value):
            raise CallerError.of("ENVELOPE_INVALID", f"{name} must have 1 to {chars_max} characters", f"/filter/{name}")
    if given.tenant_id is not None:
        tenant = normal_form(given.tenant_id)
        if not call.caller.sees(tenant):
            raise CallerError.of("TENANT_FORBIDDEN", "this caller may not act for this tenant", "/filter/tenant_id")
        tenants = (tenant,)
    return BulkFilter(
        tenants=tenants,
        status=given.status,
        request_type=given.request_type,
        created_from=_moment("created_from", given.created_from),
        created_to=_moment("created_to", given.created_to),
        error_signature=given.error_signature,
    )


def _moment(name: str, text: str | None) -> Instant | None:
    try:
        return None if text is None else from_datetime(read_moment(text))
    except (BadMoment, InstantOutOfRange) as error:
        raise CallerError.of("ENVELOPE_INVALID", f"{name} {error}", f"/filter/{name}") from None


def _within(name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise CallerError.of("ENVELOPE_INVALID", f"{name} must be between {low:g} and {high:g}", f"/{name}")
    return value


def _reason(text: str) -> str:
    reason = text.replace("\x00", "").strip()[:REASON_CHARS_MAX]
    if not reason:
        raise CallerError.of("ENVELOPE_INVALID", "reason must say why", "/reason")
    return reason


# --- Showing ---------------------------------------------------------------------------------------------------------


def show_operation(operation: BulkOperation) -> answers.Operation:
    wanted, counts = operation.filter, operation.counts
    return {
        "operationId": operation.operation_id,
        "action": operation.action,
        "status": operation.status,
        "sentence": sentence(operation),
        "tenants": None if wanted.tenants is None else list(wanted.tenants),
        "filter": {
            "status": wanted.status,
            "request_type": wanted.request_type,
            "created_from": _iso(wanted.created_from),
            "created_to": _iso(wanted.created_to),
            "error_signature": wanted.error_signature,
        },
        "by": operation.by,
        "reason": operation.reason,
        "rate_per_second": operation.rate_per_second,
        "canary": operation.canary,
        "canary_max_failures": operation.canary_max_failures,
        "max_failures": operation.max_failures,
        "jobs": counts.total,
        "pending": counts.pending,
        "started": counts.started,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "skipped": counts.skipped,
        "created_at": iso(operation.created_at),
        "updated_at": iso(operation.updated_at),
        "ended_at": _iso(operation.ended_at),
        "events": [
            {"at": iso(event.at), "type": event.type, "by": event.by, "reason": event.reason}
            for event in operation.events
        ],
    }


def show_item(item: BulkItem) -> answers.OperationOutcome:
    return {
        "jobId": item.job_id,
        "tenant_id": item.tenant_id,
        "status": item.status,
        "new_jobId": item.new_job_id,
        "code": item.code,
        "detail": item.detail,
        "acted_at": _iso(item.acted_at),
        "ended_at": _iso(item.ended_at),
    }


def _iso(instant: Instant | None) -> str | None:
    return iso(instant) if instant is not None else None
