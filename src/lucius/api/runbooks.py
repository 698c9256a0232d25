"""Runbooks: publish, look, compare, try out, and switch their automation."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Literal

from msgspec import Struct
from starlette.responses import Response

from lucius.api.endpoint import Answer, Call, answer
from lucius.api.requests import Parameters, read_typed
from lucius.api.runbook_requests import (
    EVENTS_PAGE_SIZE,
    SMALL_BODY_BYTES_MAX,
    Nothing,
    body_bytes_max,
    bytes_within,
    cursor,
    moment,
    runbook_name,
)
from lucius.domain.errors import CallerError
from lucius.runbooks.definition.names import VERSION_MAX
from lucius.runbooks.definition.schema import schema_bytes
from lucius.runbooks.definition.validation import validated
from lucius.yaml_text import BYTES_MAX

PREVIEW_ROWS = 20
PREVIEW_ROWS_MAX = 200


# --- Publishing ------------------------------------------------------------------------------------------------------


class _Publish(Struct, frozen=True, forbid_unknown_fields=True):
    yaml: str
    overdue_behavior: Literal["rerun", "ignore"] = "rerun"
    rerun_init: bool = False


async def publish(call: Call) -> Response:
    wanted = await read_typed(call.request, body_bytes_max(BYTES_MAX), _Publish)
    publishing, content = call.desk.runbooks.publishing, wanted.yaml.encode()
    made = await publishing.publish(content, call.caller.name, wanted.overdue_behavior, wanted.rerun_init)
    return answer(made, 201, {"Location": f"/v1/runbooks/{made['name'].replace(' ', '%20')}"})


class _Validate(Struct, frozen=True, forbid_unknown_fields=True):
    yaml: str


async def validate(call: Call) -> Response:
    wanted = await read_typed(call.request, body_bytes_max(BYTES_MAX), _Validate)
    return answer(await asyncio.to_thread(validated, wanted.yaml.encode()))


async def _switch(call: Call, act: str) -> Response:
    await read_typed(call.request, SMALL_BODY_BYTES_MAX, Nothing, may_be_empty=True)
    name, actor, publishing = runbook_name(call), call.caller.name, call.desk.runbooks.publishing
    match act:
        case "retire":
            done = await publishing.retire(name, actor)
        case "confirm":
            done = await publishing.confirm_source(name, actor)
        case _:
            done = await publishing.set_automation(name, act == "start", actor)
    return answer(done)


retire = partial(_switch, act="retire")
stop = partial(_switch, act="stop")
start = partial(_switch, act="start")
confirm = partial(_switch, act="confirm")


# --- Looking ---------------------------------------------------------------------------------------------------------


async def list_runbooks(call: Call) -> Response:
    Parameters(call.request).close()
    return answer({"items": await call.desk.runbooks.publishing.names(), "next": None})


async def schema(call: Call) -> Response:
    Parameters(call.request).close()
    return Answer(schema_bytes())


async def get(call: Call) -> Response:
    parameters = Parameters(call.request)
    version = parameters.whole("version", 0, 1, VERSION_MAX) or None
    parameters.close()
    return answer(await call.desk.runbooks.queries.runbook(runbook_name(call), version))


async def diff(call: Call) -> Response:
    parameters = Parameters(call.request)
    before, after = (parameters.whole(name, 0, 1, VERSION_MAX) for name in ("from", "to"))
    parameters.close()
    if not before or not after:
        missing = "from" if not before else "to"
        raise CallerError.of("ENVELOPE_INVALID", f"query parameter {missing} is required", f"?{missing}")
    name = runbook_name(call)
    found = await call.desk.runbooks.publishing.compare(name, before, after)
    return answer({"name": name, "from": before, "to": after, "differences": found})


async def events(call: Call) -> Response:
    parameters = Parameters(call.request)
    limit = parameters.whole("limit", EVENTS_PAGE_SIZE, 1, call.desk.settings.page_size_max)
    before = cursor(parameters)
    parameters.close()
    items, next_id = await call.desk.runbooks.queries.runbook_events(runbook_name(call), limit, before)
    return answer({"items": items, "next": None if next_id is None else str(next_id)})


# --- Trying out ------------------------------------------------------------------------------------------------------


class _Preview(Struct, frozen=True, forbid_unknown_fields=True):
    limit: int = PREVIEW_ROWS


async def preview(call: Call) -> Response:
    wanted = await read_typed(call.request, SMALL_BODY_BYTES_MAX, _Preview, may_be_empty=True)
    limit = _limit(wanted.limit)
    return answer(await call.desk.runbooks.queries.preview(runbook_name(call), limit))


class _DryRun(Struct, frozen=True, forbid_unknown_fields=True):
    csv: str | None = None
    start: str | None = None
    limit: int = PREVIEW_ROWS


async def dry_run(call: Call) -> Response:
    bytes_max = call.desk.settings.members_bytes_max
    wanted = await read_typed(call.request, body_bytes_max(bytes_max), _DryRun, may_be_empty=True)
    csv = None if wanted.csv is None else bytes_within(wanted.csv, bytes_max, "csv")
    begins = None if wanted.start is None else moment(wanted.start, "/start")
    limit = _limit(wanted.limit)
    return answer(await call.desk.runbooks.queries.dry_run(runbook_name(call), csv, begins, limit))


def _limit(limit: int) -> int:
    if not 1 <= limit <= PREVIEW_ROWS_MAX:
        raise CallerError.of("ENVELOPE_INVALID", f"limit lies between 1 and {PREVIEW_ROWS_MAX}", "/limit")
    return limit
