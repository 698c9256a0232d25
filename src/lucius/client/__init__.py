"""LUCIUS from Python: one client, blocking or async. It imports nothing of the rest of lucius.

    from lucius.client import Client

    with Client("http://127.0.0.1:8000", api_key="…") as client:
        job = client.submit(tenant_id="acme", request_type="OCR", input_ref="…", output_ref="…", payload={})
        print(client.wait(job.job_id).status)

Inside: `calls` are scripts, which yield HTTP calls and receive answers (`call`); `retrying` retries calls, `errors` and
`models` read answers, `session` runs scripts on a `transport`. The command line, the kits for services and workers, and
the load generator use the same parts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lucius.client.addresses import AddressInvalid
    from lucius.client.async_client import AsyncClient
    from lucius.client.calls.jobs import envelope
    from lucius.client.client import Client
    from lucius.client.errors import (
        AnswerInvalid,
        ClientError,
        Conflict,
        Fault,
        Forbidden,
        Invalid,
        NotFound,
        RateLimited,
        Refused,
        Unauthenticated,
        Unavailable,
        Unreachable,
        WaitTimedOut,
    )
    from lucius.client.models.jobs import (
        Accepted,
        Attempt,
        Event,
        Failure,
        Job,
        Protocol,
        Step,
        SubmittedItem,
        Validation,
    )
    from lucius.client.models.operations import Operation, OperationEvent, OperationOutcome, OperationPreview
    from lucius.client.models.pages import Page
    from lucius.client.models.runbooks import (
        Batch,
        CreatedBatch,
        Member,
        MemberStep,
        Published,
        Runbook,
        RunbookEvent,
        RunbookValidation,
        RunbookVersion,
    )

__all__ = [
    "Accepted",
    "AddressInvalid",
    "AnswerInvalid",
    "AsyncClient",
    "Attempt",
    "Batch",
    "Client",
    "ClientError",
    "Conflict",
    "CreatedBatch",
    "Event",
    "Failure",
    "Fault",
    "Forbidden",
    "Invalid",
    "Job",
    "Member",
    "MemberStep",
    "NotFound",
    "Operation",
    "OperationEvent",
    "OperationOutcome",
    "OperationPreview",
    "Page",
    "Protocol",
    "Published",
    "RateLimited",
    "Refused",
    "Runbook",
    "RunbookEvent",
    "RunbookValidation",
    "RunbookVersion",
    "Step",
    "SubmittedItem",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "Validation",
    "WaitTimedOut",
    "envelope",
]

_PARTS = (
    "client",
    "async_client",
    "errors",
    "addresses",
    "calls.jobs",
    "models.jobs",
    "models.operations",
    "models.pages",
    "models.runbooks",
)


def __getattr__(name: str) -> Any:
    """Imports names on first use: the command line and the kits need only some parts, and models take time to build."""
    if name in __all__:
        for part in _PARTS:
            module = importlib.import_module(f"{__name__}.{part}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
