"""Between a job and its rows: columns for what the database selects and orders by, documents for the rest."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lucius.domain.attempt import Attempt, DispatchStatus
from lucius.domain.effects import Event
from lucius.domain.job import Job, JobSpec, JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.signature import error_signature
from lucius.domain.step import Step
from lucius.domain.time import Instant
from lucius.domain.waiting import wait_cause
from lucius.ledgers.sql import documents, event_document, spec_document
from lucius.ports.ledger import Change, Closing, HeldLine, OutboxRow, Webhook, followed_attempts
from lucius.sql.database import Row

UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError, msgspec.MsgspecError)
"""What reading a row raises that something other than LUCIUS has changed."""

_encode = msgspec.json.Encoder().encode
_decode_raw = msgspec.json.Decoder(Raw).decode
_decode_holder = msgspec.json.Decoder(tuple[int, int, str]).decode


def claim_key(key: bytes) -> str:
    return urlsafe_b64encode(key).rstrip(b"=").decode()


# --- Writing ---------------------------------------------------------------------------------------------------------


def new_state_row(change: Change) -> tuple[Any, ...]:
    """`statements.STATE_KEY` and `statements.STATE` of a new job."""
    job, spec = change.after, change.after.spec
    key = claim_key(change.claim.key) if change.claim else None
    state = (*_moving(job), *_standing(job))
    return (spec.job_id, spec.tenant_id, spec.request_type, spec.routing.resolved_mode, key, *state)


def state_row(job: Job) -> tuple[Any, ...]:
    """The id, then `statements.STATE`."""
    return (job.spec.job_id, *_moving(job), *_standing(job))


def moving_row(job: Job) -> tuple[Any, ...]:
    """The id, then `statements.MOVING`."""
    return (job.spec.job_id, *_moving(job))


def only_moves(change: Change) -> bool:
    """Whether nothing changes but the columns of `statements.MOVING`."""
    before = change.before
    return before is not None and _standing(before) == _standing(change.after)


def _moving(job: Job) -> tuple[Any, ...]:
    return (
        documents.encode_state(job),
        job.revision + 1,
        job.updated_at,
        job.current_step.status,
        wait_cause(job),
        job.wake_at,
    )


def _standing(job: Job) -> tuple[Any, ...]:
    attempt = job.current_step.attempt
    unsent_since = unsent_until = held_for = None
    if attempt is not None and attempt.dispatch is DispatchStatus.PENDING:
        unsent_since, unsent_until = attempt.created_at, attempt.claimed_until
        if attempt.is_held:
            unsent_until, held_for = None, held_for_text(job.spec.routing.lane, job.current_step.spec.service)
    signature = error_signature(job) if job.error is not None else None
    return (job.status, unsent_since, unsent_until, job.completed_at, signature, job.engine, held_for)


def held_for_text(lane: int, service: str) -> str:
    return f"{lane} {service}"


def read_held_line(row: Row) -> HeldLine:
    """From a row of `statements.HELD_LINES`."""
    lane, _, service = row[1].partition(" ")
    return HeldLine(row[0], int(lane), service)


def spec_row(job: Job) -> tuple[Any, ...]:
    spec = job.spec
    correlation_id = None if spec.correlation_id == spec.job_id else spec.correlation_id
    return (spec.job_id, spec_document.encode_spec(job), correlation_id)


def search_rows(spec: JobSpec) -> list[tuple[Any, ...]]:
    return [(spec.job_id, value.field, value.value, spec.tenant_id) for value in spec.searchable]


def past_attempt_rows(change: Change) -> list[tuple[Any, ...]]:
    """The attempts that others have followed: a step's newest attempt is in the state's document."""
    job_id = change.after.spec.job_id
    past = change.past_attempts
    if not past and change.before is not None and change.after.attempts_total != change.before.attempts_total:
        past = tuple(followed_attempts(change.before, change.after))
    return [(job_id, index, attempt.attempt_no, documents.encode_attempt(attempt)) for index, attempt in past]


def output_rows(change: Change) -> list[tuple[Any, ...]]:
    """Outputs too large for the state's document, of the steps where they are new."""
    before = change.before.steps if change.before is not None else (None,) * len(change.after.steps)
    return [
        (change.after.spec.job_id, index, bytes(step.artifacts).decode(), bytes(step.output_ref).decode())
        for index, (step, was) in enumerate(zip(change.after.steps, before, strict=True))
        if step is not was and not _has_same_output(step, was) and documents.is_output_outside(step)
    ]


def _has_same_output(step: Step, was: Step | None) -> bool:
    return was is not None and step.artifacts is was.artifacts and step.output_ref is was.output_ref


def events_row(change: Change) -> tuple[Any, ...]:
    return (change.after.spec.job_id, change.events[-1].seq, event_document.encode_events(change.events))


def webhook_row(webhook: Webhook) -> tuple[Any, ...]:
    return (webhook.job_id, webhook.url, webhook.tenant_id, webhook.attempts, webhook.next_at, webhook.last_error)


def job_counts(changes: Iterable[Change]) -> list[tuple[Any, ...]]:
    """How many jobs were accepted and how many ended, by minute and by hour, tenant and outcome."""
    counts: dict[tuple[int, str, str], int] = {}
    for change in changes:
        job = change.after
        if change.before is None:
            key = (minute_of(job.spec.created_at), job.spec.tenant_id, "ACCEPTED")
            counts[key] = counts.get(key, 0) + 1
        if job.completed_at is not None and (change.before is None or change.before.completed_at is None):
            key = (minute_of(job.completed_at), job.spec.tenant_id, str(job.status.value))
            counts[key] = counts.get(key, 0) + 1
    return with_hours(counts) if counts else []


