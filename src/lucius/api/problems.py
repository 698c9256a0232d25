"""Maps every error to `application/problem+json`."""

from __future__ import annotations

import logging
import math

import msgspec
from starlette.responses import Response

from lucius.api.answers import Problem, RefusedCommand
from lucius.domain.errors import CallerError, LuciusError

log = logging.getLogger("lucius.api")

_encode = msgspec.json.Encoder().encode


def describe(error: LuciusError) -> RefusedCommand:
    """The fields of a problem that do not depend on HTTP; also the form of a rejected item in a batch."""
    return {
        "code": error.code,
        "detail": error.detail,
        "errors": [{"code": f.code, "pointer": f.pointer, "detail": f.detail} for f in error.faults],
    }


def problem(error: LuciusError, correlation_id: str) -> Response:
    body: Problem = {
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
    """The answer to a bug: logged with its traceback, and not disclosed to the caller."""
    log.error("unexpected error", exc_info=error, extra={"correlation_id": correlation_id})
    shown = LuciusError.of("INTERNAL", "an unexpected error; it was logged with this correlation id")
    return problem(shown, correlation_id)


NO_ROUTE = {
    404: CallerError.of("NOT_FOUND", "there is nothing at this address; see /openapi.json"),
    405: CallerError.of("METHOD_NOT_ALLOWED", "this address does not support that method; see /openapi.json"),
}
