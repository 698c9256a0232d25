"""Notifications over HTTP: what was sent to whom, why something fails, and tests."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from starlette.responses import Response

from lucius.api import admin_answers
from lucius.api.audit import ENTRY_ID, read_audit_cursor
from lucius.api.endpoint import Call, answer
from lucius.api.figures import visible_tenants
from lucius.api.lists import listing
from lucius.api.operation import BODY_ERRORS, LIMIT, LIST_ERRORS, Operation, Parameter
from lucius.api.requests import SMALL_BODY_BYTES_MAX, Parameters, read_typed
from lucius.api.runbook_scope import scope_of
from lucius.domain.errors import CallerError
from lucius.domain.json_types import stated
from lucius.domain.routing import normal_form
from lucius.domain.time import iso
from lucius.notifications import rendering
from lucius.notifications.store import PENDING, STATUSES, Notification, NotificationFilter

PAGE_SIZE = 50


class NotificationTest(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose recipient: a runbook's or a tenant's."""

    recipient: Annotated[str, stated(minLength=1, maxLength=64)]
    runbook: Annotated[str, stated(minLength=1, maxLength=128)] | None = None
    tenant_id: Annotated[str, stated(minLength=1, maxLength=128)] | None = None


@listing
async def list_notifications(call: Call) -> Response:
    parameters = Parameters(call.request)
    runbook, tenant = parameters.text("runbook", 128), parameters.text("tenant_id", 128)
    status, cursor = parameters.choice("status", STATUSES), read_audit_cursor(parameters)
    limit = parameters.whole("limit", PAGE_SIZE, 1, call.context.settings.page_size_max)
    parameters.close()
    filter_ = NotificationFilter(owners=_owners(call, runbook, tenant), status=status)
    found = await call.context.notifications.newest(filter_, limit + 1, cursor)
    following = found[limit - 1].notification_id if len(found) > limit else None
    return answer(
        admin_answers.NotificationList(items=[show_notification(one) for one in found[:limit]], next=following)
    )


def _owners(call: Call, runbook: str | None, tenant: str | None) -> tuple[str, ...] | None:
    """Whose notifications are listed, within what the caller sees; None is everybody's."""
    tenants = visible_tenants(call, tenant)
    if runbook is None:
        return None if tenants is None else tuple(f"tenant:{one}" for one in tenants)
    is_seen = scope_of(call.caller).sees(runbook) and tenant is None
    return (f"runbook:{runbook}",) if is_seen else ()


async def get_notification(call: Call) -> Response:
    Parameters(call.request).close()
    notification_id = call.request.path_params["notification_id"]
    found = None
    if ENTRY_ID.fullmatch(notification_id):
        found = await call.context.notifications.get(notification_id)
    if found is None or not _is_seen(call, found):
        raise CallerError.of("NOT_FOUND", "there is no such notification, or it ended long ago")
    return answer(show_notification(found))


def _is_seen(call: Call, one: Notification) -> bool:
    tenant_id = one.facts.tenant_id
    return call.caller.tenants is None if tenant_id is None else call.caller.sees(tenant_id)


async def send_test(call: Call) -> Response:
    wanted = await read_typed(call.request, SMALL_BODY_BYTES_MAX, NotificationTest)
    if (wanted.runbook is None) == (wanted.tenant_id is None):
        raise CallerError.of(
            "ENVELOPE_INVALID", "name either the runbook or the tenant whose recipient it is", "/runbook"
        )
    notifications, by = call.context.notifications, call.caller.name
    if wanted.runbook is not None:
        scope_of(call.caller).check_runbook(wanted.runbook)
        sent = await notifications.test_runbook(call.context.runbooks, wanted.runbook, wanted.recipient, by)
    else:
        tenant = normal_form(wanted.tenant_id or "")
        if not call.caller.sees(tenant):
            raise CallerError.of("TENANT_FORBIDDEN", "this key or token may not act for this tenant", "/tenant_id")
        sent = await notifications.test_tenant(tenant, wanted.recipient, by)
    return answer(show_notification(sent), 202)


def show_notification(one: Notification) -> admin_answers.Notification:
    facts = one.facts
    return {
        "id": one.notification_id,
        "cause": one.cause,
        "recipient": one.recipient_name,
        "kind": one.recipient.kind,
        "status": one.status,
        "title": rendering.title(facts),
        "text": rendering.text(facts),
        "runbook": facts.runbook,
        "batch_id": facts.batch_id,
        "tenant_id": facts.tenant_id,
        "jobId": facts.job_id,
        "count": facts.count,
        "created_at": iso(one.created_at),
        "due_at": iso(one.due_at),
        "next_try_at": iso(one.next_at) if one.status == PENDING else None,
        "ended_at": None if one.ended_at is None else iso(one.ended_at),
        "attempts": one.attempts,
        "last_error": one.last_error,
    }


_ID = Parameter("notification_id", "path", "Name", "The notification's id, from the list or the response to a test")

NOTIFICATION_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="GET", path="/v1/notifications", name="listNotifications", handler=list_notifications, tag="operators",
        summary="List notifications of batches and jobs, newest first", role="read", answer="NotificationList",
        errors=("ENVELOPE_INVALID", *LIST_ERRORS),
        parameters=(
            Parameter("runbook", "query", "Name", "Only those of this runbook"),
            Parameter("tenant_id", "query", "TenantId", "Only those of this tenant's jobs"),
            Parameter("status", "query", "NotificationStatus", "Only those in this state"),
            LIMIT,
            Parameter("cursor", "query", "Name", "The `next` of the previous page"),
        ),
    ),
    Operation(
        method="GET", path="/v1/notifications/{notification_id}", name="getNotification", handler=get_notification,
        tag="operators", summary="Get a notification, and why it is not delivered", role="read", answer="Notification",
        errors=("NOT_FOUND", "ENVELOPE_INVALID"), parameters=(_ID,),
    ),
    Operation(
        method="POST", path="/v1/notifications:test", name="testNotification", handler=send_test,
        tag="operators", summary="Send a test to a recipient of a runbook or a tenant", role="operate",
        body="NotificationTest", status=202, answer="Notification",
        errors=(*BODY_ERRORS, "TENANT_FORBIDDEN", "NOT_FOUND", "CONFLICT", "RUNBOOKS_OFF"),
    ),
)  # fmt: skip
