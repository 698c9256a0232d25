"""Every error that a caller can get: a stable code, its HTTP status, and whose fault it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from msgspec import Struct

STATUS_OF: dict[str, int] = {
    "HEADER_TOO_LARGE": 431,
    "REQUEST_TIMEOUT": 408,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "TENANT_FORBIDDEN": 403,
    "MODE_FORBIDDEN": 403,
    "REF_FORBIDDEN": 403,
    "JOB_NOT_FOUND": 404,
    "STEP_NOT_FOUND": 404,
    "JOB_TERMINAL": 409,
    "STALE_ATTEMPT": 409,
    "CONFLICT": 409,
    "RUNBOOKS_OFF": 409,
    "BODY_TOO_LARGE": 413,
    "MALFORMED_JSON": 400,
    "ENVELOPE_INVALID": 422,
    "SCHEMA_VERSION_UNSUPPORTED": 422,
    "REQUEST_TYPE_UNKNOWN": 422,
    "PAYLOAD_INVALID": 422,
    "REF_INVALID": 422,
    "DOC_ID_REQUIRED": 422,
    "IDEMPOTENCY_KEY_REUSED": 422,
    "RUNBOOK_INVALID": 422,
    "PROTOCOL_INVALID": 422,
    "MEMBERS_INVALID": 422,
    "SOURCE_FAILED": 422,
    "QUERY_TOO_SLOW": 422,
    "FILTER_UNSUPPORTED": 422,
    "TENANT_SATURATED": 429,
    "MODE_SATURATED": 429,
    "GLOBAL_SATURATED": 429,
    "RATE_LIMITED": 429,
    "WAITS_SATURATED": 429,
    "LISTS_SATURATED": 429,
    "UNAVAILABLE": 503,
    "INTERNAL": 500,
}
"""In order of precedence: a problem with several faults has the code that comes first here."""

_PRECEDENCE = {code: place for place, code in enumerate(STATUS_OF)}


class Fault(Struct, frozen=True):
    """One thing that is wrong, and where: `pointer` is a JSON pointer into the body ("" is the whole body)."""

    code: str
    pointer: str
    detail: str


class LuciusError(Exception):
    """An error with the code of its most serious fault."""

    def __init__(self, faults: Iterable[Fault], retry_after_seconds: float | None = None) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: _PRECEDENCE[fault.code]))
        self.code = self.faults[0].code
        self.detail = self.faults[0].detail
        self.status = STATUS_OF[self.code]
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{self.code}: {self.detail}")

    @classmethod
    def of(cls, code: str, detail: str, pointer: str = "", retry_after_seconds: float | None = None) -> Self:
        return cls([Fault(code, pointer, detail)], retry_after_seconds)


class CallerError(LuciusError):
    """The request cannot be carried out; repeating it unchanged does not help."""


class WorkerError(LuciusError):
    """A service called back about an attempt that it no longer has."""


class InfrastructureError(LuciusError):
    """Something that LUCIUS depends on failed: nothing was accepted, and the call can be repeated."""

    @classmethod
    def unavailable(cls, detail: str) -> InfrastructureError:
        return cls([Fault("UNAVAILABLE", "", detail)], retry_after_seconds=1)
