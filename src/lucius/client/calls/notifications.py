"""Calls about notifications: what was sent to whom, and tests."""

from __future__ import annotations

from urllib.parse import quote

from lucius.client.call import Json, Script, get, post
from lucius.client.calls.pages import given
from lucius.client.errors import content_of

NOTIFICATIONS_LIMIT = 50


def notifications(
    *,
    runbook: str = "",
    tenant: str = "",
    status: str = "",
    limit: int = NOTIFICATIONS_LIMIT,
    cursor: str = "",
) -> Script[Json]:
    """Notifications, newest first: of one runbook, of one tenant, or in one state, if given."""
    query = given(runbook=runbook, tenant_id=tenant, status=status, limit=limit, cursor=cursor)
    return content_of((yield get("/v1/notifications", query)))


def notification(notification_id: str) -> Script[Json]:
    """A notification, and why it is not delivered."""
    return content_of((yield get(f"/v1/notifications/{quote(notification_id, safe='')}")))


def send_test(recipient: str, *, runbook: str = "", tenant: str = "") -> Script[Json]:
    """Send a test to a recipient of a runbook or of a tenant; returns the notification, which is sent soon."""
    body = {"recipient": recipient} | given(runbook=runbook, tenant_id=tenant)
    return content_of((yield post("/v1/notifications:test", body)))
