"""Bulk operations: one action on every job that matches a filter."""

from __future__ import annotations

import time
import uuid
from typing import Any
from urllib.parse import quote

from lucius.client.call import Json, Pause, Script, get, post
from lucius.client.calls.pages import given, paged
from lucius.client.errors import WaitTimedOut, content_of
from lucius.client.retrying import PATIENCE_SECONDS
from lucius.client.statuses import OPERATION_WAITED_FOR

OPERATIONS_LIMIT = 50
OUTCOMES_LIMIT = 200
LOOK_SECONDS = 0.5
WAIT_SECONDS = 3_600.0


def operation_path(operation_id: str) -> str:
    return f"/v1/operations/{quote(operation_id, safe='')}"


def preview(
    action: str,
    *,
    tenant_id: str | None = None,
    status: str | None = None,
    request_type: str | None = None,
    created_from: str | None = None,
    created_to: str | None = None,
    error_signature: str | None = None,
) -> Script[Json]:
    """Exactly how many jobs `action` (`cancel`, `pause`, `resume` or `redrive`) would act on, and the first of them."""
    wanted = _filter(tenant_id, status, request_type, created_from, created_to, error_signature)
    return content_of((yield post("/v1/operations:preview", {"action": action, "filter": wanted}, is_repeatable=True)))


def create(
    action: str,
    *,
    reason: str,
    tenant_id: str | None = None,
    status: str | None = None,
    request_type: str | None = None,
    created_from: str | None = None,
    created_to: str | None = None,
    error_signature: str | None = None,
    rate_per_second: float | None = None,
    canary: int | None = None,
    canary_max_failures: int | None = None,
    max_failures: int | None = None,
    idempotency_key: str | None = None,
) -> Script[Json]:
    """Do `action` to every job that matches. It goes on by itself; `wait` waits for its end."""
    body = {
        "action": action,
        "filter": _filter(tenant_id, status, request_type, created_from, created_to, error_signature),
        "reason": reason,
        "rate_per_second": rate_per_second,
        "canary": canary,
        "canary_max_failures": canary_max_failures,
        "max_failures": max_failures,
    }
    call = post(
        "/v1/operations",
        {name: value for name, value in body.items() if value is not None},
        headers={"Idempotency-Key": idempotency_key or uuid.uuid4().hex},
        is_repeatable=True,
    )
    return content_of((yield call))


def list_operations(*, limit: int = OPERATIONS_LIMIT, cursor: str = "") -> Script[Json]:
    """Bulk operations, newest first: at most `limit`."""
    return (yield from paged("/v1/operations", {}, limit, cursor))


def get_operation(operation_id: str, *, patience_seconds: float | None = None) -> Script[Json]:
    """A bulk operation and its progress."""
    return content_of((yield get(operation_path(operation_id), patience_seconds=patience_seconds)))


def outcomes(
    operation_id: str, *, status: str | None = None, limit: int = OUTCOMES_LIMIT, cursor: str = ""
) -> Script[Json]:
    """What became of each job, oldest first: at most `limit`, over as many pages as needed."""
    return (yield from paged(operation_path(operation_id) + "/outcomes", given(status=status), limit, cursor))


def wait(
    operation_id: str, *, timeout_seconds: float = WAIT_SECONDS, patience_seconds: float = PATIENCE_SECONDS
) -> Script[Json]:
    """The operation once it has ended or stopped because too many jobs failed. Raises `WaitTimedOut` after
    `timeout_seconds`; the operation then continues."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        operation = yield from get_operation(operation_id, patience_seconds=patience_seconds)
        if operation.get("status") in OPERATION_WAITED_FOR:
            return operation
        left = deadline - time.monotonic()
        if left <= 0:
            state = operation.get("status")
            raise WaitTimedOut(f"operation {operation_id} is still {state} after {timeout_seconds:g} s", operation)
        yield Pause(min(LOOK_SECONDS, left))


def pause(operation_id: str, *, reason: str | None = None) -> Script[Json]:
    """Act on no more jobs until it is resumed."""
    return (yield from steer(operation_id, "pause", reason))


def resume(operation_id: str, *, reason: str | None = None) -> Script[Json]:
    """Resume an operation that was paused, or has stopped; failures are then counted anew."""
    return (yield from steer(operation_id, "resume", reason))


def abandon(operation_id: str, *, reason: str | None = None) -> Script[Json]:
    """End an operation. Jobs that it has not acted on are left alone."""
    return (yield from steer(operation_id, "abandon", reason))


def steer(operation_id: str, verb: str, reason: str | None = None) -> Script[Json]:
    body: Json = {"reason": reason} if reason else {}
    return content_of((yield post(f"{operation_path(operation_id)}:{verb}", body)))


def _filter(
    tenant_id: str | None,
    status: str | None,
    request_type: str | None,
    created_from: str | None,
    created_to: str | None,
    error_signature: str | None,
) -> dict[str, Any]:
    return given(
        tenant_id=tenant_id,
        status=status,
        request_type=request_type,
        created_from=created_from,
        created_to=created_to,
        error_signature=error_signature,
    )
