"""Calls for operators and monitoring: protocols, outbox, dead letters, lanes, tenants, health."""

from __future__ import annotations

from starlette.responses import Response

from lucius.api import admin_answers, answers
from lucius.api.endpoint import Call, answer
from lucius.api.job_views import show_attempt, show_unreadable
from lucius.api.jobs import read_job_id
from lucius.api.lists import listing, shown
from lucius.api.requests import (
    REASON_CHARS_MAX,
    SMALL_BODY_BYTES_MAX,
    Dismiss,
    Parameters,
    read_body,
    read_typed,
)
from lucius.domain.errors import CallerError
from lucius.domain.protocol import Protocol
from lucius.domain.routing import LANE_COUNT, lane_topic
from lucius.domain.time import Instant, iso
from lucius.ports.ledger import Closing, JobFilter, OutboxRow, UnreadableJob
from lucius.usecases.readiness import Status

LIST_MAX = 100


def _show_protocol(protocol: Protocol) -> admin_answers.Protocol:
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
    protocols = call.context.registry.snapshot().protocols
    items = [_show_protocol(protocols[name]) for name in sorted(protocols)]
    return answer(admin_answers.ProtocolList(items=items, next=None))


async def get_protocol(call: Call) -> Response:
    Parameters(call.request).close()
    snapshot, name = call.context.registry.snapshot(), call.request.path_params["protocol_id"]
    protocol = snapshot.protocols.get(name) or snapshot.request_types.get(name)
    if protocol is None:
        raise CallerError.of("NOT_FOUND", "there is no such protocol")
    return answer(_show_protocol(protocol))


async def retry_outbox(call: Call) -> Response:
    await read_body(call.request, SMALL_BODY_BYTES_MAX, may_be_empty=True)
    done = await call.context.engine.retry_outbox()
    return answer(admin_answers.Retried(retried=done.retried, waiting=done.waiting, detail=done.problem))


@listing
async def list_outbox(call: Call) -> Response:
    parameters = Parameters(call.request)
    limit = parameters.whole("limit", LIST_MAX, 1, call.context.settings.page_size_max)
    parameters.close()
    rows = await call.context.ledger.outbox(limit)
    return answer(admin_answers.OutboxList(items=[_show_outbox_row(row) for row in rows], next=None))


def _show_outbox_row(row: OutboxRow | UnreadableJob) -> admin_answers.OutboxRow | answers.Unreadable:
    if isinstance(row, UnreadableJob):
        return show_unreadable(row)
    return {
        "jobId": row.job_id, "stepId": row.step_id, "tenant_id": row.tenant_id, "topic": row.routing.topic,
        "partition": row.routing.lane, "claimed_until": iso(row.attempt.claimed_until),
        **show_attempt(row.attempt, row.routing),
    }  # fmt: skip


@listing
async def list_dead_letters(call: Call) -> Response:
    """Jobs that failed permanently, and messages that the bus gave up on."""
    parameters = Parameters(call.request)
    limit = parameters.whole("limit", LIST_MAX, 1, call.context.settings.page_size_max)
    cursor = parameters.job_cursor()
    is_dismissed = parameters.choice("dismissed", ("true", "false")) == "true"
    parameters.close()
    wanted = JobFilter(dead_letter=not is_dismissed, dismissed=is_dismissed)
    jobs, after_id = await call.context.queries.jobs(wanted, limit, cursor)
    closings = await call.context.ledger.closings([job.job_id for job in jobs]) if is_dismissed else {}
    letters = [] if is_dismissed else await call.context.bus.dead_letters(limit)
    about = await call.context.runbooks.dead_letters.describe(letters)
    messages: list[admin_answers.DeadMessage] = [
        {"messageId": letter.ref.message_id, "topic": letter.ref.topic, "subscription": letter.ref.subscription,
         "delivery_count": letter.delivery_count, "reason": letter.reason, "dead_at": iso(letter.dead_at),
         "runbook": about.get(letter.ref)}
        for letter in letters
    ]  # fmt: skip
    dismissals = [_show_dismissal(closings[job.job_id]) for job in jobs if job.job_id in closings]
    items = await shown(call, jobs)
    return answer(admin_answers.DeadLetters(items=items, messages=messages, dismissals=dismissals, next=after_id))


