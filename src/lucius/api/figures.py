"""Figures over HTTP: the overview, and failures by reason."""

from __future__ import annotations

from starlette.responses import Response

from lucius.api import admin_answers
from lucius.api.endpoint import Call, answer
from lucius.api.lists import listing
from lucius.api.operation import LIST_ERRORS, Operation, Parameter
from lucius.api.requests import Parameters
from lucius.domain.routing import normal_form
from lucius.domain.signature import protocol_and_step
from lucius.domain.time import iso
from lucius.ports.ledger import FailureGroup
from lucius.usecases.lane_history import MILLIS_OF_MINUTE


def visible_tenants(call: Call, tenant: str | None) -> tuple[str, ...] | None:
    """The tenants that the caller sees, or the one that it asks for; None is all of them."""
    if tenant is not None:
        tenant_norm = normal_form(tenant)
        return (tenant_norm,) if call.caller.sees(tenant_norm) else ()
    tenants = call.caller.tenants
    return None if tenants is None else tuple(sorted(tenants))


@listing
async def get_overview(call: Call) -> Response:
    Parameters(call.request).close()
    figures, tenants = call.context.figures, visible_tenants(call, None)
    inflight: list[admin_answers.InFlight] = [
        {"scope": one.scope, "inflight": one.jobs, "max_inflight": one.maximum}
        for one in await figures.inflight(tenants)
    ]
    windows, waiting = await figures.counts(tenants), await figures.waiting(tenants)
    return answer(admin_answers.Overview(windows=windows, waiting=waiting, inflight=inflight))


@listing
async def list_failures(call: Call) -> Response:
    parameters = Parameters(call.request)
    tenant, created_from = parameters.text("tenant_id", 128), parameters.moment("created_from")
    dead_letters = parameters.choice("dead_letters", ("true", "false")) == "true"
    parameters.close()
    found = await call.context.figures.failures(visible_tenants(call, tenant), created_from, dead_letters)
    items = [_show_group(call, group) for group in found.groups]
    return answer(admin_answers.FailureList(items=items, next=None, scanned=found.scanned, cut_off=found.is_cut_off))


async def list_lane_history(call: Call) -> Response:
    Parameters(call.request).close()
    items: list[admin_answers.LaneSample] = [
        {"at": iso(sample.minute * MILLIS_OF_MINUTE), "oldest_seconds": list(sample.oldest_seconds)}
        for sample in await call.context.lane_history.samples()
    ]
    return answer(admin_answers.LaneHistory(items=items, next=None))


def service_of(call: Call, signature: str | None) -> str | None:
    """The service of the step that failed, as the newest version of its protocol has it."""
    protocol_id, step_id = protocol_and_step(signature)
    protocol = call.context.registry.snapshot().protocols.get(protocol_id)
    steps = () if protocol is None else protocol.steps
    return next((step.service for step in steps if step.id == step_id), None)


def _show_group(call: Call, group: FailureGroup) -> admin_answers.FailureGroup:
    return {
        "error_signature": group.error_signature,
        "service": service_of(call, group.error_signature),
        "jobs": group.jobs,
        "tenants": group.tenants,
        "first_at": iso(group.first_at),
        "last_at": iso(group.last_at),
        "newest_jobId": group.newest_id,
    }


FIGURE_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="GET", path="/v1/overview", name="getOverview", handler=get_overview, tag="jobs", role="read",
        summary="How many jobs were accepted, ended and failed, what waits and why, and what is in flight",
        answer="Overview", errors=("ENVELOPE_INVALID", *LIST_ERRORS),
    ),
    Operation(
        method="GET", path="/v1/failures", name="listFailures", handler=list_failures, tag="jobs", role="read",
        summary="List failed jobs by reason, the most frequent first", answer="FailureList",
        errors=("ENVELOPE_INVALID", *LIST_ERRORS),
        parameters=(
            Parameter("tenant_id", "query", "TenantId", "Only this tenant's jobs"),
            Parameter("created_from", "query", "Moment", "Only jobs accepted at this time or later"),
            Parameter("dead_letters", "query", "Flag", "`true`: only jobs that nobody has redriven or dismissed"),
        ),
    ),
    Operation(
        method="GET", path="/v1/admin/lane-history", name="listLaneHistory", handler=list_lane_history, tag="operators",
        summary="How long messages waited on each lane, minute by minute, in the last hour of this process",
        role="read", on_all_tenants=True, answer="LaneHistory", errors=("ENVELOPE_INVALID",),
    ),
)  # fmt: skip
