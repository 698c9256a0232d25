"""The component schemas of the API. Messages come from their published schema files; answers are described here."""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec

from lucius.domain.attempt import DispatchStatus
from lucius.domain.errors import STATUS_OF
from lucius.domain.job import OUTBOX, TEMPORAL, JobStatus
from lucius.domain.step import StepStatus
from lucius.settings import Settings

Schema = dict[str, Any]


def _text(**extra: Any) -> Schema:
    return {"type": "string", **extra}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None, **extra: Any) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties, **extra}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


MOMENT = _text(format="date-time", examples=["2026-01-31T08:15:30.250Z"])
WHOLE: Schema = {"type": "integer", "minimum": 0}
ERROR = _or_null(_object({"code": _text(), "message": _text()}))


def _page(item: str, **more: Schema) -> Schema:
    return _object({"items": _list(_ref(item)), "next": _or_null(_text()), **more})


def _step() -> Schema:
    known = {
        "stepId": _text(),
        "step_type": _text(),
        "service": _text(),
        "status": _ref("StepStatus"),
        "attempt_no": WHOLE,
        "lease_id": _or_null(_text()),
        "lane": {"type": "integer", "minimum": 0, "maximum": 15},
        "routing_key_used": _text(),
        "progress": {"type": "number", "minimum": 0, "maximum": 1},
        "error": ERROR,
    }
    return _object(known, {"attempts": _list(_ref("Attempt"))}, additionalProperties=True)


def _attempt() -> Schema:
    return _object(
        {
            "attempt_no": WHOLE,
            "lease_id": _text(),
            "status": _ref("StepStatus"),
            "started_at": MOMENT,
            "ended_at": _or_null(MOMENT),
            "outbox_status": _text(enum=[status.value for status in DispatchStatus]),
            "error": ERROR,
        },
        additionalProperties=True,
    )


def _job() -> Schema:
    waiting = _object({"what": _text(), "since": MOMENT, "until": _or_null(MOMENT), "sentence": _text()})
    return _object(
        {
            "jobId": _ref("JobId"),
            "tenant_id": _text(),
            "request_type": _text(),
            "protocol_id": _text(),
            "engine": _text(enum=[OUTBOX, TEMPORAL]),
            "status": _ref("JobStatus"),
            "current_step_id": _text(),
            "progress": {"type": "number", "minimum": 0, "maximum": 1},
            "waiting_on": _or_null(waiting),
            "created_at": MOMENT,
            "updated_at": MOMENT,
            "completed_at": _or_null(MOMENT),
            "error": ERROR,
            "steps": _list(_ref("Step")),
        },
        additionalProperties=True,
    )


def _problem() -> Schema:
    fault = _object({"code": _ref("ErrorCode"), "pointer": _text(), "detail": _text()})
    return _object(
        {
            "type": _text(),
            "title": _text(),
            "status": {"type": "integer"},
            "code": _ref("ErrorCode"),
            "detail": _text(),
            "errors": _list(fault),
            "correlation_id": _text(),
        }
    )


def _outcome() -> Schema:
    outcomes = ["APPLIED", "DUPLICATE", "LATE", "IGNORED", "RECEIVED"]
    return _object({"outcome": _text(enum=outcomes), "cancel_requested": {"type": "boolean"}})


def _message(name: str, **extra: Any) -> Schema:
    """A published schema file, as a component."""
    text = resources.files("lucius.domain.schemas").joinpath(f"{name}.json").read_bytes()
    schema: Schema = msgspec.json.decode(text)
    schema.pop("$schema", None)
    schema.pop("$id", None)
    return {**schema, **extra}