async def dismiss_dead_letter(call: Call) -> Response:
    body = await read_typed(call.request, SMALL_BODY_BYTES_MAX, Dismiss)
    reason = body.reason.replace("\x00", "").strip()[:REASON_CHARS_MAX]
    if not reason:
        raise CallerError.of("ENVELOPE_INVALID", "say why it is dismissed: the reason is kept", "/reason")
    by, sees = call.caller.name, call.caller.sees
    return answer(_show_dismissal(await call.context.operations.dismiss(read_job_id(call), by, reason, sees)))


def _show_dismissal(closing: Closing) -> admin_answers.Dismissal:
    return {
        "jobId": closing.job_id,
        "dismissed_at": iso(closing.at),
        "dismissed_by": closing.by,
        "reason": closing.reason,
    }


async def list_lanes(call: Call) -> Response:
    Parameters(call.request).close()
    by_lane: dict[int, list[admin_answers.LaneSubscription]] = {lane: [] for lane in range(LANE_COUNT)}
    for load in await call.context.lanes.loads():
        depth, unsent = load.depth, load.unsent
        by_lane[load.lane].append(
            {
                "service": load.service,
                "ready": depth.ready,
                "locked": depth.locked,
                "dead": depth.dead,
                "redelivered": depth.redelivered,
                "oldest_at": _shown(depth.oldest_at),
                "unsent": unsent.count,
                "held": unsent.held,
                "oldest_unsent_at": _shown(unsent.oldest_at),
                "consumers": load.consumers,
                "last_asked_at": _shown(load.last_asked_at),
                "note": call.context.sightings.absent_service(load.service) if depth.ready else None,
            }
        )
    items: list[admin_answers.Lane] = [
        {"lane": lane, "topic": lane_topic(lane), "subscriptions": by_lane[lane]} for lane in range(LANE_COUNT)
    ]
    return answer(admin_answers.LaneList(items=items, next=None))


def _shown(moment: Instant | None) -> str | None:
    return None if moment is None else iso(moment)


async def list_tenants(call: Call) -> Response:
    Parameters(call.request).close()
    snapshot, inflight = call.context.registry.snapshot(), await call.context.ledger.inflight()
    counted = {scope.removeprefix("tenant:") for scope in inflight if scope.startswith("tenant:")}
    items: list[admin_answers.Tenant] = []
    for tenant_id in sorted(counted | set(snapshot.tenants)):
        tenant = snapshot.tenants.get(tenant_id)
        tenant_max = tenant.max_inflight if tenant else None
        items.append(
            {
                "tenant_id": tenant_id,
                "registered": tenant is not None,
                "mode": tenant.mode if tenant else None,
                "burst_allowed": tenant.burst_allowed if tenant else True,
                "inflight": inflight.get(f"tenant:{tenant_id}", 0),
                "max_inflight": snapshot.settings.max_inflight_per_tenant if tenant_max is None else tenant_max,
            }
        )
    total = inflight.get("global", 0)
    total_max = snapshot.settings.max_inflight
    return answer(admin_answers.TenantList(items=items, next=None, inflight=total, max_inflight=total_max))


async def healthz(call: Call) -> Response:
    return answer(admin_answers.Health(status="ok"))


async def readyz(call: Call) -> Response:
    """Readiness without the dependencies: those are shown on the management port only."""
    report = await call.context.management.readiness.look()
    if report.is_ready:
        return answer(admin_answers.Health(status=Status.OK))
    return answer(admin_answers.Health(status=Status.UNAVAILABLE), 503)
