"""Callbacks from services, and the directives that services take over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from lucius.api.endpoint import Answer, Call, answer
from lucius.api.requests import read_body, read_typed
from lucius.domain.errors import CallerError, LuciusError
from lucius.domain.protocol import PolicyOverride, resolve_policy
from lucius.domain.routing import LANE_TOPICS
from lucius.ports.engine import Told
from lucius.usecases.complete import AnyBody, Completion, read_batch, read_callback

TOKEN_HEADER = "Lucius-Callback-Token"  # noqa: S105 - the name of a header
SMALL_BODY_BYTES_MAX = 4_096
SINGLE_OVERHEAD_BYTES = 65_536
WAIT_SLICE_SECONDS = 1.0
LOCK_SHARE = 3
"""A pulled directive is locked for a third of the ack timeout."""


async def _callback(call: Call, kind: str) -> Response:
    settings = call.desk.settings
    body = await read_body(call.request, settings.artifacts_bytes_max * 2 + SINGLE_OVERHEAD_BYTES)
    callback = read_callback(kind, body)
    token = call.request.headers.get(TOKEN_HEADER) or callback.callback_token
    traces = call.desk.traces
    if not traces.enabled:
        return answer(_shown(await call.desk.completion.told(callback, token)))
    ids: dict[str, str | int] = {
        "job_id": callback.jobId,
        "step_id": callback.stepId,
        "attempt_no": callback.attempt_no,
    }
    with traces.span(f"callback.{kind}", call.request.headers.get("traceparent"), **ids) as span:
        told = await call.desk.completion.told(callback, token)
        span.set("outcome", told.outcome.value)
        return answer(_shown(told))


ack = partial(_callback, kind="ack")
heartbeat = partial(_callback, kind="heartbeat")
result = partial(_callback, kind="result")


def _shown(told: Told) -> dict[str, Any]:
    return {"outcome": told.outcome, "cancel_requested": told.cancel_requested}


async def batch(call: Call) -> Response:
    settings = call.desk.settings
    body = await read_body(call.request, settings.callbacks_body_bytes_max)
    callbacks = read_batch(body)
    if not 1 <= len(callbacks) <= settings.batch_callbacks_max:
        detail = f"a batch has 1 to {settings.batch_callbacks_max} callbacks, not {len(callbacks)}"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/callbacks")
    completion = call.desk.completion
    begun = [_begin(completion, callback) for callback in callbacks]
    return answer({"outcomes": [await _outcome(completion, one) for one in begun]})


_Begun = tuple[AnyBody, Awaitable[Told | None]] | LuciusError


def _begin(completion: Completion, callback: AnyBody | LuciusError) -> _Begun:
    if isinstance(callback, LuciusError):
        return callback
    try:
        return callback, completion.begin(callback, callback.callback_token)
    except LuciusError as error:
        return error


async def _outcome(completion: Completion, begun: _Begun) -> dict[str, Any]:
    try:
        if isinstance(begun, LuciusError):
            raise begun
        callback, answered = begun
        return _shown(completion.conclude(callback, await answered))
    except LuciusError as error:
        return {"code": error.code, "detail": error.detail}


class _Pull(Struct, frozen=True, forbid_unknown_fields=True):
    service: str
    max: int = 1
    wait_seconds: float = 0.0


async def pull(call: Call) -> Response:
    settings = call.desk.settings
    wanted = await read_typed(call.request, SMALL_BODY_BYTES_MAX, _Pull)
    if not 1 <= wanted.max <= settings.pull_max:
        raise CallerError.of("ENVELOPE_INVALID", f"max lies between 1 and {settings.pull_max}", "/max")
    if not 0 <= wanted.wait_seconds <= settings.wait_seconds_max:
        detail = f"wait_seconds lies between 0 and {settings.wait_seconds_max:g}"
        raise CallerError.of("ENVELOPE_INVALID", detail, "/wait_seconds")
    await call.desk.acceptance.declare()
    lock_seconds = await _lock_seconds(call, wanted.service)
    deliveries = await _receive(call, wanted, lock_seconds)
    body = b'{"directives":[' + b",".join(delivery.body for delivery in deliveries) + b"]}"
    return Answer(body)


async def _receive(call: Call, wanted: _Pull, lock_seconds: float) -> list[Any]:
    """Wait a second at a time, and look in between whether anybody is still there to take what comes."""
    loop, desk = asyncio.get_running_loop(), call.desk
    deadline = loop.time() + wanted.wait_seconds
    while True:
        left = max(0.0, min(deadline - loop.time(), WAIT_SLICE_SECONDS))
        taken = await desk.bus.receive(LANE_TOPICS, wanted.service, wanted.max, lock_seconds, left)
        if wanted.wait_seconds and await call.request.is_disconnected():
            # Whoever asked has gone meanwhile: what was taken for them need not wait until its lock ends.
            await desk.bus.abandon([delivery.ref for delivery in taken])
            return []
        if taken or loop.time() >= deadline or desk.stopping.is_set():
            return taken


async def _lock_seconds(call: Call, service: str) -> float:
    """A third of the shortest ack timeout that a step of this service may have."""
    snapshot = call.desk.registry.snapshot()
    steps = [step for protocol in snapshot.protocols.values() for step in protocol.steps]
    own = [step.policy for step in steps if step.service == service]
    if not own:
        # A service that only older versions of a protocol name may still have jobs that need it.
        own = [PolicyOverride() for depth in await call.desk.bus.depths() if depth.subscription == service][:1]
    if not own:
        known = ", ".join(sorted({step.service for step in steps}))
        raise CallerError.of("ENVELOPE_INVALID", f"no protocol names this service; known are {known}", "/service")
    tenants = [None, *(tenant.policy for tenant in snapshot.tenants.values())]
    shortest = min(
        resolve_policy(policy, tenant, snapshot.settings.policy).ack_timeout_seconds
        for policy in own
        for tenant in tenants
    )
    return shortest / LOCK_SHARE
