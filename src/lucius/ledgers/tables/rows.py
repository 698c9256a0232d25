"""Between a job and its rows. The core rows hold documents, from which a job is read; the rows of steps, attempts and
events hold columns by the names of the ledger's specification, for people and reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lucius.azure.tables import Row
from lucius.domain.attempt import Attempt
from lucius.domain.job import Job, JobStatus
from lucius.domain.step import Step, StepStatus
from lucius.domain.waiting import wait_cause
from lucius.ledgers.sql import documents, event_document, spec_document
from lucius.ledgers.sql import rows as sql_rows
from lucius.ports.ledger import Change, Closing, Webhook, followed_attempts

BLOB = "_blob"
"""What the column that names a blob ends with."""
SHOWN_CHARS_MAX = 1_000
"""Of texts that are in a column only to be looked at."""
VOID = "VOID"
"""The status of a row that keeps a job from being created: who began to create it has been given up."""

_encode = msgspec.json.Encoder().encode
_decode_keys = msgspec.json.Decoder(list[str]).decode
_decode_policies = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def job_values(
    job: Job, revision: int, hints: Sequence[str], stale: Sequence[str], claim: str | None
) -> dict[str, Any]:
    """The job's own row: `hints` are its keys in the index, `stale` those that it had before."""
    spec, error = job.spec, job.error
    return {
        "jobId": spec.job_id,
        "tenant_id": spec.tenant_id,
        "request_type": spec.request_type,
        "protocol_id": spec.protocol_id,
        "mode": spec.routing.resolved_mode.value,
        "doc_id": shown(spec.doc_id),
        "status": job.status.value,
        "idempotency_key": shown(spec.idempotency_key),
        "idempotency_hash": spec.idempotency_hash,
        "current_step_id": job.current_step.spec.step_id,
        "current_step_index": job.current_index,
        "attempts_total": job.attempts_total,
        "created_at": spec.created_at,
        "updated_at": job.updated_at,
        "completed_at": job.completed_at,
        "error_code": error.code if error else None,
        "error_message": shown(error.message) if error else None,
        "correlation_id": shown(spec.correlation_id),
        "traceparent": shown(spec.traceparent),
        "revision": revision,
        "engine": job.engine,
        "wake_at": job.wake_at,
        "wait_cause": wait_cause(job),
        "claim": claim,
        "hints": encode_keys(hints),
        "stale": encode_keys(stale),
        "document": documents.encode_state(job),
    }


def spec_values(job: Job, hints: Sequence[str]) -> dict[str, Any]:
    """`hints` are the job's keys in the index that hold for as long as it exists."""
    policies = _encode(sql_rows.policies_of([job])).decode()
    return {"document": spec_document.encode_spec(job), "policies": policies, "hints": encode_keys(hints)}


def step_values(job: Job, step: Step) -> dict[str, Any]:
    spec, routing, attempt = step.spec, job.spec.routing, step.attempt
    return {
        "jobId": job.job_id,
        "step_id": spec.step_id,
        "step_type": spec.step_type,
        "service": spec.service,
        "status": step.status.value,
        "attempt_no": step.attempt_no,
        "lease_id": attempt.lease_id if attempt else None,
        "lease_expires_at": step.due_at if step.status is StepStatus.PROCESSING else None,
        "input_ref": shown(text_of(job.spec.input_ref)),
        "workspace_ref": shown(spec.workspace_ref),
        "output_ref": shown(text_of(step.output_ref)),
        "payload": shown(text_of(spec.payload)),
        "resolved_mode": routing.resolved_mode.value,
        "lane": routing.lane,
        "routing_key_used": shown(routing.routing_key_used),
        "decision_source": routing.decision_source.value,
        "decision_reason": shown(routing.decision_reason),
        "last_error_code": step.error.code if step.error else None,
        "last_error_message": shown(step.error.message) if step.error else None,
        "created_at": step.created_at,
        "updated_at": step.updated_at,
        "completed_at": step.completed_at,
    }


def outbox_values(job: Job, index: int, attempt: Attempt) -> dict[str, Any]:
    routing, step = job.spec.routing, job.steps[index].spec
    return {
        "jobId": job.job_id,
        "stepId": step.step_id,
        "step_index": index,
        "service": step.service,
        "attempt_no": attempt.attempt_no,
        "lease_id": attempt.lease_id,
        "status": attempt.dispatch.value,
        "topic": routing.topic,
        "resolved_mode": routing.resolved_mode.value,
        "lane": routing.lane,
        "routing_key_used": shown(routing.routing_key_used),
        "decision_source": routing.decision_source.value,
        "decision_reason": shown(routing.decision_reason),
        "created_at": attempt.created_at,
        "sent_at": attempt.sent_at,
        "updated_at": job.updated_at,
        "document": documents.encode_attempt(attempt),
    }


def event_values(change: Change) -> dict[str, Any]:
    """The events of one change, in one row."""
    events = change.events
    return {
        "event_type": shown(",".join(event.type for event in events)),
        "created_at": events[0].at,
        "last_seq": events[-1].seq,
        "payload": event_document.encode_events(events),
    }


def changed_steps(change: Change) -> list[tuple[int, Step]]:
    before = change.before.steps if change.before is not None else (None,) * len(change.after.steps)
    pairs = zip(change.after.steps, before, strict=True)
    return [(index, step) for index, (step, was) in enumerate(pairs) if step is not was and step != was]


