"""Runbooks: publish, show, compare, try out, and switch their automation."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.responses import Response

from lucius.api.endpoint import Call, JsonResponse, answer
from lucius.api.lists import listing
from lucius.api.requests import JOB_ID, SMALL_BODY_BYTES_MAX, Parameters, Reason, read_typed
from lucius.api.runbook_requests import (
    EVENTS_PAGE_SIZE,
    RunbookYaml,
    body_bytes_max,
    bytes_within,
    moment,
    page_cursor,
    page_limits,
    read_reason,
    runbook_name,
)
from lucius.api.runbook_scope import scope_of
from lucius.domain.errors import CallerError
from lucius.domain.json_types import Moment
from lucius.runbooks.core import answers
from lucius.runbooks.core.definition.names import VERSION_MAX
from lucius.runbooks.core.definition.schema import schema_bytes
from lucius.runbooks.core.definition.validation import validated
from lucius.runbooks.rehearsal.behaviour import POLL_ROUNDS_MAX, WORKERS_MAX, BehaviourInvalid, parse_options
from lucius.runbooks.rehearsal.service import MEMBERS_MAX, RehearsalWish
from lucius.yaml_text import BYTES_MAX

PREVIEW_ROWS = 20
PREVIEW_ROWS_MAX = 200
SEED_MAX = 2**31 - 1
ShortText = Annotated[str, Meta(max_length=40)]
RowLimit = Annotated[int, Meta(ge=1, le=PREVIEW_ROWS_MAX)]


# --- Publishing ------------------------------------------------------------------------------------------------------


class RunbookText(Struct, frozen=True, forbid_unknown_fields=True):
    yaml: RunbookYaml
    overdue_behavior: Literal["rerun", "ignore"] = "rerun"
    rerun_init: bool = False
    stopped: Annotated[bool, Meta(description="With its automation off: no source is read, no phase starts")] = False


async def publish(call: Call) -> Response:
    body = await read_typed(call.request, body_bytes_max(BYTES_MAX), RunbookText)
    publishing, content = call.context.runbooks.publishing, body.yaml.encode()
    published = await publishing.publish(
        content, call.caller.name, body.overdue_behavior, body.rerun_init, body.stopped, scope_of(call.caller)
    )
    return answer(published, 201, {"Location": f"/v1/runbooks/{published['name'].replace(' ', '%20')}"})


class RunbookDraft(Struct, frozen=True, forbid_unknown_fields=True):
    yaml: RunbookYaml


async def validate(call: Call) -> Response:
    body = await read_typed(call.request, body_bytes_max(BYTES_MAX), RunbookDraft)
    return answer(await asyncio.to_thread(validated, body.yaml.encode()))


async def _switch(call: Call, act: str) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, Reason, may_be_empty=True)
    name, actor, reason = runbook_name(call), call.caller.name, read_reason(body.reason)
    publishing = call.context.runbooks.publishing
    if act == "retire":
        return answer(await publishing.retire(name, actor, reason))
    return answer(await publishing.set_automation(name, act == "start", actor, reason))


retire = partial(_switch, act="retire")
stop = partial(_switch, act="stop")
start = partial(_switch, act="start")


async def confirm(call: Call) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, Reason, may_be_empty=True)
    name, reason = runbook_name(call), read_reason(body.reason)
    return answer(await call.context.runbooks.publishing.confirm_source(name, call.caller.name, reason))


# --- Reading ---------------------------------------------------------------------------------------------------------


async def list_runbooks(call: Call) -> Response:
    Parameters(call.request).close()
    found = await call.context.runbooks.publishing.names(scope_of(call.caller))
    return answer(answers.RunbookList(items=found, next=None))


async def schema(call: Call) -> Response:
    Parameters(call.request).close()
    return JsonResponse(schema_bytes())


async def get(call: Call) -> Response:
    parameters = Parameters(call.request)
    version = parameters.whole("version", 0, 1, VERSION_MAX) or None
    parameters.close()
    return answer(await call.context.runbooks.queries.runbook(runbook_name(call), version))


async def diff(call: Call) -> Response:
    parameters = Parameters(call.request)
    before, after = (parameters.whole(name, 0, 1, VERSION_MAX) for name in ("from", "to"))
    parameters.close()
    if not before or not after:
        missing = "from" if not before else "to"
        raise CallerError.of("ENVELOPE_INVALID", f"query parameter {missing} is required", f"?{missing}")
    name = runbook_name(call)
    found = await call.context.runbooks.publishing.compare(name, before, after)
    body: answers.RunbookDiff = {"name": name, "from": before, "to": after, "differences": found}
    return answer(body)


@listing
async def events(call: Call) -> Response:
    limit, before = page_limits(call, Parameters(call.request), EVENTS_PAGE_SIZE)
    items, next_id = await call.context.runbooks.queries.runbook_events(runbook_name(call), limit, before)
    return answer(answers.RunbookEventList(items=items, next=page_cursor(next_id)))


# --- Trying out ------------------------------------------------------------------------------------------------------


class PreviewWanted(Struct, frozen=True, forbid_unknown_fields=True):
    limit: RowLimit = PREVIEW_ROWS


async def preview(call: Call) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, PreviewWanted, may_be_empty=True)
    return answer(await call.context.runbooks.queries.preview(runbook_name(call), body.limit))


class DryRunWanted(Struct, frozen=True, forbid_unknown_fields=True):
    csv: str | None = None
    start: Moment | None = None
    limit: RowLimit = PREVIEW_ROWS


async def dry_run(call: Call) -> Response:
    bytes_max = call.context.settings.members_bytes_max
    body = await read_typed(call.request, body_bytes_max(bytes_max), DryRunWanted, may_be_empty=True)
    csv = None if body.csv is None else bytes_within(body.csv, bytes_max, "csv")
    begins = None if body.start is None else moment(body.start, "/start")
    return answer(await call.context.runbooks.queries.dry_run(runbook_name(call), csv, begins, body.limit))


class RehearsalWanted(Struct, frozen=True, forbid_unknown_fields=True):
    csv: str | None = None
    count: Annotated[int, Meta(ge=1, le=MEMBERS_MAX)] | None = None
    start: Moment | None = None
    seed: Annotated[int, Meta(ge=0, le=SEED_MAX)] = 1
    duration: ShortText | None = None
    fail: ShortText | None = None
    throttle: ShortText | None = None
    lost: ShortText | None = None
    slow: ShortText | None = None
    poll_rounds: Annotated[int, Meta(ge=0, le=POLL_ROUNDS_MAX)] | None = None
    workers: Annotated[int, Meta(ge=1, le=WORKERS_MAX)] | None = None


BEHAVIOUR = ("duration", "fail", "throttle", "lost", "slow", "poll_rounds", "workers")


async def rehearse(call: Call) -> Response:
    bytes_max = call.context.settings.members_bytes_max
    body = await read_typed(call.request, body_bytes_max(bytes_max), RehearsalWanted, may_be_empty=True)
    wish = rehearsal_wish(body, bytes_max)
    return answer(await call.context.runbooks.rehearsals.make(runbook_name(call), wish, call.caller.name), 201)


def rehearsal_wish(body: RehearsalWanted, bytes_max: int) -> RehearsalWish:
    if (body.csv is None) == (body.count is None):
        raise CallerError.of("ENVELOPE_INVALID", "send either csv, the members, or count, how many to make up")
    if body.csv is not None:
        bytes_within(body.csv, bytes_max, "csv")
    try:
        options = parse_options({name: getattr(body, name) for name in BEHAVIOUR})
    except BehaviourInvalid as error:
        raise CallerError.of("ENVELOPE_INVALID", str(error)) from None
    start = None if body.start is None else moment(body.start, "/start")
    return RehearsalWish(csv=body.csv, count=body.count or 0, start=start, seed=body.seed, options=options)


@listing
async def list_rehearsals(call: Call) -> Response:
    Parameters(call.request).close()
    items = await call.context.runbooks.rehearsals.newest(runbook_name(call))
    return answer(answers.RehearsalList(items=items, next=None))


async def get_rehearsal(call: Call) -> Response:
    Parameters(call.request).close()
    return answer(await call.context.runbooks.rehearsals.get(runbook_name(call), rehearsal_id(call)))


def rehearsal_id(call: Call) -> str:
    text: str = call.request.path_params["rehearsal_id"]
    if not JOB_ID.fullmatch(text):
        raise CallerError.of("NOT_FOUND", "there is no such rehearsal")
    return text
