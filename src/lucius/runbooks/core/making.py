"""New executions, with their parameters resolved as far as possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.core.definition.model import Step
from lucius.runbooks.core.definition.templates import UnknownVariable, resolve
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.states import CANCELLED, PENDING

_encode = msgspec.json.Encoder().encode


class Cancelled(Struct, frozen=True):
    """For an execution created only to show that it does not run, and why."""

    cause: str
    reason: str
    at: Instant


class NewExecution(Struct, frozen=True, kw_only=True):
    """Initial values of an execution in any of the three tables; the other columns start empty."""

    batch_id: int
    step_name: str
    step_index: int
    worker_id: str
    function_name: str
    params_json: str
    late_json: str | None
    fault: str | None
    status: str
    cancel_cause: str | None
    error_message: str | None
    completed_at: Instant | None
    is_poll_step: bool
    poll_interval_sec: int | None
    poll_timeout_sec: int | None


def specials(batch: Batch) -> Mapping[str, Any]:
    return {"_batch_id": batch.id, "_batch_start_time": utc(batch.starts_at)}


def resolved(
    step: Step, data: Mapping[str, Any] | None, special: Mapping[str, Any], outputs: frozenset[str]
) -> tuple[str, str, str | None, str | None]:
    """Function, parameters, parts that wait for output variables, and the reason if it can never be sent."""
    try:
        found = resolve(step, data or {}, special, outputs)
    except UnknownVariable as error:
        return step.function, "{}", None, str(error)
    late = _encode(found.late).decode() if found.late else None
    return found.function, _encode(found.params).decode(), late, None


def new_execution(
    batch_id: int,
    step: Step,
    index: int,
    data: Mapping[str, Any] | None,
    special: Mapping[str, Any],
    outputs: frozenset[str],
    cancelled: Cancelled | None = None,
) -> dict[str, Any]:
    """The fields of a `NewExecution`, by name.

    `data` is None if nothing is known about the member; a step that needs none of it can still be sent.
    """
    function, params, late, fault = resolved(step, data, special, outputs)
    return {
        "batch_id": batch_id, "step_name": step.name, "step_index": index, "worker_id": step.worker_id,
        "function_name": function, "params_json": params, "late_json": late, "fault": fault,
        "status": CANCELLED if cancelled else PENDING,
        "cancel_cause": cancelled.cause if cancelled else None,
        "error_message": cancelled.reason if cancelled else None,
        "completed_at": cancelled.at if cancelled else None,
        "is_poll_step": step.poll is not None,
        "poll_interval_sec": step.poll.interval_seconds if step.poll else None,
        "poll_timeout_sec": step.poll.timeout_seconds if step.poll else None,
    }  # fmt: skip
