"""The document of a job's state, written by every turn that changes it; see also `spec_document`, `event_document`.

Whatever the database selects or orders by has a column of its own and is not in the document. Documents are arrays in
the order of the fields below: their names would be a third of the bytes. So a new field goes last and has a default,
and no field is ever moved or removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, astuple, replace

from lucius.domain.attempt import NULL, Attempt, DispatchStatus, Failure, Verdict
from lucius.domain.job import Job
from lucius.domain.protocol import Policy
from lucius.domain.step import Step, StepSpec, StepStatus
from lucius.domain.time import Instant
from lucius.ledgers.sql.spec_document import SpecDocument

OUTPUT_BYTES_INSIDE_MAX = 256
"""A step's artifacts and output reference are in the state's document up to this size, else in `job_outputs`: an update
would write them again."""

_encode = msgspec.json.Encoder().encode


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
    is_held: bool = False


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


class StateDocument(Struct, array_like=True, frozen=True):
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
    return _encode(_attempt_values(attempt)).decode()


def _attempt_values(attempt: Attempt) -> tuple[Any, ...]:
    """The fields of `AttemptRecord`, without what has its default at the end."""
    values = astuple(attempt)
    return values if attempt.is_held else values[:-1]


def read_attempt(record: AttemptRecord) -> Attempt:
    return Attempt(**asdict(record))


def is_output_outside(step: Step) -> bool:
    if step.artifacts is NULL and step.output_ref is NULL:
        return False
    return len(bytes(step.artifacts)) + len(bytes(step.output_ref)) > OUTPUT_BYTES_INSIDE_MAX


def encode_state(job: Job) -> str:
    """In the order of `StateDocument`, without what has its default at the end."""
    values = (job.current_index, job.attempts_total, job.event_seq, [_step_values(step) for step in job.steps])
    if job.callbacks_recorded:
        return _encode((*values, job.error, job.dead_letter, job.callbacks_recorded)).decode()
    is_sound = job.error is None and not job.dead_letter
    return _encode(values if is_sound else (*values, job.error, job.dead_letter)).decode()


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
        None if step.attempt is None else _attempt_values(step.attempt),
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
    document: SpecDocument,
    states: Sequence[StepRecord],
    policies: dict[str, Policy],
    outputs: dict[int, tuple[Raw, Raw]],
) -> tuple[Step, ...]:
    """`outputs` are artifacts and output reference by step, of those that have them outside the document."""
    steps = []
    for index, (spec, state) in enumerate(zip(document.steps, states, strict=True)):
        artifacts, output_ref = outputs[index] if state.is_output_outside else (state.artifacts, state.output_ref)
        steps.append(
            Step(
                spec=StepSpec(
                    step_id=spec.step_id,
                    step_type=spec.step_type,
                    service=spec.service,
                    payload=spec.payload,
                    policy=policies[spec.policy_id],
                    workspace_ref=document.workspaces + spec.workspace,
                ),
                created_at=document.created_at if spec.created_at is None else spec.created_at,
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