def with_hours(counts: Mapping[tuple[int, str, str], int]) -> list[tuple[Any, ...]]:
    """Rows of `job_counts`: counts by minute, tenant and outcome, and their sums by hour. In one order, so that
    processes that write the same rows do not wait for each other in a circle."""
    rows = dict(counts)
    for (minute, tenant_id, outcome), count in counts.items():
        key = (hour_key(minute), tenant_id, outcome)
        rows[key] = rows.get(key, 0) + count
    return [(*key, count) for key, count in sorted(rows.items())]


def minute_of(instant: Instant) -> int:
    return instant // 60_000


def hour_key(minute: int) -> int:
    """What stands in the column `minute` of a row that counts a whole hour."""
    return -(minute // 60)


# --- Reading ---------------------------------------------------------------------------------------------------------


class Loaded(Struct, frozen=True):
    """A job's row, decoded as far as that goes without the rows that belong to it."""

    row: Row
    spec: spec_document.SpecDocument
    state: documents.StateDocument

    @property
    def has_outputs_outside(self) -> bool:
        return any(step.is_output_outside for step in self.state.steps)


def read_documents(row: Row) -> Loaded:
    """From a row of `statements.LOAD_JOBS`."""
    spec, state = spec_document.decode_spec(row[10]), documents.decode_state(row[9])
    if not 0 <= state.current_index < len(state.steps):
        raise IndexError(f"the job is at step {state.current_index} of {len(state.steps)}")
    return Loaded(row, spec, state)


def read_job(loaded: Loaded, policies: dict[str, Policy], outputs: Mapping[int, tuple[str, str]]) -> Job:
    row, spec, state = loaded.row, loaded.spec, loaded.state
    raw_outputs = {index: (_decode_raw(one), _decode_raw(other)) for index, (one, other) in outputs.items()}
    steps = documents.build_steps(spec, state.steps, policies, raw_outputs)
    return Job(
        spec=spec_document.read_spec(spec, row[0], row[1], row[11], row[12]),
        status=JobStatus(row[2]),
        steps=with_holder(steps, _decode_holder(row[8])) if row[8] else steps,
        current_index=state.current_index,
        attempts_total=state.attempts_total,
        updated_at=row[5],
        completed_at=row[6],
        error=state.error,
        dead_letter=state.dead_letter,
        wake_at=row[4],
        event_seq=state.event_seq,
        callbacks_recorded=state.callbacks_recorded,
        revision=row[7],
        engine=row[3],
    )


def encode_holder(step_index: int, attempt_no: int, instance: str) -> str:
    return _encode((step_index, attempt_no, instance)).decode()


def read_holder(text: str | None) -> tuple[int, int, str] | None:
    return _decode_holder(text) if text else None


def is_unanswered(attempt: Attempt | documents.AttemptRecord) -> bool:
    return attempt.acked_at is None and attempt.verdict is None


def with_holder(steps: tuple[Step, ...], holder: tuple[int, int, str]) -> tuple[Step, ...]:
    """With the instance that is noted for an attempt whose ACK or RESULT is not written yet."""
    index, attempt_no, instance = holder
    step = steps[index]
    attempt = step.attempt
    if attempt is None or attempt.attempt_no != attempt_no or attempt.acked_by or not is_unanswered(attempt):
        return steps
    held = msgspec.structs.replace(step, attempt=msgspec.structs.replace(attempt, acked_by=instance))
    return (*steps[:index], held, *steps[index + 1 :])


def read_outbox_row(row: Row) -> OutboxRow:
    """From a row of `statements.OUTBOX`: job, tenant, mode, the state's document, the spec's."""
    state, spec = documents.decode_state(row[3]), spec_document.decode_spec(row[4])
    attempt = state.steps[state.current_index].attempt
    if attempt is None:
        raise LookupError("the step has no attempt")
    return OutboxRow(
        job_id=row[0],
        step_id=spec.steps[state.current_index].step_id,
        service=spec.steps[state.current_index].service,
        tenant_id=row[1],
        routing=spec_document.read_routing(spec, row[2]),
        attempt=documents.read_attempt(attempt),
    )


def read_events(row: Row) -> list[Event]:
    """From a row of `statements.EVENTS`: the number of its last event, and the events of one turn."""
    try:
        return event_document.read_events(row[0], row[1])
    except UNREADABLE:
        error = {"code": "ROW_UNREADABLE", "message": "what the ledger holds of these events is not JSON"}
        return [Event(row[0], 0, "UNREADABLE", None, None, {"error": error})]


def read_webhook(row: Row) -> Webhook:
    return Webhook(job_id=row[0], url=row[1], tenant_id=row[2], attempts=row[3], next_at=row[4], last_error=row[5])


def policies_of(jobs: Sequence[Job]) -> dict[str, Policy]:
    return {spec_document.id_of_policy(step.spec.policy): step.spec.policy for job in jobs for step in job.steps}


def redriven_row(spec: JobSpec) -> tuple[Any, ...]:
    """The closing of the dead letter that this job redrives."""
    return spec.redrive_of, spec.created_at, None, None, spec.job_id


def closing_row(closing: Closing) -> tuple[Any, ...]:
    return closing.job_id, closing.at, closing.by, closing.reason, closing.redriven_as


def read_closing(row: Row) -> Closing:
    return Closing(job_id=row[0], at=row[1], by=row[2], reason=row[3], redriven_as=row[4])
