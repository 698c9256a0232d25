"""The messages of the contract: five from the scheduler, jobs to workers, results from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant, iso
from lucius.ports.bus import DeliveryRef, Message, Subscription
from lucius.runbooks.core.states import KINDS, Kind

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
"""Member ids per `phase-due`; a larger phase sends several, so that each fits on any bus."""

LOCK_SECONDS = 60.0
"""The lock duration of every subscription."""

SUBSCRIPTIONS = (
    Subscription(topic=EVENTS_TOPIC, name=ORCHESTRATOR, lock_seconds=LOCK_SECONDS, keeps_dead_bodies=True),
    Subscription(topic=RESULTS_TOPIC, name=ORCHESTRATOR, lock_seconds=LOCK_SECONDS),
)

TOPICS = (EVENTS_TOPIC, JOBS_TOPIC, RESULTS_TOPIC)
RESULT_PREFIX = "result-"
"""Followed by the job's id, the message id of a result."""

_encode = msgspec.json.Encoder().encode


class MessageInvalid(Exception):
    """A message that no handler can process, with the reason."""


def worker_subscription(worker_id: str) -> Subscription:
    return Subscription(topic=JOBS_TOPIC, name=worker_id, where={"WorkerId": worker_id}, lock_seconds=LOCK_SECONDS)


def job_ref(worker_id: str, job_id: str) -> DeliveryRef:
    return DeliveryRef(JOBS_TOPIC, worker_id, job_id)


def utc(instant: Instant) -> str:
    """`2025-03-15T00:00:00Z`, with milliseconds only if they are not zero."""
    text = iso(instant)
    return text.replace(".000Z", "Z")


def event(message_type: str, message_id: str, body: Mapping[str, Any]) -> Message:
    return Message(
        id=message_id,
        topic=EVENTS_TOPIC,
        body=_encode({"messageType": message_type, **body}),
        properties={"MessageType": message_type, "ContentType": "application/json"},
        subject=message_type,
    )


def batch_init_id(batch_id: int, version: int) -> str:
    return f"{BATCH_INIT}-{batch_id}-v{version}"


def batch_init(name: str, version: int, batch_id: int, start: Instant, member_count: int) -> Message:
    return event(BATCH_INIT, batch_init_id(batch_id, version), {
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
    """`round_` is the step's dispatch count: a step that an operator retried polls again from 1."""
    return event(POLL_CHECK, f"{POLL_CHECK}-{kind}-{execution_id}-{round_}-{poll_count}", {
        "runbookName": name, "runbookVersion": version, "batchId": batch_id, "stepExecutionId": execution_id,
        "stepName": step_name, "pollCount": poll_count, "kind": kind,
    })  # fmt: skip


class Event(Struct, frozen=True):
    """One of the five messages, with the fields that handlers need."""

    type: str
    batch_id: int
    subject_id: int = 0
    """The phase, member or execution it is about."""
    kind: Kind | None = "step"
    """None: a `poll-check` that does not say it, as the contract has it; the step is known by its batch and name."""
    poll_count: int = 0
    runbook: str | None = None
    """Name and version of the runbook; None for an event that was rebuilt from the tables."""
    version: int | None = None
    step_name: str = ""


def read_event(content: bytes) -> Event:
    """Raises `MessageInvalid`."""
    try:
        fields = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise MessageInvalid(f"not JSON: {error}") from error
    if not isinstance(fields, dict) or fields.get("messageType") not in MESSAGE_TYPES:
        raise MessageInvalid(f"messageType must be one of {', '.join(MESSAGE_TYPES)}")
    subject = {PHASE_DUE: "phaseExecutionId", POLL_CHECK: "stepExecutionId"}.get(fields["messageType"], "batchMemberId")
    numbers = [fields.get("batchId"), fields.get(subject, 0), fields.get("pollCount", 0)]
    kind = fields.get("kind")
    is_kind = kind is None or kind in KINDS
    if not all(isinstance(number, int) and 0 <= number < 2**63 for number in numbers) or not is_kind:
        raise MessageInvalid(f"batchId, {subject} and pollCount must be whole numbers, kind one of {', '.join(KINDS)}")
    name, version, step_name = fields.get("runbookName"), fields.get("runbookVersion"), fields.get("stepName")
    return Event(
        fields["messageType"], numbers[0], numbers[1], kind, numbers[2],
        runbook=name if isinstance(name, str) else None,
        version=version if isinstance(version, int) and 0 < version < 2**31 else None,
        step_name=step_name if isinstance(step_name, str) else "",
    )  # fmt: skip


# --- Jobs and results ------------------------------------------------------------------------------------------------


def parse_job_id(job_id: str) -> tuple[Kind, int] | None:
    """`step-1042-a3` names the third job of step execution 1042."""
    kind, _, rest = job_id.partition("-")
    number, _, attempt = rest.partition("-a")
    digits = number + attempt
    if kind not in KINDS or not number or not attempt or not (digits.isascii() and digits.isdigit()):
        return None
    if len(number) > 18:
        return None
    return kind, int(number)


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
    token: str | None = None
    """The job's token from `correlationData`, if any."""


def read_result(content: Any) -> WorkerResult:
    """A result whose field names may be in any letter case. Raises `MessageInvalid`."""
    fields = _folded(content, "a result")
    job_id, status = fields.get("jobid"), fields.get("status")
    if not isinstance(job_id, str) or not 1 <= len(job_id) <= 100:
        raise MessageInvalid("jobId is missing or not a string")
    outcome = status.lower() if isinstance(status, str) else ""
    if outcome not in ("success", "failure"):
        raise MessageInvalid(f"the result of {job_id}: status must be Success or Failure")
    error = fields.get("error")
    token = _read_token(fields.get("correlationdata"))
    return WorkerResult(job_id, outcome == "success", fields.get("result"), _read_error(error), token)


def _read_token(correlation: Any) -> str | None:
    """A token that is not a string becomes one that matches no job."""
    if not isinstance(correlation, dict):
        return None
    token = correlation.get("token") or _folded(correlation, "correlationData").get("token")
    return token if token is None or isinstance(token, str) else ""


def _read_error(error: Any) -> WorkerError:
    if error is None:
        return WorkerError("the worker gave no reason")
    if isinstance(error, str):
        return WorkerError(_without_nul(error))
    fields = _folded(error, "an error")
    message, attempts = fields.get("message"), fields.get("attempts")
    return WorkerError(
        _without_nul(str(message)) if message else "the worker gave no reason",
        str(fields.get("type") or ""),
        fields.get("isthrottled") is True,
        attempts if isinstance(attempts, int) else 1,
    )


def _without_nul(message: str) -> str:
    """Removes NUL characters, which PostgreSQL cannot store."""
    return message.replace("\x00", "")


def _folded(content: Any, what: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise MessageInvalid(f"{what} must be a JSON object")
    return {str(name).lower(): value for name, value in content.items()}
