"""Operations: the rows of the table from which routes and the OpenAPI document are made."""

from __future__ import annotations

from msgspec import Struct

from lucius.api.endpoint import Handler


class Parameter(Struct, frozen=True):
    name: str
    where: str
    schema: str
    description: str


class Operation(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    name: str
    handler: Handler
    summary: str
    tag: str
    role: str | None
    on_all_tenants: bool = False
    body: str | None = None
    """Name of a component schema."""
    body_required: bool = True
    status: int = 200
    answer: str = "Anything"
    media_type: str = "application/json"
    errors: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()


LIMIT = Parameter("limit", "query", "PageSize", "Maximum number of items on the page")
HELD_ERRORS = ("WAITS_SATURATED",)
"""Errors of calls that may be held open."""
LIST_ERRORS = ("QUERY_TOO_SLOW", "LISTS_SATURATED")
JOB_LIST_ERRORS = (*LIST_ERRORS, "FILTER_UNSUPPORTED")
BODY_ERRORS = ("MALFORMED_JSON", "BODY_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE", "ENVELOPE_INVALID")
