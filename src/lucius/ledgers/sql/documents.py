"""The documents of a job: what was accepted, written once, and its state, written by every turn that changes it.

Whatever the database selects or orders by has a column of its own and is not in the state's document. In documents,
steps, attempts and events are arrays in the order of the fields below: their names would be a third of the bytes. So a
new field goes last and has a default, and no field is ever moved or removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, astuple, replace

from lucius.domain.attempt import NULL, Attempt, DispatchStatus, Failure, Verdict
from lucius.domain.effects import Event
from lucius.domain.job import Job, JobSpec
from lucius.domain.protocol import Policy
from lucius.domain.step import Step, StepSpec, StepStatus
from lucius.domain.time import Instant

OUTPUT_BYTES_INSIDE_MAX = 256
"""A step's artifacts and output reference are in the state's document up to this size, else in `job_outputs`: an update
would write them again."""
POLICIES_REMEMBERED_MAX = 1_000

_encode = msgspec.json.Encoder().encode


# --- What was accepted -----------------------------------------------------------------------------------------------


class StepSpecRecord(Struct, array_like=True, frozen=True):
    step_id: str
    step_type: str
    service: str
    policy_id: str
    """A row of `policies`: the same few policies serve most jobs."""
    workspace_ref: str
    created_at: Instant
    payload: Raw


class SpecDocument(Struct, frozen=True):
    job: JobSpec
    steps: tuple[StepSpecRecord, ...]


decode_spec = msgspec.json.Decoder(SpecDocument).decode
decode_policy = msgspec.json.Decoder(Policy).decode


def policy_text(policy: Policy) -> str:
    return _encode(policy).decode()


def policy_id(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


class PolicyIds:
    """The ids of policies that were met lately, to hash each once."""

    def __init__(self) -> None:
        self._ids: dict[Policy, str] = {}

    def id_of(self, policy: Policy) -> str:
        known = self._ids.get(policy)
        if known is None:
            if len(self._ids) >= POLICIES_REMEMBERED_MAX:
                self._ids.clear()
            known = self._ids[policy] = policy_id(policy_text(policy))
        return known


_policy_ids = PolicyIds()
id_of_policy = _policy_ids.id_of


def encode_spec(job: Job) -> str:
    steps = tuple(
        StepSpecRecord(
            step.spec.step_id,
            step.spec.step_type,
            step.spec.service,
            id_of_policy(step.spec.policy),
            step.spec.workspace_ref,
            step.created_at,
            step.spec.payload,
        )
        for step in job.steps
    )
    return _encode(SpecDocument(job.spec, steps)).decode()


# --- Its state -------------------------------------------------------------------------------------------------------


class AttemptRecord(Struct, array_like=True, frozen=True):
    """The fields of `Attempt`, in their order."""

    attempt_no: int
    lease_id: str
    created_at: Instant
    status: str
    dispatch: DispatchStatus
    claimed_until: Instant
    sent_at: Instant | None
    acked_at: Instant | None
    acked_by: str | None
    ended_at: Instant | None
    verdict: Verdict | None
    error: Failure | None


class StepRecord(Struct, array_like=True, frozen=True):
    status: StepStatus
    updated_at: Instant
    attempts_counted: int
    attempt: AttemptRecord | None
    due_at: Instant | None
    queue_until: Instant | None
    ends_by: Instant | None
    progress: float
    note: str | None
    error: Failure | None
    started_at: Instant | None
    completed_at: Instant | None
    artifacts: Raw
    output_ref: Raw
    is_output_outside: bool
    progress_at: Instant | None = None


class StateDocument(Struct, frozen=True, omit_defaults=True):
    current_index: int
    attempts_total: int
    event_seq: int
    steps: tuple[StepRecord, ...]
    error: Failure | None = None
    dead_letter: bool = False
    callbacks_recorded: tuple[str, ...] = ()


decode_state = msgspec.json.Decoder(StateDocument).decode
decode_attempt = msgspec.json.Decoder(AttemptRecord).decode


def encode_attempt(attempt: Attempt) -> str:
    return _encode(astuple(attempt)).decode()


def read_attempt(record: AttemptRecord) -> Attempt:
    return Attempt(**asdict(record))


def is_output_outside(step: Step) -> bool:
    if step.artifacts is NULL and step.output_ref is NULL:
        return False
    return len(bytes(step.artifacts)) + len(bytes(step.output_ref)) > OUTPUT_BYTES_INSIDE_MAX


def encode_state(job: Job) -> str:
    document: dict[str, Any] = {
        "current_index": job.current_index,
        "attempts_total": job.attempts_total,
        "event_seq": job.event_seq,
        "steps": [_step_values(step) for step in job.steps],
    }
    if job.error is not None:
        document["error"] = job.error
    if job.dead_letter:
        document["dead_letter"] = True
    if job.callbacks_recorded:
        document["callbacks_recorded"] = job.callbacks_recorded
    return _encode(document).decode()


def with_closed_outbox(state: str) -> str:
    """The state's document with its current attempt no longer to be sent."""
    document = decode_state(state)
    steps = list(document.steps)
    step = steps[document.current_index]
    if step.attempt is not None:
        attempt = replace(step.attempt, dispatch=DispatchStatus.FAILED_FINAL)
        steps[document.current_index] = replace(step, attempt=attempt)
    return _encode(replace(document, steps=tuple(steps))).decode()


