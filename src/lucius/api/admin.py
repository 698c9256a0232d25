"""Calls for operators and monitoring: protocols, outbox, dead letters, lanes, tenants, health."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import asdict
from starlette.responses import Response

from lucius.api import admin_answers, answers
from lucius.api.endpoint import Call, answer
from lucius.api.figures import visible_tenants
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
from lucius.app_context import AppContext
from lucius.domain.errors import CallerError
from lucius.domain.job import JobStatus
from lucius.domain.protocol import Protocol, resolve_policy
from lucius.domain.routing import LANE_COUNT, lane_topic
from lucius.domain.time import Instant, iso
from lucius.ports.ledger import REFUSED, Closing, JobFilter, OutboxRow, UnreadableJob
from lucius.ports.registry import Globals
from lucius.usecases.figures import WINDOWS, TenantFigures
from lucius.usecases.readiness import Status

LIST_MAX = 100
LANE_TENANTS_MAX = 10
"""Tenants of a lane that are named, those with the most open jobs."""


def show_protocol(protocol: Protocol, settings: Globals) -> admin_answers.Protocol:
    deadline = protocol.job_deadline_seconds
    return {
        "id": protocol.id,
        "version": protocol.version,
        "description": protocol.description,
        "request_types": protocol.request_types,
        "job_deadline_seconds": settings.job_deadline_seconds if deadline is None else deadline,
        "steps": [
            {
                "stepId": step.id,
                "step_type": step.type,
                "service": step.service,
                "payload_pointer": step.payload_pointer,
                "payload_schema": step.payload_schema,
                "searchable": step.searchable,
                "policy": asdict(resolve_policy(step.policy, settings.policy)),
            }
            for step in protocol.steps
        ],
    }


async def list_protocols(call: Call) -> Response:
    Parameters(call.request).close()
    snapshot = call.context.registry.snapshot()
    items = [show_protocol(snapshot.protocols[name], snapshot.settings) for name in sorted(snapshot.protocols)]
    return answer(admin_answers.ProtocolList(items=items, next=None))


def find_protocol(call: Call) -> Protocol:
    """By id or request type. Raises NOT_FOUND."""
    snapshot, name = call.context.registry.snapshot(), call.request.path_params["protocol_id"]
    protocol = snapshot.protocols.get(name) or snapshot.request_types.get(name)
    if protocol is None:
        raise CallerError.of("NOT_FOUND", "there is no such protocol")
    return protocol


async def get_protocol(call: Call) -> Response:
    Parameters(call.request).close()
    return answer(show_protocol(find_protocol(call), call.context.registry.snapshot().settings))


@listing
async def get_protocol_figures(call: Call) -> Response:
    Parameters(call.request).close()
    return answer(await protocol_figures(call, find_protocol(call)))


async def protocol_figures(call: Call, protocol: Protocol) -> admin_answers.ProtocolFigures:
    """Of the tenants that the caller sees."""
    figures, tenants = call.context.figures, visible_tenants(call, None)
    found = await figures.open_jobs(tenants)
    open_jobs = {protocol.version: 0}
    for group in found.groups:
        if group.protocol_id == protocol.id:
            open_jobs[group.protocol_version] = open_jobs.get(group.protocol_version, 0) + group.jobs
    return {
        "id": protocol.id,
        "versions": [
            {"version": version, "is_current": version == protocol.version, "open_jobs": jobs}
            for version, jobs in sorted(open_jobs.items(), reverse=True)
        ],
        "cut_off": found.is_cut_off,
        "steps": [
            {
                "stepId": one.step_id,
                "jobs": one.jobs,
                "median_seconds": one.median_seconds,
                "p95_seconds": one.p95_seconds,
            }
            for one in await figures.durations(protocol, tenants)
        ],
    }


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
    about = await call.context.describe_dead_letters(letters)
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
    return answer(admin_answers.LaneList(items=await show_lanes(call.context), next=None))


async def show_lanes(context: AppContext) -> list[admin_answers.Lane]:
    by_lane: dict[int, list[admin_answers.LaneSubscription]] = {lane: [] for lane in range(LANE_COUNT)}
    for load in await context.lanes.loads():
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
                "note": context.sightings.absent_service(load.service) if depth.ready else None,
            }
        )
    tenants: dict[int, Counter[str]] = {lane: Counter() for lane in range(LANE_COUNT)}
    for group in (await context.figures.open_jobs(None)).groups:
        tenants[group.lane][group.tenant_id] += group.jobs
    return [
        {
            "lane": lane,
            "topic": lane_topic(lane),
            "subscriptions": by_lane[lane],
            "tenant_count": len(tenants[lane]),
            "tenants": [
                {"tenant_id": tenant_id, "open_jobs": jobs}
                for tenant_id, jobs in tenants[lane].most_common(LANE_TENANTS_MAX)
            ],
        }
        for lane in range(LANE_COUNT)
    ]


def _shown(moment: Instant | None) -> str | None:
    return None if moment is None else iso(moment)


@listing
async def list_tenants(call: Call) -> Response:
    parameters = Parameters(call.request)
    window = parameters.choice("window", WINDOWS) or "hour"
    parameters.close()
    context = call.context
    items = [show_tenant(one) for one in await context.figures.of_tenants(visible_tenants(call, None), window)]
    if call.caller.tenants is not None:
        return answer(admin_answers.TenantList(items=items, next=None, inflight=None, max_inflight=None))
    total = (await context.ledger.inflight()).get("global", 0)
    total_max = context.registry.snapshot().settings.max_inflight
    return answer(admin_answers.TenantList(items=items, next=None, inflight=total, max_inflight=total_max))


def show_tenant(one: TenantFigures) -> admin_answers.Tenant:
    tenant = one.tenant
    return {
        "tenant_id": one.tenant_id,
        "registered": tenant is not None,
        "mode": tenant.mode if tenant else None,
        "burst_allowed": tenant.burst_allowed if tenant else True,
        "inflight": one.inflight,
        "max_inflight": one.max_inflight,
        "accepted": one.counts.get("ACCEPTED", 0),
        "refused": one.counts.get(REFUSED, 0),
        "ended": one.ended,
        "failed": one.counts.get(JobStatus.FAILED_FINAL, 0),
        "oldest_waiting_jobId": one.oldest_waiting,
        "oldest_waiting_at": _shown(one.oldest_waiting_at),
    }


async def healthz(call: Call) -> Response:
    return answer(admin_answers.Health(status="ok"))


async def readyz(call: Call) -> Response:
    """Readiness without the dependencies: those are shown on the management port only."""
    report = await call.context.management.readiness.look()
    if report.is_ready:
        return answer(admin_answers.Health(status=Status.OK))
    return answer(admin_answers.Health(status=Status.UNAVAILABLE), 503)
