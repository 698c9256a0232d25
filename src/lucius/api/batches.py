"""Batches of runbooks: make, look, and act on them and on their members."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from lucius.api.endpoint import Call, answer
from lucius.api.requests import Parameters, read_typed
from lucius.api.runbook_requests import (
    EVENTS_PAGE_SIZE,
    SMALL_BODY_BYTES_MAX,
    Nothing,
    batch_id,
    body_bytes_max,
    bytes_within,
    check_keys,
    cursor,
    moment,
)
from lucius.domain.errors import CallerError
from lucius.runbooks.definition.names import check_name
from lucius.runbooks.states import BATCH
from lucius.runbooks.views.members import MEMBER_FILTERS

PAGE_SIZE = 50
REASON_CHARS_MAX = 500


class _NewBatch(Struct, frozen=True, forbid_unknown_fields=True):
    runbook: str
    csv: str
    start: str | None = None
    advance: Literal["time", "manual"] = "time"


async def create(call: Call) -> Response:
    settings = call.desk.settings
    wanted = await read_typed(call.request, body_bytes_max(settings.members_bytes_max), _NewBatch)
    try:
        name = check_name(wanted.runbook)
    except ValueError as error:
        raise CallerError.of("ENVELOPE_INVALID", str(error), "/runbook") from None
    csv = bytes_within(wanted.csv, settings.members_bytes_max, "csv")
    start = call.desk.clock.now() if wanted.start is None else moment(wanted.start, "/start")
    operations = call.desk.runbooks.operations
    made = await operations.create_batch(name, csv, start, wanted.advance, call.caller.name)
    return answer(made, 201, {"Location": f"/v1/batches/{made['batch_id']}"})


# --- Looking ---------------------------------------------------------------------------------------------------------


async def list_batches(call: Call) -> Response:
    parameters = Parameters(call.request)
    runbook = parameters.text("runbook")
    status = parameters.choice("status", BATCH)
    limit = parameters.whole("limit", PAGE_SIZE, 1, call.desk.settings.page_size_max)
    before = cursor(parameters)
    parameters.close()
    return _page(*await call.desk.runbooks.queries.batches(runbook, status, limit, before))


async def get(call: Call) -> Response:
    Parameters(call.request).close()
    return answer(await call.desk.runbooks.queries.batch(batch_id(call)))


async def members(call: Call) -> Response:
    parameters = Parameters(call.request)
    status = parameters.choice("status", MEMBER_FILTERS) or "all"
    key = parameters.text("key")
    limit = parameters.whole("limit", PAGE_SIZE, 1, call.desk.settings.page_size_max)
    after = cursor(parameters)
    parameters.close()
    return _page(*await call.desk.runbooks.queries.members(batch_id(call), status, key, limit, after))


async def events(call: Call) -> Response:
    parameters = Parameters(call.request)
    limit = parameters.whole("limit", EVENTS_PAGE_SIZE, 1, call.desk.settings.page_size_max)
    before = cursor(parameters)
    parameters.close()
    return _page(*await call.desk.runbooks.queries.batch_events(batch_id(call), limit, before))


def _page(items: list[dict[str, object]], after: int | None) -> Response:
    return answer({"items": items, "next": None if after is None else str(after)})


async def export(call: Call) -> Response:
    Parameters(call.request).close()
    number = batch_id(call)
    pages = call.desk.runbooks.queries.export(number)
    # The first page comes before the answer begins, so that a batch that is not there can still be a problem.
    first = await anext(pages)

    async def stream() -> AsyncIterator[str]:
        yield first
        async for page in pages:
            yield page

    headers = {"Content-Disposition": f'attachment; filename="batch-{number}.csv"', "Cache-Control": "no-store"}
    return StreamingResponse(stream(), media_type="text/csv", headers=headers)


# --- Acting ----------------------------------------------------------------------------------------------------------


async def advance(call: Call) -> Response:
    await read_typed(call.request, SMALL_BODY_BYTES_MAX, Nothing, may_be_empty=True)
    return answer(await call.desk.runbooks.operations.advance(batch_id(call), call.caller.name))


class _Cancel(Struct, frozen=True, forbid_unknown_fields=True):
    reason: str | None = None


async def cancel(call: Call) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, _Cancel, may_be_empty=True)
    reason = (body.reason or "").replace("\x00", "")
    if len(reason) > REASON_CHARS_MAX:
        raise CallerError.of("ENVELOPE_INVALID", f"a reason has at most {REASON_CHARS_MAX} characters", "/reason")
    return answer(await call.desk.runbooks.operations.cancel(batch_id(call), reason, call.caller.name))


async def resume(call: Call) -> Response:
    await read_typed(call.request, SMALL_BODY_BYTES_MAX, Nothing, may_be_empty=True)
    return answer(await call.desk.runbooks.operations.resume(batch_id(call), call.caller.name))


class _Retry(Struct, frozen=True, forbid_unknown_fields=True):
    members: list[str] | None = None


async def retry(call: Call) -> Response:
    body = await read_typed(call.request, call.desk.settings.callbacks_body_bytes_max, _Retry, may_be_empty=True)
    keys = None if body.members is None else check_keys(body.members)
    return answer(await call.desk.runbooks.operations.retry(batch_id(call), keys, call.caller.name))


class _Remove(Struct, frozen=True, forbid_unknown_fields=True):
    members: list[str]


async def remove(call: Call) -> Response:
    body = await read_typed(call.request, call.desk.settings.callbacks_body_bytes_max, _Remove)
    keys = check_keys(body.members)
    return answer(await call.desk.runbooks.operations.remove(batch_id(call), keys, call.caller.name))


class _Add(Struct, frozen=True, forbid_unknown_fields=True):
    csv: str


async def add(call: Call) -> Response:
    settings = call.desk.settings
    body = await read_typed(call.request, body_bytes_max(settings.members_bytes_max), _Add)
    csv = bytes_within(body.csv, settings.members_bytes_max, "csv")
    return answer(await call.desk.runbooks.operations.add_members(batch_id(call), csv, call.caller.name))
