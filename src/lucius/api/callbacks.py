"""Callbacks from services, and the directives that services pull over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Raw, Struct
from starlette.responses import Response

from lucius.api.answers import CallbackOutcome, CallbackOutcomes, Refused
from lucius.api.batch_items import read_each, split_resting
from lucius.api.endpoint import Call, JsonResponse, answer
from lucius.api.holding import check_pull, long_poll
from lucius.api.requests import SMALL_BODY_BYTES_MAX, read_body, read_typed
from lucius.api.sightings import saw
from lucius.domain.errors import LuciusError
from lucius.domain.json_types import ref, stated
from lucius.ports.bus import Delivery
from lucius.ports.engine import CallbackReply
from lucius.ports.workers import WorkerKind
from lucius.usecases.callback_bodies import AnyBody, read_any_callback, read_callback, single_bytes_max
from lucius.usecases.complete import PendingCallback

TOKEN_HEADER = "Lucius-Callback-Token"  # noqa: S105 - the name of a header


def _shown(reply: CallbackReply) -> CallbackOutcome:
    return {"outcome": reply.outcome, "cancel_requested": reply.cancel_requested}


async def _applied(call: Call, body: AnyBody, token: str | None) -> CallbackReply:
    completion = call.context.completion
    return await completion.conclude(completion.begin(body, token))


async def _callback(call: Call, kind: str) -> Response:
    bytes_max = single_bytes_max(call.context.settings.artifacts_bytes_max)
    body = read_callback(kind, await read_body(call.request, bytes_max))
    token = call.request.headers.get(TOKEN_HEADER) or body.callback_token
    traces = call.context.traces
    if not traces.enabled:
        return answer(_shown(await _applied(call, body, token)))
    ids: dict[str, str | int] = {"job_id": body.jobId, "step_id": body.stepId, "attempt_no": body.attempt_no}
    with traces.span(f"callback.{kind}", body.traceparent or call.request.headers.get("traceparent"), **ids) as span:
        reply = await _applied(call, body, token)
        span.set("outcome", reply.outcome.value)
        return answer(_shown(reply))


ack = partial(_callback, kind="ack")
heartbeat = partial(_callback, kind="heartbeat")
result = partial(_callback, kind="result")


class CallbackBatch(Struct, frozen=True):
    callbacks: Annotated[
        Raw,
        stated(type="array", items={"anyOf": [ref("Ack"), ref("Result"), ref("Heartbeat")]}, minItems=1),
    ]


async def batch(call: Call) -> Response:
    settings = call.context.settings
    body = await read_typed(call.request, settings.callbacks_body_bytes_max, CallbackBatch)
    items = await split_resting(body.callbacks, "callbacks", settings.batch_callbacks_max)
    bodies = await read_each(items, read_any_callback, single_bytes_max(settings.artifacts_bytes_max))
    pending = [_try_begin(call, item) for item in bodies]
    outcomes: list[CallbackOutcome | Refused] = []
    traces, completion = call.context.traces, call.context.completion
    for callback in pending:
        try:
            if isinstance(callback, LuciusError):
                raise callback
            if traces.enabled:
                outcomes.append(await _traced(call, callback))
            else:
                outcomes.append(_shown(completion.read(callback, await callback.answer)))
        except LuciusError as error:
            outcomes.append({"code": error.code, "detail": error.detail})
    return answer(CallbackOutcomes(outcomes=outcomes))


def _try_begin(call: Call, body: AnyBody | LuciusError) -> PendingCallback | LuciusError:
    if isinstance(body, LuciusError):
        return body
    try:
        return call.context.completion.begin(body, body.callback_token)
    except LuciusError as error:
        return error


async def _traced(call: Call, pending: PendingCallback) -> CallbackOutcome:
    ids = pending.ids
    about: dict[str, str | int] = {"job_id": ids.job_id, "step_id": ids.step_id, "attempt_no": ids.attempt_no}
    with call.context.traces.span(f"callback.{pending.kind.lower()}", pending.traceparent, **about) as span:
        reply = await call.context.completion.conclude(pending)
        span.set("outcome", reply.outcome.value)
        return _shown(reply)


class Pull(Struct, frozen=True, forbid_unknown_fields=True):
    service: Annotated[str, stated(minLength=1, maxLength=128)]
    max: Annotated[int, stated(minimum=0)] = 1
    wait_seconds: Annotated[float, stated(minimum=0)] = 0.0


async def pull(call: Call) -> Response:
    settings = call.context.settings
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, Pull)
    call.require_service(body.service)
    check_pull(settings, body.max, body.wait_seconds)
    lock_seconds = await call.context.pulls.lock_seconds(body.service)
    if not body.max:  # Its directives come from the bus, where nobody would see that it is there.
        saw(call, WorkerKind.SERVICE, body.service)
        return JsonResponse(b'{"directives":[]}')

    async def receive(seconds: float) -> list[Delivery]:
        saw(call, WorkerKind.SERVICE, body.service)
        return await call.context.pulls.receive(body.service, body.max, lock_seconds, seconds)

    deliveries = await long_poll(call, body.wait_seconds, receive, partial(call.require_service, body.service))
    saw(call, WorkerKind.SERVICE, body.service, len(deliveries))
    return JsonResponse(b'{"directives":[' + b",".join(delivery.body for delivery in deliveries) + b"]}")
