"""What people did: who, what, to what, why, when."""

from __future__ import annotations

import re

import msgspec
from starlette.responses import Response

from lucius.api import admin_answers
from lucius.api.endpoint import Call, answer
from lucius.api.figures import visible_tenants
from lucius.api.lists import listing
from lucius.api.operation import LIMIT, LIST_ERRORS, Operation, Parameter
from lucius.api.requests import Parameters
from lucius.domain.errors import CallerError
from lucius.domain.time import iso
from lucius.ports.audit import AuditEntry, AuditFilter, AuditKind

PAGE_SIZE = 100
ENTRY_ID = re.compile(r"[0-9a-f]{12}-[0-9a-f-]{1,60}")


def read_audit_filter(call: Call, parameters: Parameters) -> AuditFilter:
    """Within the tenants that the caller sees."""
    kind = parameters.choice("kind", AuditKind)
    return AuditFilter(
        tenants=visible_tenants(call, parameters.text("tenant_id", 128)),
        actor=parameters.text("by"),
        action=parameters.text("action"),
        kind=None if kind is None else AuditKind(kind),
        target=parameters.text("target"),
        at_from=parameters.moment("from"),
        at_to=parameters.moment("to"),
    )


def read_audit_cursor(parameters: Parameters) -> str | None:
    value = parameters.text("cursor", 80)
    if value is not None and not ENTRY_ID.fullmatch(value):
        raise CallerError.of("ENVELOPE_INVALID", "query parameter cursor is not a cursor returned by a list", "?cursor")
    return value


@listing
async def list_audit(call: Call) -> Response:
    parameters = Parameters(call.request)
    filter_, cursor = read_audit_filter(call, parameters), read_audit_cursor(parameters)
    limit = parameters.whole("limit", PAGE_SIZE, 1, call.context.settings.page_size_max)
    parameters.close()
    entries, following = await call.context.audit.newest(filter_, limit, cursor)
    return answer(admin_answers.AuditList(items=[show_audit_entry(entry) for entry in entries], next=following))


def show_audit_entry(entry: AuditEntry) -> admin_answers.AuditEntry:
    return {
        "id": entry.entry_id,
        "at": iso(entry.at),
        "by": entry.actor,
        "action": entry.action,
        "kind": entry.kind.value,
        "target": entry.target,
        "tenant_id": entry.tenant_id,
        "reason": entry.reason,
        "detail": msgspec.json.decode(entry.detail),
    }


AUDIT_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="GET", path="/v1/admin/audit", name="listAudit", handler=list_audit, tag="operators", role="read",
        summary="List what people did to jobs, dead letters, operations, runbooks and batches, newest first",
        answer="AuditList", errors=("ENVELOPE_INVALID", *LIST_ERRORS),
        parameters=(
            Parameter("tenant_id", "query", "TenantId", "Only what was done to this tenant's jobs"),
            Parameter("by", "query", "Name", "Only what this caller did, such as `key:operator`"),
            Parameter("action", "query", "Name", "Only this action, such as `cancel`"),
            Parameter("kind", "query", "AuditKind", "Only what was done to things of this kind"),
            Parameter("target", "query", "Name", "Only what was done to this job, operation, runbook or batch"),
            Parameter("from", "query", "Moment", "Only what was done at this time or later"),
            Parameter("to", "query", "Moment", "Only what was done before this time"),
            LIMIT,
            Parameter("cursor", "query", "Name", "The `next` of the previous page"),
        ),
    ),
)  # fmt: skip
