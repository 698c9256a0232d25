"""Moves the jobs of schema version 10, a table each for jobs, steps, attempts and events, to documents.

This module writes what version 11 reads, so it must not change and uses nothing that later versions may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw

from lucius.domain.signature import normal_message
from lucius.sql.database import Fetch, Row, Run, Script
from lucius.sql.migration import CopyMismatch, Moved

JOBS_AT_ONCE = 100
EVENTS_IN_A_ROW = 50
OUTPUT_BYTES_INSIDE_MAX = 256

_JOB = (
    "job_id, tenant_id, request_type, protocol_id, protocol_version, schema_version, resolved_mode, decision_source,"
    " decision_reason, routing_key_used, lane, input_ref, output_ref, claim_key, idempotency_key, idempotency_hash,"
    " doc_id, callback_urls, correlation_id, traceparent, not_before, deadline_at, created_at, redrive_of,"
    " rules_version, status, current_step_index, attempts_total, updated_at, completed_at, error_code, error_message,"
    " dead_letter, wake_at, event_seq, revision, engine, callbacks_recorded"
)
_STEP = (
    "job_id, step_index, step_id, step_type, service, payload, policy, workspace_ref, created_at, status, attempt_no,"
    " attempts_counted, due_at, queue_until, ends_by, progress, note, artifacts, output_ref, last_error_code,"
    " last_error_message, updated_at, started_at, completed_at"
)
_ATTEMPT = (
    "job_id, step_index, attempt_no, lease_id, created_at, status, outbox_status, claimed_until, sent_at, acked_at,"
    " acked_by, ended_at, verdict, error_code, error_message"
)
_EVENT = "job_id, seq, created_at, event_type, step_id, attempt_no, payload"

_COUNT = "SELECT COUNT(*) FROM jobs"
_COUNT_COPIED = "SELECT COUNT(*) FROM job_states"
_PAGE = f"SELECT {_JOB} FROM jobs WHERE job_id > $1 ORDER BY job_id LIMIT $2"
_STEPS = f"SELECT {_STEP} FROM steps WHERE job_id = ANY($1::text[]) ORDER BY job_id, step_index"
_ATTEMPTS = f"SELECT {_ATTEMPT} FROM attempts WHERE job_id = ANY($1::text[]) ORDER BY job_id, step_index, attempt_no"
_EVENTS = f"SELECT {_EVENT} FROM events WHERE job_id = ANY($1::text[]) ORDER BY job_id, seq"

_STATE_COLUMNS = (
    "job_id, tenant_id, request_type, resolved_mode, claim_key, document, revision, updated_at, step_status,"
    " wait_cause, wake_at, status, unsent_since, unsent_until, completed_at, error_signature, engine"
)
_TABLES = {
    "job_states": _STATE_COLUMNS,
    "job_specs": "job_id, document",
    "job_attempts": "job_id, step_index, attempt_no, document",
    "job_outputs": "job_id, step_index, artifacts, output_ref",
    "job_events": "job_id, last_seq, events",
}

_CAUSES = {"PENDING": "START", "DISPATCHING": "BUS", "INITIATED": "ACK", "PROCESSING": "RESULT"}
_STEP_STATUSES = {
    "PENDING": 0, "DISPATCHING": 1, "INITIATED": 2, "PROCESSING": 3, "FAILED_RETRY": 4, "SUCCEEDED": 5,
    "FAILED_FINAL": 6, "CANCELLED": 7,
}  # fmt: skip
_JOB_STATUSES = {
    "QUEUED": 0, "DISPATCHING": 1, "IN_PROGRESS": 2, "PAUSED": 3, "CANCELLING": 4, "SUCCEEDED": 5, "FAILED_FINAL": 6,
    "CANCELLED": 7,
}  # fmt: skip
_UNREADABLE = (ValueError, TypeError, LookupError, msgspec.MsgspecError)
_NULL = Raw(b"null")

_encode = msgspec.json.Encoder().encode
_decode_raw = msgspec.json.Decoder(Raw).decode
_decode_any = msgspec.json.decode

Values = dict[str, Any]


class _Copied:
    """The rows that some old jobs become."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _TABLES}
        self.policies: dict[str, str] = {}
        self.counts: dict[tuple[int, str, str], int] = {}

    def add(self, job: Values, steps: Sequence[Values], attempts: Sequence[Values], events: Sequence[Values]) -> None:
        job_id = job["job_id"]
        by_step = {(one["step_index"], one["attempt_no"]): one for one in attempts}
        current = {step["step_index"]: by_step.get((step["step_index"], step["attempt_no"])) for step in steps}
        try:
            policies = {policy_id(step["policy"]): step["policy"] for step in steps}
            for text in policies.values():
                _decode_raw(text)
            spec, state = _spec(job, steps), _state(job, steps, current)
            outputs = [row for step in steps for row in _output(step)]
        except _UNREADABLE as error:
            # The new program reports it as unreadable, as the old one did; the old tables still hold it.
            spec = state = _encode({"unreadable": f"{type(error).__name__}: {error}"}).decode()
            policies, outputs = {}, []
        self.policies |= policies
        self.rows["job_specs"].append((job_id, spec))
        self.rows["job_states"].append(_state_row(job, steps, current, state))
        self.rows["job_outputs"] += outputs
        self.rows["job_attempts"] += [
            (job_id, *key, _encode(_attempt(one)).decode())
            for key, one in by_step.items()
            if current.get(key[0]) is not one
        ]
        self.rows["job_events"] += _event_rows(job_id, events)
        self._count(job["created_at"], job["tenant_id"], "ACCEPTED")
        if job["completed_at"] is not None:
            self._count(job["completed_at"], job["tenant_id"], job["status"])

    def _count(self, at: int, tenant_id: str, outcome: str) -> None:
        key = (at // 60_000, tenant_id, outcome)
        self.counts[key] = self.counts.get(key, 0) + 1


class CopyJobs:
    def total(self) -> Script[int]:
        return int((yield Fetch(_COUNT))[0][0])

    def step(self, position: str | None) -> Script[Moved]:
        copied, moved = yield from _copied(position)
        if copied.policies:
            insert = f"{_insert('policies', 'policy_id, document')} ON CONFLICT (policy_id) DO NOTHING"
            yield Run(insert, sorted(copied.policies.items()))
        for table, columns in _TABLES.items():
            if copied.rows[table]:
                yield Run(_insert(table, columns), copied.rows[table])
        if copied.counts:
            count = (
                f"{_insert('job_counts', 'minute, tenant_id, outcome, jobs')} ON CONFLICT (minute, tenant_id, outcome)"
                " DO UPDATE SET jobs = job_counts.jobs + excluded.jobs"
            )
            yield Run(count, [(*key, jobs) for key, jobs in sorted(copied.counts.items())])
        return moved

    def compare(self, position: str | None) -> Script[Moved]:
        if position is None:
            old, new = (yield Fetch(_COUNT))[0][0], (yield Fetch(_COUNT_COPIED))[0][0]
            if old != new:
                raise CopyMismatch(f"there are {old} jobs in the old tables and {new} in the new ones")
        copied, moved = yield from _copied(position)
        job_ids = [row[0] for row in copied.rows["job_states"]]
        if job_ids:
            for table, columns in _TABLES.items():
                found = yield Fetch(f"SELECT {columns} FROM {table} WHERE job_id = ANY($1::text[])", [job_ids])
                _require_same(table, copied.rows[table], found)
        return moved


def _copied(position: str | None) -> Script[tuple[_Copied, Moved]]:
    jobs = _named(_JOB, (yield Fetch(_PAGE, (position or "", JOBS_AT_ONCE))))
    job_ids = [job["job_id"] for job in jobs]
    copied = _Copied()
    if job_ids:
        steps = _by_job(_named(_STEP, (yield Fetch(_STEPS, [job_ids]))))
        attempts = _by_job(_named(_ATTEMPT, (yield Fetch(_ATTEMPTS, [job_ids]))))
        events = _by_job(_named(_EVENT, (yield Fetch(_EVENTS, [job_ids]))))
        for job in jobs:
            job_id = job["job_id"]
            copied.add(job, steps.get(job_id, ()), attempts.get(job_id, ()), events.get(job_id, ()))
    return copied, Moved(job_ids[-1] if len(jobs) == JOBS_AT_ONCE else None, len(jobs))


def _require_same(table: str, expected: Iterable[tuple[Any, ...]], found: Iterable[Row]) -> None:
    differing = {tuple(row) for row in expected} ^ {tuple(row) for row in found}
    if differing:
        job_id = min(str(row[0]) for row in differing)
        raise CopyMismatch(f"what was copied of job {job_id} to {table} is not what the old tables hold")


def _insert(table: str, columns: str) -> str:
    marks = ", ".join(f"${place}" for place in range(1, len(columns.split(",")) + 1))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"


def _named(columns: str, rows: Iterable[Row]) -> list[Values]:
    names = [name.strip() for name in columns.split(",")]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _by_job(values: Iterable[Values]) -> dict[str, list[Values]]:
    grouped: dict[str, list[Values]] = {}
    for one in values:
        grouped.setdefault(one["job_id"], []).append(one)
    return grouped


# --- Documents -------------------------------------------------------------------------------------------------------


def policy_id(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _spec(job: Values, steps: Sequence[Values]) -> str:
    workspaces = _folder([step["workspace_ref"] for step in steps])
    urls = _decode_any(job["callback_urls"], type=dict[str, str]) if job["callback_urls"] else None
    document = [
        job["created_at"], job["deadline_at"], job["schema_version"],
        None if job["protocol_id"] == job["request_type"] else job["protocol_id"],
        *(job[name] for name in ("protocol_version", "rules_version", "decision_source", "decision_reason",
                                 "routing_key_used", "lane")),
        _decode_raw(job["input_ref"]), _decode_raw(job["output_ref"]), job["idempotency_key"], job["idempotency_hash"],
        workspaces, [_step_spec(step, job["created_at"], len(workspaces)) for step in steps],
        None if job["correlation_id"] == job["job_id"] else job["correlation_id"],
        *(job[name] for name in ("doc_id", "traceparent", "not_before", "redrive_of")), urls or None,
    ]  # fmt: skip
    while document[-1] is None:
        document.pop()
    return _encode(document).decode()


def _folder(refs: Sequence[str]) -> str:
    """The folder that all of these are in, with its slash; empty if they are not in one."""
    folder = refs[0][: refs[0].rfind("/") + 1]
    return folder if all(ref.startswith(folder) for ref in refs) else ""


def _step_spec(step: Values, job_created_at: int, shared: int) -> tuple[Any, ...]:
    named = (step["step_id"], step["step_type"], step["service"], policy_id(step["policy"]))
    values = (*named, step["workspace_ref"][shared:], _decode_raw(step["payload"]))
    return values if step["created_at"] == job_created_at else (*values, step["created_at"])


def _state(job: Values, steps: Sequence[Values], current: Mapping[int, Values | None]) -> str:
    if not 0 <= job["current_step_index"] < len(steps):
        raise IndexError(f"the job is at step {job['current_step_index']} of {len(steps)}")
    documents = [_step(step, current[step["step_index"]]) for step in steps]
    values = (job["current_step_index"], job["attempts_total"], job["event_seq"], documents)
    error, dead_letter = _failure(job["error_code"], job["error_message"]), bool(job["dead_letter"])
    if job["callbacks_recorded"]:
        recorded = _decode_any(job["callbacks_recorded"], type=tuple[str, ...])
        return _encode((*values, error, dead_letter, recorded)).decode()
    is_sound = error is None and not dead_letter
    return _encode(values if is_sound else (*values, error, dead_letter)).decode()


def _step(step: Values, attempt: Values | None) -> tuple[Any, ...]:
    is_outside = bool(_output(step))
    inside = (_NULL, _NULL) if is_outside else (_raw(step["artifacts"]), _raw(step["output_ref"]))
    times = (step["due_at"], step["queue_until"], step["ends_by"])
    error = _failure(step["last_error_code"], step["last_error_message"])
    return (
        step["status"], step["updated_at"], step["attempts_counted"], None if attempt is None else _attempt(attempt),
        *times, step["progress"], step["note"], error, step["started_at"], step["completed_at"], *inside, is_outside,
    )  # fmt: skip


def _output(step: Values) -> list[tuple[Any, ...]]:
    artifacts, output_ref = _raw(step["artifacts"]), _raw(step["output_ref"])
    if len(bytes(artifacts)) + len(bytes(output_ref)) <= OUTPUT_BYTES_INSIDE_MAX:
        return []
    return [(step["job_id"], step["step_index"], bytes(artifacts).decode(), bytes(output_ref).decode())]


def _attempt(attempt: Values) -> tuple[Any, ...]:
    names = (
        "attempt_no", "lease_id", "created_at", "status", "outbox_status", "claimed_until", "sent_at", "acked_at",
        "acked_by", "ended_at", "verdict",
    )  # fmt: skip
    return (*(attempt[name] for name in names), _failure(attempt["error_code"], attempt["error_message"]))


def _state_row(
    job: Values, steps: Sequence[Values], current: Mapping[int, Values | None], document: str
) -> tuple[Any, ...]:
    step = next((one for one in steps if one["step_index"] == job["current_step_index"]), None)
    attempt = current.get(job["current_step_index"])
    is_unsent = attempt is not None and attempt["outbox_status"] == "PENDING"
    return (
        job["job_id"], job["tenant_id"], job["request_type"], job["resolved_mode"], job["claim_key"], document,
        job["revision"], job["updated_at"], step["status"] if step else "", _wait_cause(job, step), job["wake_at"],
        job["status"], attempt["created_at"] if attempt is not None and is_unsent else None,
        attempt["claimed_until"] if attempt is not None and is_unsent else None, job["completed_at"],
        _signature(job, step), job["engine"],
    )  # fmt: skip


def _wait_cause(job: Values, step: Values | None) -> str | None:
    if job["completed_at"] is not None or step is None:
        return None
    if job["status"] == "PAUSED" and step["status"] not in ("DISPATCHING", "INITIATED", "PROCESSING"):
        return "RESUME"
    return _CAUSES.get(step["status"], "RETRY")


def _signature(job: Values, step: Values | None) -> str | None:
    if job["status"] != "FAILED_FINAL" or not job["error_code"] or step is None:
        return None
    message = normal_message(job["error_message"] or "")
    return f"{job['protocol_id']}/{job['protocol_version']}/{step['step_id']}/{job['error_code']}: {message}"


def _event_rows(job_id: str, events: Sequence[Values]) -> list[tuple[Any, ...]]:
    """Numbers without a gap in each: a row holds but the last of them."""
    pages: list[list[Values]] = []
    for event in events:
        if not pages or len(pages[-1]) == EVENTS_IN_A_ROW or pages[-1][-1]["seq"] + 1 != event["seq"]:
            pages.append([])
        pages[-1].append(event)
    rows = []
    for page in pages:
        first_at = page[0]["created_at"]
        text = _encode((first_at, [_event(event, first_at) for event in page])).decode()
        rows.append((job_id, page[-1]["seq"], text))
    return rows


def _event(event: Values, first_at: int) -> tuple[Any, ...]:
    try:
        data = _decode_any(event["payload"], type=dict[str, Any])
    except _UNREADABLE:
        data = {"error": {"code": "ROW_UNREADABLE", "message": "what the ledger holds of this event is not JSON"}}
    values = (
        event["created_at"] - first_at, event["event_type"], event["step_id"], event["attempt_no"],
        _place(_STEP_STATUSES, data.pop("step_status", None)), _place(_JOB_STATUSES, data.pop("job_status", None)),
    )  # fmt: skip
    return (*values, data) if data else values


def _place(places: Mapping[str, int], status: Any) -> int | str | None:
    return None if status is None else places.get(str(status), str(status))


def _raw(text: str | None) -> Raw:
    return _NULL if text is None else _decode_raw(text)


def _failure(code: str | None, message: str | None) -> Values | None:
    return {"code": code, "message": message or ""} if code else None