def components(settings: Settings) -> dict[str, Schema]:
    """Every schema by its name, with the limits that this server keeps."""
    wait_seconds: Schema = {"type": "number", "minimum": 0, "maximum": settings.wait_seconds_max}
    refused = _object({"code": _ref("ErrorCode"), "detail": _text()}, additionalProperties=True)
    taken = _object({"jobId": _ref("JobId"), "status": _ref("JobStatus")}, additionalProperties=True)
    return {
        "Envelope": _message("envelope"),
        "Ack": _message("ack"),
        "Result": _message("result"),
        "Heartbeat": _message("heartbeat"),
        "Directive": _message("directive"),
        "JobId": _text(format="uuid", examples=["019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a"]),
        "JobStatus": _text(enum=[status.value for status in JobStatus]),
        "StepStatus": _text(enum=[status.value for status in StepStatus]),
        "ErrorCode": _text(enum=list(STATUS_OF)),
        "TenantId": _text(minLength=1, maxLength=128),
        "Name": _text(minLength=1, maxLength=256),
        "Moment": MOMENT,
        "PageSize": {"type": "integer", "minimum": 1, "maximum": settings.page_size_max},
        "Cursor": _text(format="uuid"),
        "EventCursor": {"type": "integer", "minimum": 0, "maximum": 1 << 53},
        "WaitSeconds": wait_seconds,
        "CallbackToken": _text(maxLength=200),
        "Reason": _object({}, {"reason": _or_null(_text(maxLength=500))}, additionalProperties=False),
        "Empty": {"type": "object"},
        "JobTaken": taken,
        "Validation": _object(
            {
                "valid": {"type": "boolean"},
                "protocol_id": _or_null(_text()),
                "steps": _list({"type": "object"}),
                "lane": _or_null(WHOLE),
                "mode": _or_null(_text()),
                "errors": _list({"type": "object"}),
            }
        ),
        "CommandBatch": _object(
            {"commands": {**_list(_ref("Envelope")), "minItems": 1, "maxItems": settings.batch_commands_max}},
            additionalProperties=False,
        ),
        "CommandBatchResults": _object({"results": _list({"anyOf": [taken, refused]})}),
        "Job": _job(),
        "Step": _step(),
        "Attempt": _attempt(),
        "JobList": _page("Job"),
        "Steps": _object({"steps": _list(_ref("Step"))}),
        "Event": _object({"seq": WHOLE, "at": MOMENT, "type": _text()}, additionalProperties=True),
        "Events": _object({"events": _list(_ref("Event")), "next": _or_null(_text())}),
        "CallbackOutcome": _outcome(),
        "CallbackBatch": _object(
            {
                "callbacks": {
                    **_list({"anyOf": [_ref("Ack"), _ref("Result"), _ref("Heartbeat")]}),
                    "minItems": 1,
                    "maxItems": settings.batch_callbacks_max,
                }
            }
        ),
        "CallbackOutcomes": _object({"outcomes": _list({"anyOf": [_outcome(), refused]})}),
        "Pull": _object(
            {"service": _text(minLength=1, maxLength=128)},
            {
                "max": {"type": "integer", "minimum": 1, "maximum": settings.pull_max},
                "wait_seconds": wait_seconds,
            },
            additionalProperties=False,
        ),
        "Directives": _object({"directives": _list(_ref("Directive"))}),
        "Protocol": _object(
            {"id": _text(), "version": WHOLE, "steps": _list({"type": "object"})}, additionalProperties=True
        ),
        "ProtocolList": _page("Protocol"),
        "Retried": _object({"retried": WHOLE}),
        "OutboxRow": _object({"jobId": _ref("JobId"), "stepId": _text()}, additionalProperties=True),
        "OutboxList": _page("OutboxRow"),
        "DeadLetters": _page("Job", messages=_list({"type": "object"})),
        "Lane": _object({"lane": WHOLE, "topic": _text(), "subscriptions": _list({"type": "object"})}),
        "LaneList": _page("Lane"),
        "Tenant": _object({"tenant_id": _text(), "inflight": WHOLE, "max_inflight": WHOLE}, additionalProperties=True),
        "TenantList": _page("Tenant", inflight=WHOLE, max_inflight=WHOLE),
        "Health": _object({"status": _text()}),
        "Readiness": _object({"status": _text(), "checks": {"type": "object"}}),
        "Text": _text(),
        "Problem": _problem(),
    }
