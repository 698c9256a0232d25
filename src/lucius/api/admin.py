"""What operators and machines look at: protocols, outbox, dead letters, lanes, tenants, health, metrics."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from lucius.api.endpoint import Call, answer
from lucius.api.requests import Parameters, read_body
from lucius.domain.errors import CallerError, LuciusError
from lucius.domain.protocol import Protocol
from lucius.domain.routing import LANE_COUNT, lane_topic
from lucius.domain.time import iso
from lucius.ports.bus import BusUnavailable
from lucius.ports.ledger import JobFilter, LedgerUnavailable
from lucius.telemetry import METRICS_CONTENT_TYPE
from lucius.usecases.query import show_attempt, show_job

LIST_MAX = 100


def _show_protocol(protocol: Protocol) -> dict[str, Any]:
    return {
        "id": protocol.id,
        "version": protocol.version,
        "description": protocol.description,
        "request_types": protocol.request_types,
        "steps": [
            {
                "stepId": step.id,
                "step_type": step.type,
                "service": step.service,
                "payload_pointer": step.payload_pointer,
                "payload_schema": step.payload_schema,
            }
            for step in protocol.steps
        ],
    }


async def list_protocols(call: Call) -> Response:
    Parameters(call.request).close()
    protocols = call.desk.registry.snapshot().protocols
    return answer({"items": [_show_protocol(protocols[name]) for name in sorted(protocols)], "next": None})


async def get_protocol(call: Call) -> Response:
    Parameters(call.request).close()
    snapshot, name = call.desk.registry.snapshot(), call.request.path_params["protocol_id"]
    protocol = snapshot.protocols.get(name) or snapshot.request_types.get(name)
    if protocol is None:
        raise CallerError.of("NOT_FOUND", "there is no such protocol")
    return answer(_show_protocol(protocol))


async def retry_outbox(call: Call) -> Response:
    await read_body(call.request, 4_096, may_be_empty=True)
    return answer({"retried": await call.desk.engine.retry_outbox()})


async def list_outbox(call: Call) -> Response:
    parameters = Parameters(call.request)
    limit = parameters.whole("limit", LIST_MAX, 1, call.desk.settings.page_size_max)
    parameters.close()
    rows = await call.desk.ledger.outbox(limit)
    items = [
        {"jobId": row.job_id, "stepId": row.step_id, "tenant_id": row.tenant_id, "lane": row.lane,
         "claimed_until": iso(row.attempt.claimed_until), **show_attempt(row.attempt)}
        for row in rows
    ]  # fmt: skip
    return answer({"items": items, "next": None})


async def list_dead_letters(call: Call) -> Response:
    """Jobs that failed for good, and messages that the bus gave up on."""
    parameters = Parameters(call.request)
    limit = parameters.whole("limit", LIST_MAX, 1, call.desk.settings.page_size_max)
    cursor = parameters.job_cursor()
    parameters.close()
    jobs, after_id = await call.desk.queries.jobs(JobFilter(dead_letter=True), limit, cursor)
    letters = await call.desk.bus.dead_letters(limit)
    messages = [
        {"messageId": letter.ref.message_id, "topic": letter.ref.topic, "subscription": letter.ref.subscription,
         "delivery_count": letter.delivery_count, "reason": letter.reason, "dead_at": iso(letter.dead_at)}
        for letter in letters
    ]  # fmt: skip
    return answer({"items": [show_job(job) for job in jobs], "messages": messages, "next": after_id})


async def list_lanes(call: Call) -> Response:
    Parameters(call.request).close()
    by_topic: dict[str, list[dict[str, Any]]] = {lane_topic(lane): [] for lane in range(LANE_COUNT)}
    for depth in await call.desk.bus.depths():
        if depth.topic in by_topic:
            by_topic[depth.topic].append(
                {
                    "service": depth.subscription,
                    "ready": depth.ready,
                    "locked": depth.locked,
                    "dead": depth.dead,
                    "oldest_at": iso(depth.oldest_at) if depth.oldest_at is not None else None,
                }
            )
    items = [
        {"lane": lane, "topic": lane_topic(lane), "subscriptions": by_topic[lane_topic(lane)]}
        for lane in range(LANE_COUNT)
    ]
    return answer({"items": items, "next": None})


async def list_tenants(call: Call) -> Response:
    Parameters(call.request).close()
    snapshot, inflight = call.desk.registry.snapshot(), await call.desk.ledger.inflight()
    counted = {scope.removeprefix("tenant:") for scope in inflight if scope.startswith("tenant:")}
    items = []
    for tenant_id in sorted(counted | set(snapshot.tenants)):
        tenant = snapshot.tenants.get(tenant_id)
        own = tenant.max_inflight if tenant else None
        items.append(
            {
                "tenant_id": tenant_id,
                "registered": tenant is not None,
                "mode": tenant.mode if tenant else None,
                "burst_allowed": tenant.burst_allowed if tenant else True,
                "inflight": inflight.get(f"tenant:{tenant_id}", 0),
                "max_inflight": snapshot.settings.max_inflight_per_tenant if own is None else own,
            }
        )
    total = inflight.get("global", 0)
    return answer({"items": items, "next": None, "inflight": total, "max_inflight": snapshot.settings.max_inflight})


async def healthz(call: Call) -> Response:
    return answer({"status": "ok"})


async def readyz(call: Call) -> Response:
    """Ready when everything it depends on is; each is named, with what is wrong with it."""
    checks: dict[str, Any] = {}
    try:
        checks.update(await call.desk.engine.health())
        is_ready = True
    except (LuciusError, LedgerUnavailable, BusUnavailable) as error:
        is_ready = False
        place = {LedgerUnavailable: "ledger", BusUnavailable: "bus"}.get(type(error), "engine")
        checks[place] = str(error)
    problems = getattr(call.desk.registry, "problems", ())
    checks["registry"] = [str(one) for one in problems] or "ok"
    checks["api_keys"] = call.desk.authenticator.problem or "ok"
    status = "ok" if is_ready else "unavailable"
    return answer({"status": status, "checks": checks}, 200 if is_ready else 503)


async def metrics(call: Call) -> Response:
    desk = call.desk
    await desk.metrics.collect(desk.ledger, desk.bus, desk.registry.snapshot(), desk.runbooks.turns.database)
    return Response(desk.metrics.render(), 200, None, METRICS_CONTENT_TYPE)
