"""Errors as answers: one place maps every error to `application/problem+json`."""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec
from starlette.responses import Response

from lucius.domain.errors import CallerError, LuciusError

log = logging.getLogger("lucius.api")

_encode = msgspec.json.Encoder().encode


def describe(error: LuciusError) -> dict[str, Any]:
    """What a problem says beside its HTTP form: also the shape of a refused item in a batch."""
    return {
        "code": error.code,
        "detail": error.detail,
        "errors": [{"code": f.code, "pointer": f.pointer, "detail": f.detail} for f in error.faults],
    }


def problem(error: LuciusError, correlation_id: str) -> Response:
    body = {
        "type": f"urn:lucius:problem:{error.code.lower().replace('_', '-')}",
        "title": error.code.replace("_", " ").capitalize(),
        "status": error.status,
        **describe(error),
        "correlation_id": correlation_id,
    }
    headers = {"Cache-Control": "no-store"}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    return Response(_encode(body), error.status, headers, "application/problem+json")


def defect(error: BaseException, correlation_id: str) -> Response:
    """A defect of ours: logged whole, and nothing of it told."""
    log.error("unexpected error", exc_info=error, extra={"correlation_id": correlation_id})
    told = LuciusError.of("INTERNAL", "an unexpected error; it was logged with this correlation id")
    return problem(told, correlation_id)


NO_ROUTE = {
    404: CallerError.of("NOT_FOUND", "there is nothing at this address; see /openapi.json"),
    405: CallerError.of("METHOD_NOT_ALLOWED", "this address does not take that method; see /openapi.json"),
}