def _step_values(step: Step) -> tuple[Any, ...]:
    """The fields of `StepRecord`."""
    is_outside = is_output_outside(step)
    values = (
        step.status,
        step.updated_at,
        step.attempts_counted,
        None if step.attempt is None else astuple(step.attempt),
        step.due_at,
        step.queue_until,
        step.ends_by,
        step.progress,
        step.note,
        step.error,
        step.started_at,
        step.completed_at,
        NULL if is_outside else step.artifacts,
        NULL if is_outside else step.output_ref,
        is_outside,
    )
    return values if step.progress_at is None else (*values, step.progress_at)


def build_steps(
    specs: Sequence[StepSpecRecord],
    states: Sequence[StepRecord],
    policies: dict[str, Policy],
    outputs: dict[int, tuple[Raw, Raw]],
) -> tuple[Step, ...]:
    """`outputs` are artifacts and output reference by step, of those that have them outside the document."""
    steps = []
    for index, (spec, state) in enumerate(zip(specs, states, strict=True)):
        artifacts, output_ref = outputs[index] if state.is_output_outside else (state.artifacts, state.output_ref)
        steps.append(
            Step(
                spec=StepSpec(
                    step_id=spec.step_id,
                    step_type=spec.step_type,
                    service=spec.service,
                    payload=spec.payload,
                    policy=policies[spec.policy_id],
                    workspace_ref=spec.workspace_ref,
                ),
                created_at=spec.created_at,
                updated_at=state.updated_at,
                status=state.status,
                attempt=None if state.attempt is None else read_attempt(state.attempt),
                attempts_counted=state.attempts_counted,
                due_at=state.due_at,
                queue_until=state.queue_until,
                ends_by=state.ends_by,
                progress=state.progress,
                note=state.note,
                artifacts=artifacts,
                output_ref=output_ref,
                error=state.error,
                started_at=state.started_at,
                completed_at=state.completed_at,
                progress_at=state.progress_at,
            )
        )
    return tuple(steps)


# --- Its events ------------------------------------------------------------------------------------------------------


class EventRecord(Struct, array_like=True, frozen=True):
    seq: int
    since_first: int
    """Milliseconds since the first event of its row."""
    type: str
    step_id: str | None
    attempt_no: int | None
    step_status: str | None
    job_status: str | None
    data: dict[str, Any] = {}
    """Without the two statuses, which nearly every event has."""


_decode_events = msgspec.json.Decoder(tuple[Instant, tuple[EventRecord, ...]]).decode


def encode_events(events: Sequence[Event]) -> str:
    """The events of one turn, and when the first of them was."""
    first_at = events[0].at
    return _encode((first_at, [_event_values(event, first_at) for event in events])).decode()


def _event_values(event: Event, first_at: Instant) -> tuple[Any, ...]:
    """The fields of `EventRecord`."""
    data = event.data.copy()
    step_status, job_status = data.pop("step_status", None), data.pop("job_status", None)
    values = (
        event.seq, event.at - first_at, event.type, event.step_id, event.attempt_no, step_status, job_status,
    )  # fmt: skip
    return (*values, data) if data else values


def read_events(text: str) -> list[Event]:
    first_at, records = _decode_events(text)
    events = []
    for record in records:
        data = record.data
        if record.step_status is not None:
            data["step_status"] = record.step_status
        if record.job_status is not None:
            data["job_status"] = record.job_status
        at = first_at + record.since_first
        events.append(Event(record.seq, at, record.type, record.step_id, record.attempt_no, data))
    return events
