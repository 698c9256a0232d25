"""The component schemas of the API.

Bodies are generated from the types that handlers read and return. The messages of platform services come from their
published schema files. What has no type of its own is described here and in `runbook_components`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from types import ModuleType
from typing import is_typeddict

import msgspec

from lucius.api import (
    admin_answers,
    answers,
    batches,
    bulk_operations,
    callbacks,
    commands,
    notifications,
    protocol_preview,
    requests,
    retention,
    runbooks,
    worker_jobs,
)
from lucius.api.runbook_components import runbook_components
from lucius.api.schemas import Schema, list_, object_, text
from lucius.domain.bulk_operation import ItemStatus
from lucius.domain.errors import STATUS_OF
from lucius.domain.fields import IDEMPOTENCY_KEY_CHARS_MAX
from lucius.domain.job import JobStatus
from lucius.domain.json_types import Moment, ref
from lucius.domain.step import StepStatus
from lucius.domain.waiting import WAIT_CAUSES
from lucius.notifications.store import STATUSES
from lucius.ports.audit import AuditKind
from lucius.runbooks.core import answers as runbook_answers
from lucius.settings import Settings
from lucius.usecases.figures import WINDOWS

ANSWERS = (answers, admin_answers, runbook_answers)
BODIES = (
    callbacks.CallbackBatch,
    callbacks.Pull,
    commands.CommandBatch,
    requests.Reason,
    requests.Cancel,
    requests.Redrive,
    requests.Dismiss,
    bulk_operations.NewOperation,
    bulk_operations.OperationPreview,
    notifications.NotificationTest,
    retention.Prune,
    protocol_preview.ProtocolDraft,
    runbooks.RunbookText,
    runbooks.RunbookDraft,
    runbooks.PreviewWanted,
    runbooks.DryRunWanted,
    runbooks.RehearsalWanted,
    batches.NewBatch,
    batches.MembersRetried,
    batches.BatchRescheduled,
    batches.MembersHeld,
    batches.MembersNamed,
    batches.MessagesNamed,
    batches.MembersAdded,
    worker_jobs.WorkerPull,
    worker_jobs.WorkerRenew,
    worker_jobs.WorkerResults,
)


def _answer_types(module: ModuleType) -> Iterator[type]:
    for found in vars(module).values():
        if is_typeddict(found) and found.__module__ == module.__name__ and not found.__name__.startswith("_"):
            yield found


@cache
def _generated() -> bytes:
    """The schemas of all types, as JSON: generating them takes some 20 ms."""
    types = [*BODIES, *(found for module in ANSWERS for found in _answer_types(module))]
    _, schemas = msgspec.json.schema_components(types, ref_template=ref("{name}")["$ref"])
    for type_ in types:
        if is_typeddict(type_):  # msgspec sorts its fields by name.
            schema = schemas[type_.__name__]
            names = list(type_.__annotations__)
            schema["properties"] = dict(sorted(schema["properties"].items(), key=lambda item: names.index(item[0])))
    for schema in schemas.values():
        for one in (schema, *schema.get("properties", {}).values()):
            if "enum" in one:  # msgspec leaves its type out.
                one["type"] = "string"
    return msgspec.json.encode(schemas)


def _set_limits(schemas: dict[str, Schema], settings: Settings) -> None:
    """State the limits that depend on settings."""
    for name, field, keyword, limit in (
        ("CommandBatch", "commands", "maxItems", settings.batch_commands_max),
        ("CallbackBatch", "callbacks", "maxItems", settings.batch_callbacks_max),
        ("Pull", "max", "maximum", settings.pull_max),
        ("Pull", "wait_seconds", "maximum", settings.wait_seconds_max),
        ("WorkerPull", "max", "maximum", settings.pull_max),
        ("WorkerPull", "wait_seconds", "maximum", settings.wait_seconds_max),
        ("WorkerRenew", "jobIds", "maxItems", settings.pull_max),
        ("WorkerRenew", "tokens", "maxItems", settings.pull_max),
    ):
        schemas[name]["properties"][field][keyword] = limit


def _message(name: str) -> Schema:
    """A published schema file, as a component."""
    published = resources.files("lucius.domain.schemas").joinpath(f"{name}.json").read_bytes()
    schema: Schema = msgspec.json.decode(published)
    schema.pop("$schema", None)
    schema.pop("$id", None)
    return schema


def components(settings: Settings) -> dict[str, Schema]:
    """Every schema by its name, with the limits of this server."""
    schemas: dict[str, Schema] = msgspec.json.decode(_generated())
    _set_limits(schemas, settings)
    return {
        **schemas,
        "Envelope": _message("envelope"),
        "Ack": _message("ack"),
        "Result": _message("result"),
        "Heartbeat": _message("heartbeat"),
        "Directive": _message("directive"),
        "Directives": object_({"directives": list_(ref("Directive"))}),
        "JobId": text(format="uuid", examples=["019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a"]),
        "OperationId": text(format="uuid", examples=["019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a"]),
        "OutcomeStatus": text(enum=[status.value for status in ItemStatus]),
        "PayloadFilter": text(minLength=3, maxLength=1_000, examples=["customer=4711"]),
        "AuditKind": text(enum=list(AuditKind)),
        "NotificationStatus": text(enum=list(STATUSES)),
        "Signature": text(minLength=1, maxLength=1_000),
        "JobStatus": text(enum=[status.value for status in JobStatus]),
        "JobStatuses": text(
            pattern="^(STATUS)(,(STATUS))*$".replace("STATUS", "|".join(status.value for status in JobStatus)),
            maxLength=256,
            examples=["PAUSED,CANCELLING"],
        ),
        "JobIdPrefix": text(minLength=1, maxLength=36, pattern="^[0-9a-fA-F-]+$", examples=["019a1f2e-7c3b"]),
        "WaitCause": text(enum=list(WAIT_CAUSES)),
        "StepStatus": text(enum=[status.value for status in StepStatus]),
        "ErrorCode": text(enum=list(STATUS_OF)),
        "TenantId": text(minLength=1, maxLength=128),
        "Name": text(minLength=1, maxLength=256),
        "Moment": msgspec.json.schema(Moment),
        "PageSize": {"type": "integer", "minimum": 1, "maximum": settings.page_size_max},
        "Cursor": text(format="uuid"),
        "Window": text(enum=list(WINDOWS)),
        "Flag": text(enum=["true", "false"]),
        "EventCursor": {"type": "integer", "minimum": 0, "maximum": 1 << 53},
        "WaitSeconds": {"type": "number", "minimum": 0, "maximum": settings.wait_seconds_max},
        "CallbackToken": text(maxLength=200),
        "IdempotencyKey": text(minLength=1, maxLength=IDEMPOTENCY_KEY_CHARS_MAX),
        "ListedJob": {"anyOf": [ref("Job"), ref("Unreadable")]},
        "ListedOutboxRow": {"anyOf": [ref("OutboxRow"), ref("Unreadable")]},
        "Empty": {"type": "object"},
        "Text": text(),
        **runbook_components(),
    }