def changed_attempts(change: Change) -> list[tuple[int, Attempt]]:
    """Those that have ended and were followed by others, then the newest of each step that changed."""
    past = change.past_attempts
    if not past and change.before is not None and change.after.attempts_total != change.before.attempts_total:
        past = tuple(followed_attempts(change.before, change.after))
    newest = [(index, step.attempt) for index, step in changed_steps(change) if step.attempt is not None]
    unique = {(index, attempt.attempt_no): (index, attempt) for index, attempt in (*past, *newest)}
    return list(unique.values())


def output_values(change: Change) -> list[tuple[int, dict[str, Any]]]:
    return [(row[1], {"artifacts": row[2], "output_ref": row[3]}) for row in sql_rows.output_rows(change)]


def webhook_values(webhook: Webhook, is_pending: bool = True) -> dict[str, Any]:
    return {
        "status": "PENDING" if is_pending else "DONE",
        "tenant_id": webhook.tenant_id,
        "document": _encode(msgspec.structs.astuple(webhook)).decode(),
    }


def closing_values(closing: Closing) -> dict[str, Any]:
    return {
        "at": closing.at,
        "by": closing.by,
        "reason": closing.reason,
        "redriven_as": closing.redriven_as,
    }


def shown(text: str | None) -> str | None:
    return text[:SHOWN_CHARS_MAX] if text else text


def text_of(value: Raw) -> str | None:
    """JSON as text; None for null."""
    text = bytes(value).decode()
    return None if text in ("", "null") else text


def encode_keys(keys: Iterable[str]) -> str:
    return _encode(list(keys)).decode()


def read_keys(text: str | None) -> list[str]:
    return _decode_keys(text) if text else []


# --- Reading ---------------------------------------------------------------------------------------------------------


class CoreRows(Struct, frozen=True, kw_only=True):
    """What the core of a job holds, by the names of its rows: `""` is the job's own."""

    job_id: str
    etag: str
    by_name: Mapping[str, Mapping[str, Any]]

    @property
    def own(self) -> Mapping[str, Any]:
        return self.by_name[""]

    @property
    def revision(self) -> int:
        return int(self.own["revision"])

    @property
    def hints(self) -> list[str]:
        return read_keys(self.own.get("hints"))

    @property
    def stale(self) -> list[str]:
        return read_keys(self.own.get("stale"))

    @property
    def lasting_hints(self) -> list[str]:
        return read_keys(self.by_name.get("SPEC", {}).get("hints"))

    @property
    def tenant_id(self) -> str:
        return str(self.own["tenant_id"])

    @property
    def packed(self) -> list[str]:
        """The blobs that have not been read."""
        return [row[name] for row in self.by_name.values() for name in row if name.endswith(BLOB)]


def read_job(core: CoreRows) -> Job:
    """Raises one of `sql_rows.UNREADABLE` if something other than LUCIUS has changed the rows or the blobs."""
    if core.packed:
        raise LookupError(f"the blob {core.packed[0]} is gone")
    own, spec_row = core.own, core.by_name["SPEC"]
    spec, state = spec_document.decode_spec(spec_row["document"]), documents.decode_state(own["document"])
    if not 0 <= state.current_index < len(state.steps):
        raise IndexError(f"the job is at step {state.current_index} of {len(state.steps)}")
    policies = {
        policy_id: spec_document.decode_policy(bytes(text))
        for policy_id, text in _decode_policies(spec_row["policies"]).items()
    }
    outputs = {
        int(name.removeprefix("OUTPUT:")): (
            msgspec.Raw(row["artifacts"].encode()),
            msgspec.Raw(row["output_ref"].encode()),
        )
        for name, row in core.by_name.items()
        if name.startswith("OUTPUT:")
    }
    steps = documents.build_steps(spec, state.steps, policies, outputs)
    for holder in (row for name, row in core.by_name.items() if name.startswith("HOLDER:")):
        steps = sql_rows.with_holder(steps, (holder["step_index"], holder["attempt_no"], holder["instance"]))
    return Job(
        spec=spec_document.read_spec(spec, core.job_id, own["tenant_id"], own["request_type"], own["mode"]),
        status=JobStatus(own["status"]),
        steps=steps,
        current_index=state.current_index,
        attempts_total=state.attempts_total,
        updated_at=own["updated_at"],
        completed_at=own.get("completed_at"),
        error=state.error,
        dead_letter=state.dead_letter,
        wake_at=own.get("wake_at"),
        event_seq=state.event_seq,
        callbacks_recorded=state.callbacks_recorded,
        revision=core.revision,
        engine=own["engine"],
    )


def read_attempt(row: Row) -> tuple[int, Attempt]:
    record = documents.decode_attempt(row.values["document"])
    return row.values["step_index"], documents.read_attempt(record)


def read_webhook(values: Mapping[str, Any]) -> Webhook:
    fields = msgspec.json.decode(values["document"])
    return Webhook(**dict(zip(Webhook.__struct_fields__, fields, strict=True)))


def read_closing(job_id: str, values: Mapping[str, Any]) -> Closing:
    return Closing(
        job_id=job_id,
        at=values["at"],
        by=values.get("by"),
        reason=values.get("reason"),
        redriven_as=values.get("redriven_as"),
    )
