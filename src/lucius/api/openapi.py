"""OpenAPI, generated from the table of operations."""

from __future__ import annotations

from typing import Any

from lucius import __version__
from lucius.api.components import components
from lucius.api.examples import EXAMPLES
from lucius.api.operations import OPERATIONS, Operation
from lucius.domain.errors import STATUS_OF
from lucius.settings import Settings

RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait before retrying",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
}
LOCATION = {"Location": {"description": "Address of what was made", "required": True, "schema": {"type": "string"}}}
REPLAYED = {
    "Idempotency-Replayed": {
        "description": "`true` if this key was used before: nothing was done again",
        "schema": {"const": "true"},
    }
}
ANSWER_HEADERS = {
    "submitCommand": {**LOCATION, **REPLAYED},
    "cancelJob": REPLAYED,
    "pauseJob": REPLAYED,
    "resumeJob": REPLAYED,
    "redriveJob": {**LOCATION, **REPLAYED},
    "createOperation": {**LOCATION, **REPLAYED},
}

RUNBOOK_TAGS = ("runbooks", "workers")
"""Of operations that are refused where runbooks are off."""


def document(settings: Settings) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "LUCIUS",
            "version": __version__,
            "description": "Commands become jobs, jobs become directives, and nothing accepted is lost.",
        },
        "paths": paths,
        "components": {
            "schemas": components(settings),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation),
        "security": [{"bearer": []}] if operation.role else [],
    }
    if operation.role:
        reach = " on all tenants" if operation.on_all_tenants else ""
        described["description"] = f"Needs the role `{operation.role}`{reach}."
    if operation.parameters:
        described["parameters"] = [
            {
                "name": parameter.name,
                "in": parameter.where,
                "required": parameter.where == "path",
                "description": parameter.description,
                "schema": {"$ref": f"#/components/schemas/{parameter.schema}"},
            }
            for parameter in operation.parameters
        ]
    if operation.body:
        content: dict[str, Any] = {"schema": {"$ref": f"#/components/schemas/{operation.body}"}}
        if operation.name in EXAMPLES:
            content["examples"] = {"example": {"value": EXAMPLES[operation.name]}}
        described["requestBody"] = {
            "required": operation.body_required,
            "content": {"application/json": content},
        }
    return described


def _responses(operation: Operation) -> dict[str, Any]:
    schema = {"schema": {"$ref": f"#/components/schemas/{operation.answer}"}}
    content = {operation.media_type: schema}
    if operation.name == "getEvents":
        content["text/event-stream"] = {"schema": {"$ref": "#/components/schemas/Text"}}
    responses: dict[str, Any] = {str(operation.status): {"description": operation.summary, "content": content}}
    if operation.name in ANSWER_HEADERS:
        responses[str(operation.status)]["headers"] = ANSWER_HEADERS[operation.name]
    codes = list(operation.errors)
    if operation.role is not None:
        codes += ["UNAUTHENTICATED", "FORBIDDEN"]
    if operation.tag in RUNBOOK_TAGS and operation.name != "validateRunbook":
        codes.append("RUNBOOKS_OFF")
    codes += ["UNAVAILABLE", "METHOD_NOT_ALLOWED", "HEADER_TOO_LARGE", "REQUEST_TIMEOUT"]
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(STATUS_OF[code], []).append(code)
    for status, found in sorted(by_status.items()):
        media_type, name = "application/problem+json", "Problem"
        if operation.name == "readyz" and status == 503:
            media_type, name = "application/json", "Health"
        responses[str(status)] = {
            "description": ", ".join(found),
            "content": {media_type: {"schema": {"$ref": f"#/components/schemas/{name}"}}},
        }
        if status in (429, 503) and name == "Problem":
            responses[str(status)]["headers"] = RETRY_AFTER
    return responses
