"""The component schemas of the API. Messages come from their published schema files; answers are described here."""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec

from lucius.api.runbook_components import runbook_components
from lucius.api.schemas import MOMENT, WHOLE, Schema, list_, object_, or_null, page, ref, text
from lucius.domain.attempt import DispatchStatus
from lucius.domain.errors import STATUS_OF
from lucius.domain.job import OUTBOX, TEMPORAL, JobStatus
from lucius.domain.step import StepStatus
from lucius.settings import Settings

ERROR = or_null(object_({"code": text(), "message": text()}))


def _step() -> Schema:
    known = {
        "stepId": text(),
        "step_type": text(),
        "service": text(),
        "status": ref("StepStatus"),
        "attempt_no": WHOLE,
        "lease_id": or_null(text()),
        "lane": {"type": "integer", "minimum": 0, "maximum": 15},
        "routing_key_used": text(),
        "progress": {"type": "number", "minimum": 0, "maximum": 1},
        "error": ERROR,
    }
    return object_(known, {"attempts": list_(ref("Attempt"))}, additionalProperties=True)


def _attempt() -> Schema:
    return object_(
        {
            "attempt_no": WHOLE,
            "lease_id": text(),
            "status": ref("StepStatus"),
            "started_at": MOMENT,
            "ended_at": or_null(MOMENT),
            "outbox_status": text(enum=[status.value for status in DispatchStatus]),
            "error": ERROR,
        },
        additionalProperties=True,
    )


def _job() -> Schema:
    waiting = object_({"what": text(), "since": MOMENT, "until": or_null(MOMENT), "sentence": text()})
    return object_(
        {
            "jobId": ref("JobId"),
            "tenant_id": text(),
            "request_type": text(),
            "protocol_id": text(),
            "engine": text(enum=[OUTBOX, TEMPORAL]),
            "status": ref("JobStatus"),
            "current_step_id": text(),
            "progress": {"type": "number", "minimum": 0, "maximum": 1},
            "waiting_on": or_null(waiting),
            "created_at": MOMENT,
            "updated_at": MOMENT,
            "completed_at": or_null(MOMENT),
            "error": ERROR,
            "steps": list_(ref("Step")),
        },
        additionalProperties=True,
    )


def _problem() -> Schema:
    fault = object_({"code": ref("ErrorCode"), "pointer": text(), "detail": text()})
    return object_(
        {
            "type": text(),
            "title": text(),
            "status": {"type": "integer"},
            "code": ref("ErrorCode"),
            "detail": text(),
            "errors": list_(fault),
            "correlation_id": text(),
        }
    )


def _outcome() -> Schema:
    outcomes = ["APPLIED", "DUPLICATE", "LATE", "IGNORED", "RECEIVED"]
    return object_({"outcome": text(enum=outcomes), "cancel_requested": {"type": "boolean"}})


def _message(name: str, **extra: Any) -> Schema:
    """A published schema file, as a component."""
    published = resources.files("lucius.domain.schemas").joinpath(f"{name}.json").read_bytes()
    schema: Schema = msgspec.json.decode(published)
    schema.pop("$schema", None)
    schema.pop("$id", None)
    return {**schema, **extra}


def components(settings: Settings) -> dict[str, Schema]:
    """Every schema by its name, with the limits that this server keeps."""
    wait_seconds: Schema = {"type": "number", "minimum": 0, "maximum": settings.wait_seconds_max}
    refused = object_({"code": ref("ErrorCode"), "detail": text()}, additionalProperties=True)
    taken = object_({"jobId": ref("JobId"), "status": ref("JobStatus")}, additionalProperties=True)
    return {
        "Envelope": _message("envelope"),
        "Ack": _message("ack"),
        "Result": _message("result"),
        "Heartbeat": _message("heartbeat"),
        "Directive": _message("directive"),
        "JobId": text(format="uuid", examples=["019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a"]),
        "JobStatus": text(enum=[status.value for status in JobStatus]),
        "StepStatus": text(enum=[status.value for status in StepStatus]),
        "ErrorCode": text(enum=list(STATUS_OF)),
        "TenantId": text(minLength=1, maxLength=128),
        "Name": text(minLength=1, maxLength=256),
        "Moment": MOMENT,
        "PageSize": {"type": "integer", "minimum": 1, "maximum": settings.page_size_max},
        "Cursor": text(format="uuid"),
        "EventCursor": {"type": "integer", "minimum": 0, "maximum": 1 << 53},
        "WaitSeconds": wait_seconds,
        "CallbackToken": text(maxLength=200),
        "Reason": object_({}, {"reason": or_null(text(maxLength=500))}, additionalProperties=False),
        "Empty": {"type": "object"},
        "JobTaken": taken,
        "Validation": object_(
            {
                "valid": {"type": "boolean"},
                "protocol_id": or_null(text()),
                "steps": list_({"type": "object"}),
                "lane": or_null(WHOLE),
                "mode": or_null(text()),
                "errors": list_({"type": "object"}),
            }
        ),
        "CommandBatch": object_(
            {"commands": {**list_(ref("Envelope")), "minItems": 1, "maxItems": settings.batch_commands_max}},
            additionalProperties=False,
        ),
        "CommandBatchResults": object_({"results": list_({"anyOf": [taken, refused]})}),
        "Job": _job(),
        "Step": _step(),
        "Attempt": _attempt(),
        "JobList": page("Job"),
        "Steps": object_({"steps": list_(ref("Step"))}),
        "Event": object_({"seq": WHOLE, "at": MOMENT, "type": text()}, additionalProperties=True),
        "Events": object_({"events": list_(ref("Event")), "next": or_null(text())}),
        "CallbackOutcome": _outcome(),
        "CallbackBatch": object_(
            {
                "callbacks": {
                    **list_({"anyOf": [ref("Ack"), ref("Result"), ref("Heartbeat")]}),
                    "minItems": 1,
                    "maxItems": settings.batch_callbacks_max,
                }
            }
        ),
        "CallbackOutcomes": object_({"outcomes": list_({"anyOf": [_outcome(), refused]})}),
        "Pull": object_(
            {"service": text(minLength=1, maxLength=128)},
            {
                "max": {"type": "integer", "minimum": 1, "maximum": settings.pull_max},
                "wait_seconds": wait_seconds,
            },
            additionalProperties=False,
        ),
        "Directives": object_({"directives": list_(ref("Directive"))}),
        "Protocol": object_(
            {"id": text(), "version": WHOLE, "steps": list_({"type": "object"})}, additionalProperties=True
        ),
        "ProtocolList": page("Protocol"),
        "Retried": object_({"retried": WHOLE}),
        "OutboxRow": object_({"jobId": ref("JobId"), "stepId": text()}, additionalProperties=True),
        "OutboxList": page("OutboxRow"),
        "DeadLetters": page("Job", messages=list_({"type": "object"})),
        "Lane": object_({"lane": WHOLE, "topic": text(), "subscriptions": list_({"type": "object"})}),
        "LaneList": page("Lane"),
        "Tenant": object_({"tenant_id": text(), "inflight": WHOLE, "max_inflight": WHOLE}, additionalProperties=True),
        "TenantList": page("Tenant", inflight=WHOLE, max_inflight=WHOLE),
        "Health": object_({"status": text()}),
        "Readiness": object_({"status": text(), "checks": {"type": "object"}}),
        "Text": text(),
        "Problem": _problem(),
        **runbook_components(settings),
    }
