"""Rows of executions that do not exist yet, with their parameters resolved as far as they can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.definition.model import Step
from lucius.runbooks.definition.templates import UnknownVariable, resolve
from lucius.runbooks.messages import utc
from lucius.runbooks.states import CANCELLED, PENDING
from lucius.runbooks.tables.batches import Batch

_encode = msgspec.json.Encoder().encode


class Cancelled(Struct, frozen=True):
    """Made only to show that it will not run, and why."""

    cause: str
    reason: str
    at: Instant


def specials(batch: Batch) -> Mapping[str, Any]:
    return {"_batch_id": batch.id, "_batch_start_time": utc(batch.start)}


def resolved(
    step: Step, data: Mapping[str, Any] | None, special: Mapping[str, Any], outputs: frozenset[str]
) -> tuple[str, str, str | None, str | None]:
    """Function, parameters, what waits for output variables, and why it cannot be sent at all."""
    try:
        found = resolve(step, data or {}, special, outputs)
    except UnknownVariable as error:
        return step.function, "{}", None, str(error)
    late = _encode(found.late).decode() if found.late else None
    return found.function, _encode(found.params).decode(), late, None


def shared_values(
    batch_id: int,
    step: Step,
    index: int,
    data: Mapping[str, Any] | None,
    special: Mapping[str, Any],
    outputs: frozenset[str],
    cancelled: Cancelled | None = None,
) -> tuple[Any, ...]:
    """The columns that all executions share, in the order of `executions._SHARED`, the batch's id first.

    `data` is None where nothing is known of the member; a step that needs none of it can still be sent.
    """
    function, params, late, fault = resolved(step, data, special, outputs)
    ended = (cancelled.reason, cancelled.at, cancelled.cause) if cancelled else (None, None, None)
    poll = (step.poll.interval_seconds, step.poll.timeout_seconds) if step.poll else (None, None)
    return (
        batch_id, step.name, index, step.worker_id, function, params, CANCELLED if cancelled else PENDING, None, None,
        ended[0], None, ended[1], step.poll is not None, *poll, None, None, 0, late, fault, ended[2], 0, 0, False,
        False, None, None, None, 0,
    )  # fmt: skip
