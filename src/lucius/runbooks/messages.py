"""The messages of the contract: five from the scheduler, jobs to the worker, results from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.ports.bus import DeliveryRef, Message, Subscription

EVENTS_TOPIC = "orchestrator-events"
JOBS_TOPIC = "jobs"
RESULTS_TOPIC = "results"
ORCHESTRATOR = "orchestrator"

BATCH_INIT = "batch-init"
PHASE_DUE = "phase-due"
MEMBER_ADDED = "member-added"
MEMBER_REMOVED = "member-removed"
POLL_CHECK = "poll-check"
MESSAGE_TYPES = (BATCH_INIT, PHASE_DUE, MEMBER_ADDED, MEMBER_REMOVED, POLL_CHECK)

PHASE_DUE_MEMBERS_MAX = 10_000
"""Member ids in one `phase-due`; a larger phase has several, so that each fits on any bus."""

SUBSCRIPTIONS = (
    Subscription(topic=EVENTS_TOPIC, name=ORCHESTRATOR),
    Subscription(topic=RESULTS_TOPIC, name=ORCHESTRATOR),
)

_encode = msgspec.json.Encoder().encode


def worker_subscription(worker_id: str) -> Subscription:
    return Subscription(topic=JOBS_TOPIC, name=worker_id, where={"WorkerId": worker_id})


def job_ref(worker_id: str, job_id: str) -> DeliveryRef:
    return DeliveryRef(JOBS_TOPIC, worker_id, job_id)


def utc(instant: Instant) -> str:
    """`2025-03-15T00:00:00Z`, with milliseconds only where there are some."""
    seconds, millis = divmod(instant, 1000)
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
    return f"{text}.{millis:03d}Z" if millis else f"{text}Z"


def event(message_type: str, message_id: str, body: Mapping[str, Any]) -> Message:
    return Message(
        id=message_id,
        topic=EVENTS_TOPIC,
        body=_encode({"messageType": message_type, **body}),
        properties={"MessageType": message_type, "ContentType": "application/json"},
    )


def batch_init(name: str, version: int, batch_id: int, start: Instant, member_count: int) -> Message:
    return event(BATCH_INIT, f"{BATCH_INIT}-{batch_id}-v{version}", {
        "runbookName": name, "runbookVersion": version, "batchId": batch_id, "batchStartTime": utc(start),
        "memberCount": member_count,
    })  # fmt: skip


def phase_due(
    name: str, version: int, batch_id: int, phase: tuple[int, str, int, Instant], member_ids: Sequence[int]
) -> list[Message]:
    """`phase` is id, name, offset in minutes and due time."""
    phase_id, phase_name, offset_minutes, due_at = phase
    starts = range(0, max(len(member_ids), 1), PHASE_DUE_MEMBERS_MAX)
    return [
        event(PHASE_DUE, f"{PHASE_DUE}-{phase_id}-{start}", {
            "runbookName": name, "runbookVersion": version, "batchId": batch_id, "phaseExecutionId": phase_id,
            "phaseName": phase_name, "offsetMinutes": offset_minutes, "dueAt": utc(due_at),
            "memberIds": list(member_ids[start : start + PHASE_DUE_MEMBERS_MAX]),
        })
        for start in starts
    ]  # fmt: skip


def member_change(
    message_type: str, name: str, version: int, batch_id: int, member_id: int, member_key: str
) -> Message:
    return event(message_type, f"{message_type}-{member_id}", {
        "runbookName": name, "runbookVersion": version, "batchId": batch_id, "batchMemberId": member_id,
        "memberKey": member_key,
    })  # fmt: skip


def poll_check(
    name: str, version: int, batch_id: int, kind: str, execution_id: int, step_name: str, poll_count: int, round_: int
) -> Message:
    """`round_` is the step's dispatch count: a step that an operator retried polls anew from 1."""
    return event(POLL_CHECK, f"{POLL_CHECK}-{kind}-{execution_id}-{round_}-{poll_count}", {
        "runbookName": name, "runbookVersion": version, "batchId": batch_id, "stepExecutionId": execution_id,
        "stepName": step_name, "pollCount": poll_count, "kind": kind,
    })  # fmt: skip


class WorkerError(Struct, frozen=True):
    message: str = ""
    type: str = ""
    isThrottled: bool = False
    attempts: int = 1


class WorkerResult(Struct, frozen=True):
    jobId: str
    is_success: bool
    result: Any = None
    error: WorkerError = WorkerError()


class MessageInvalid(Exception):
    """A message that no handler can take, with the reason."""


def read_result(content: Any) -> WorkerResult:
    """A result whose field names may be in any letter case. Raises `MessageInvalid`."""
    fields = _folded(content, "a result")
    job_id, status = fields.get("jobid"), fields.get("status")
    if not isinstance(job_id, str) or not 1 <= len(job_id) <= 100:
        raise MessageInvalid("a result names its job: jobId is missing or not text")
    outcome = status.lower() if isinstance(status, str) else ""
    if outcome not in ("success", "failure"):
        raise MessageInvalid(f"the result of {job_id}: status is Success or Failure")
    error = fields.get("error")
    return WorkerResult(job_id, outcome == "success", fields.get("result"), _read_error(error))


def _read_error(error: Any) -> WorkerError:
    if error is None:
        return WorkerError("the worker gave no reason")
    if isinstance(error, str):
        return WorkerError(_kept(error))
    fields = _folded(error, "an error")
    message, attempts = fields.get("message"), fields.get("attempts")
    return WorkerError(
        _kept(str(message)) if message else "the worker gave no reason",
        str(fields.get("type") or ""),
        fields.get("isthrottled") is True,
        attempts if isinstance(attempts, int) else 1,
    )


def _kept(message: str) -> str:
    """Without NUL characters, which PostgreSQL cannot keep."""
    return message.replace("\x00", "")


def _folded(content: Any, what: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise MessageInvalid(f"{what} is a JSON object")
    return {str(name).lower(): value for name, value in content.items()}
