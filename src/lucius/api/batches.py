"""Batches of runbooks: create, show, and operate on them and on their members."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from starlette.responses import Response

from lucius.api.compression import compressed
from lucius.api.endpoint import Call, answer
from lucius.api.holding import HeldStream, hold
from lucius.api.lists import listing
from lucius.api.requests import SMALL_BODY_BYTES_MAX, Parameters, Reason, read_typed
from lucius.api.runbook_requests import (
    EVENTS_PAGE_SIZE,
    Names,
    NamesOrNull,
    ReasonOrNull,
    batch_id,
    body_bytes_max,
    bytes_within,
    moment,
    page_cursor,
    page_limits,
    read_keys,
    read_message_ids,
    read_reason,
)
from lucius.api.runbook_scope import scope_of
from lucius.domain.attempt import NULL
from lucius.domain.errors import CallerError
from lucius.domain.json_types import Moment, ref
from lucius.runbooks.core import answers
from lucius.runbooks.core.approvals import APPROVED, REFUSED
from lucius.runbooks.core.definition.names import check_name
from lucius.runbooks.core.states import BATCH
from lucius.runbooks.service.views.members import MEMBER_FILTERS
from lucius.usecases.waits import WaitKind

PAGE_SIZE = 50


class NewBatch(Struct, frozen=True, forbid_unknown_fields=True):
    runbook: Annotated[str, Meta(extra_json_schema=ref("RunbookName"))]
    csv: str
    start: Moment | None = None
    advance: Literal["time", "manual"] = "time"


async def create(call: Call) -> Response:
    settings = call.context.settings
    body = await read_typed(call.request, body_bytes_max(settings.members_bytes_max), NewBatch)
    try:
        name = check_name(body.runbook)
    except ValueError as error:
        raise CallerError.of("ENVELOPE_INVALID", str(error), "/runbook") from None
    csv = bytes_within(body.csv, settings.members_bytes_max, "csv")
    start = call.context.clock.now() if body.start is None else moment(body.start, "/start")
    operations = call.context.runbooks.operations
    created = await operations.create_batch(
        name, csv, start, body.advance, call.caller.name, scope=scope_of(call.caller)
    )
    return answer(created, 201, {"Location": f"/v1/batches/{created['batch_id']}"})


# --- Reading ---------------------------------------------------------------------------------------------------------


@listing
async def list_batches(call: Call) -> Response:
    parameters = Parameters(call.request)
    runbook = parameters.text("runbook")
    status = parameters.choice("status", BATCH)
    limit, before = page_limits(call, parameters, PAGE_SIZE)
    queries, scope = call.context.runbooks.queries, scope_of(call.caller)
    items, next_id = await queries.batches(runbook, status, limit, before, scope=scope)
    return answer(answers.BatchList(items=items, next=page_cursor(next_id)))


@listing
async def get(call: Call) -> Response:
    Parameters(call.request).close()
    return answer(await call.context.runbooks.queries.batch(batch_id(call)))


@listing
async def members(call: Call) -> Response:
    parameters = Parameters(call.request)
    status = parameters.choice("status", MEMBER_FILTERS) or "all"
    key = parameters.text("key")
    limit, after = page_limits(call, parameters, PAGE_SIZE)
    items, next_id = await call.context.runbooks.queries.members(batch_id(call), status, key, limit, after)
    return answer(answers.MemberList(items=items, next=page_cursor(next_id)))


@listing
async def events(call: Call) -> Response:
    limit, before = page_limits(call, Parameters(call.request), EVENTS_PAGE_SIZE)
    items, next_id = await call.context.runbooks.queries.batch_events(batch_id(call), limit, before)
    return answer(answers.RunbookEventList(items=items, next=page_cursor(next_id)))


@listing
async def grid(call: Call) -> Response:
    parameters = Parameters(call.request)
    since = parameters.whole("since", 0, 0, answers.ID_MAX)
    parameters.close()
    found = await call.context.runbooks.queries.grid(batch_id(call), since or None)
    return await compressed(call.request, answer(found))


@listing
async def export(call: Call) -> Response:
    parameters = Parameters(call.request)
    status = parameters.choice("status", MEMBER_FILTERS) or "all"
    parameters.close()
    number = batch_id(call)
    pages = call.context.runbooks.queries.export(number, status)
    # The first page is read before the answer begins, so that an unknown batch can still be answered with an error.
    first = await anext(pages)

    async def stream() -> AsyncGenerator[str, None]:
        yield first
        async for page in pages:
            yield page

    headers = {"Content-Disposition": f'attachment; filename="batch-{number}.csv"', "Cache-Control": "no-store"}
    return HeldStream(hold(call, WaitKind.STREAM), stream(), "text/csv", headers)


# --- Operations ------------------------------------------------------------------------------------------------------


async def advance(call: Call) -> Response:
    reason = await _reason(call)
    return answer(await call.context.runbooks.operations.advance(batch_id(call), call.caller.name, reason))


async def cancel(call: Call) -> Response:
    reason = await _reason(call)
    return answer(await call.context.runbooks.operations.cancel(batch_id(call), reason, call.caller.name))


async def resume(call: Call) -> Response:
    reason = await _reason(call)
    return answer(await call.context.runbooks.operations.resume(batch_id(call), call.caller.name, reason))


async def approve(call: Call) -> Response:
    return await _decide(call, APPROVED)


async def refuse(call: Call) -> Response:
    return await _decide(call, REFUSED)


async def _decide(call: Call, decision: str) -> Response:
    phase, reason = call.request.path_params["phase"], await _reason(call)
    operations, caller = call.context.runbooks.operations, call.caller
    return answer(await operations.decide(batch_id(call), phase, decision, caller.name, caller.may, reason))


async def pause(call: Call) -> Response:
    reason = await _reason(call)
    return answer(await call.context.runbooks.operations.pause(batch_id(call), call.caller.name, reason))


class BatchRescheduled(Struct, frozen=True, forbid_unknown_fields=True):
    start: Moment
    dry_run: Annotated[bool, Meta(description="Only show what would move")] = False
    if_start: Annotated[Moment, Meta(description="Only if the batch starts at this time now")] | None = None
    reason: ReasonOrNull = None


async def reschedule(call: Call) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, BatchRescheduled)
    start, reason = moment(body.start, "/start"), read_reason(body.reason)
    if_start = None if body.if_start is None else moment(body.if_start, "/if_start")
    operations = call.context.runbooks.operations
    return answer(await operations.reschedule(batch_id(call), start, call.caller.name, reason, body.dry_run, if_start))


async def _reason(call: Call) -> str:
    return read_reason((await read_typed(call.request, SMALL_BODY_BYTES_MAX, Reason, may_be_empty=True)).reason)


class MembersRetried(Struct, frozen=True, forbid_unknown_fields=True):
    members: NamesOrNull = field(default_factory=lambda: NULL)
    reason: ReasonOrNull = None
    not_started: Annotated[
        bool, Meta(description="Instead, members that `max_failures` stopped before their steps began")
    ] = False


async def retry(call: Call) -> Response:
    body = await read_typed(
        call.request, call.context.settings.callbacks_body_bytes_max, MembersRetried, may_be_empty=True
    )
    keys, reason = None if bytes(body.members) == b"null" else read_keys(body.members), read_reason(body.reason)
    operations = call.context.runbooks.operations
    return answer(await operations.retry(batch_id(call), keys, call.caller.name, reason, body.not_started))


class MembersHeld(Struct, frozen=True, forbid_unknown_fields=True):
    members: NamesOrNull = field(default_factory=lambda: NULL)
    reason: ReasonOrNull = None


async def _read_held(call: Call) -> tuple[list[str] | None, str]:
    """The keys of held members, None for all of them, and why."""
    body = await read_typed(
        call.request, call.context.settings.callbacks_body_bytes_max, MembersHeld, may_be_empty=True
    )
    return None if bytes(body.members) == b"null" else read_keys(body.members), read_reason(body.reason)


async def confirm_move(call: Call) -> Response:
    keys, reason = await _read_held(call)
    return answer(await call.context.runbooks.operations.confirm_move(batch_id(call), keys, call.caller.name, reason))


async def keep(call: Call) -> Response:
    keys, reason = await _read_held(call)
    return answer(await call.context.runbooks.operations.keep(batch_id(call), keys, call.caller.name, reason))


class MessagesNamed(Struct, frozen=True, forbid_unknown_fields=True):
    messages: NamesOrNull = field(default_factory=lambda: NULL)


async def send_again(call: Call) -> Response:
    body = await read_typed(
        call.request, call.context.settings.callbacks_body_bytes_max, MessagesNamed, may_be_empty=True
    )
    names = None if bytes(body.messages) == b"null" else read_message_ids(body.messages)
    return answer(await call.context.runbooks.dead_letters.send_again(batch_id(call), names, call.caller.name))


class MembersNamed(Struct, frozen=True, forbid_unknown_fields=True):
    members: Names
    reason: ReasonOrNull = None


async def remove(call: Call) -> Response:
    body = await read_typed(call.request, call.context.settings.callbacks_body_bytes_max, MembersNamed)
    keys, reason = read_keys(body.members), read_reason(body.reason)
    return answer(await call.context.runbooks.operations.remove(batch_id(call), keys, call.caller.name, reason))


class MembersAdded(Struct, frozen=True, forbid_unknown_fields=True):
    csv: str
    reason: ReasonOrNull = None


async def add(call: Call) -> Response:
    settings = call.context.settings
    body = await read_typed(call.request, body_bytes_max(settings.members_bytes_max), MembersAdded)
    csv, reason = bytes_within(body.csv, settings.members_bytes_max, "csv"), read_reason(body.reason)
    return answer(await call.context.runbooks.operations.add_members(batch_id(call), csv, call.caller.name, reason))
