"""Views of the ledger for whoever looks with SQL: jobs, steps, attempts, outbox, events, job_index.

Documents are arrays; their fields, in order, are named here, and a test compares them with the records in
`ledgers/sql`. Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable

SPEC = (
    "created_at", "deadline_at", "schema_version", "protocol_id", "protocol_version", "rules_version",
    "decision_source", "decision_reason", "routing_key_used", "lane", "input_ref", "output_ref", "idempotency_key",
    "idempotency_hash", "workspaces", "steps", "correlation_id", "doc_id", "traceparent", "not_before", "redrive_of",
    "callback_urls", "searchable",
)  # fmt: skip
STEP_SPEC = ("step_id", "step_type", "service", "policy_id", "workspace", "payload", "created_at")
STATE = ("current_index", "attempts_total", "event_seq", "steps", "error", "dead_letter", "callbacks_recorded")
STEP = (
    "status", "updated_at", "attempts_counted", "attempt", "due_at", "queue_until", "ends_by", "progress", "note",
    "error", "started_at", "completed_at", "artifacts", "output_ref", "is_output_outside",
    "progress_at",
)  # fmt: skip
ATTEMPT = (
    "attempt_no", "lease_id", "created_at", "status", "dispatch", "claimed_until", "sent_at", "acked_at", "acked_by",
    "ended_at", "verdict", "error",
    "is_held",
)  # fmt: skip
EVENT = ("since_first", "type", "step_id", "attempt_no", "step_status", "job_status", "data")
STEP_STATUSES = (
    "PENDING", "DISPATCHING", "INITIATED", "PROCESSING", "FAILED_RETRY", "SUCCEEDED", "FAILED_FINAL", "CANCELLED",
)  # fmt: skip
JOB_STATUSES = (
    "QUEUED", "DISPATCHING", "IN_PROGRESS", "PAUSED", "CANCELLING", "SUCCEEDED", "FAILED_FINAL", "CANCELLED",
)  # fmt: skip

_NUMBERS = {
    "attempt_no", "attempts_counted", "claimed_until", "created_at", "updated_at", "due_at", "queue_until", "ends_by",
    "started_at", "completed_at", "sent_at", "acked_at", "ended_at", "seq", "protocol_version", "not_before",
    "deadline_at", "rules_version", "lane", "current_index", "attempts_total", "event_seq",
}  # fmt: skip
_JSON = {"payload", "artifacts", "output_ref", "input_ref", "data", "callback_urls"}


def _of(source: str, fields: Iterable[str], names: tuple[str, ...]) -> list[str]:
    """Columns from a JSON array whose fields are `names`."""
    return [f"{_value(source, field, names)} AS {field}" for field in fields]


def _value(source: str, field: str, names: tuple[str, ...]) -> str:
    place = names.index(field)
    if field in _JSON:
        return f"({source} -> {place})::text"
    if field == "progress":
        return f"CAST({source} ->> {place} AS DOUBLE PRECISION)"
    return f"({source} ->> {place})::bigint" if field in _NUMBERS else f"({source} ->> {place})"


def _status(field: str, statuses: tuple[str, ...]) -> str:
    """A status that is its place in a list."""
    value = f"CAST({_value('e.value', field, EVENT)} AS TEXT)"
    cases = " ".join(f"WHEN '{place}' THEN '{status}'" for place, status in enumerate(statuses))
    return f"CASE {value} {cases} ELSE {value} END AS {field}"


_SPEC, _STATE = "p.document::json", "j.document::json"
_SPEC_STEPS = f"{_SPEC} -> {SPEC.index('steps')}"
_EACH_STEP = f"CROSS JOIN LATERAL json_array_elements({_SPEC_STEPS}) WITH ORDINALITY AS s (value, place)"
_STEP_STATE = f"({_STATE} -> {STATE.index('steps')} -> (s.place - 1)::int)"
_JOB = "FROM job_states j JOIN job_specs p ON p.job_id = j.job_id"
_REQUESTED_MODE = (
    f"CASE WHEN {_value(_SPEC, 'decision_source', SPEC)} = 'REQUEST' THEN j.resolved_mode END AS requested_mode"
)
_ROUTING_FIELDS = ("resolved_mode", "decision_source", "decision_reason", "routing_key_used", "lane")
_ROUTING = ("j.resolved_mode", *_of(_SPEC, _ROUTING_FIELDS[1:], SPEC))


def _is_true(source: str, field: str, names: tuple[str, ...]) -> str:
    return f"CAST({source} ->> {names.index(field)} AS TEXT) IN ('1', 'true')"


def _error(source: str, place: int, prefix: str = "") -> list[str]:
    return [f"({source} -> {place} ->> '{field}') AS {prefix}error_{field}" for field in ("code", "message")]


def _view(name: str, columns: Iterable[str], rest: str) -> str:
    return f"CREATE VIEW {name} AS SELECT {', '.join(columns)} {rest}"


_JOBS = _view(
    "jobs",
    [
        "j.job_id", "j.tenant_id", "j.request_type",
        f"COALESCE({_value(_SPEC, 'protocol_id', SPEC)}, j.request_type) AS protocol_id",
        *_of(_SPEC, ("protocol_version", "schema_version"), SPEC), _REQUESTED_MODE, *_ROUTING,
        *_of(_SPEC, ("input_ref", "output_ref", "idempotency_key", "idempotency_hash", "doc_id", "callback_urls",
                     "traceparent", "not_before", "deadline_at", "created_at", "redrive_of", "rules_version"), SPEC),
        f"COALESCE({_value(_SPEC, 'correlation_id', SPEC)}, j.job_id) AS correlation_id",
        "j.status", f"({_SPEC_STEPS} -> {_value(_STATE, 'current_index', STATE)}::int ->> 0) AS current_step_id",
        f"{_value(_STATE, 'current_index', STATE)} AS current_step_index", *_of(_STATE, ("attempts_total",), STATE),
        "j.updated_at", "j.completed_at", *_error(_STATE, STATE.index("error")),
        f"CASE WHEN {_is_true(_STATE, 'dead_letter', STATE)} THEN 1 ELSE 0 END AS dead_letter",
        "j.wait_cause", "j.error_signature", "j.wake_at", "j.engine", "j.revision",
    ],
    _JOB,
)  # fmt: skip
_STEPS = _view(
    "steps",
    [
        "j.job_id", "(s.place - 1) AS step_index",
        *_of("s.value", ("step_id", "step_type", "service", "payload"), STEP_SPEC),
        f"({_value(_SPEC, 'workspaces', SPEC)} || {_value('s.value', 'workspace', STEP_SPEC)}) AS workspace_ref",
        f"COALESCE({_value('s.value', 'created_at', STEP_SPEC)}, {_value(_SPEC, 'created_at', SPEC)}) AS created_at",
        *_of(_SPEC, ("input_ref",), SPEC), _REQUESTED_MODE, *_ROUTING,
        *_of(_STEP_STATE, ("status",), STEP),
        f"COALESCE(({_STEP_STATE} -> {STEP.index('attempt')} ->> 0)::bigint, 0) AS attempt_no",
        f"({_STEP_STATE} -> {STEP.index('attempt')} ->> {ATTEMPT.index('lease_id')}) AS lease_id",
        f"CASE WHEN ({_STEP_STATE} ->> 0) = 'PROCESSING' THEN {_value(_STEP_STATE, 'due_at', STEP)} END"
        " AS lease_expires_at",
        *_of(_STEP_STATE, ("attempts_counted", "due_at", "queue_until", "ends_by", "progress", "note"), STEP),
        f"COALESCE(o.artifacts, NULLIF({_value(_STEP_STATE, 'artifacts', STEP)}, 'null')) AS artifacts",
        f"NULLIF(COALESCE(o.output_ref, {_value(_STEP_STATE, 'output_ref', STEP)}), 'null') AS output_ref",
        *_error(_STEP_STATE, STEP.index("error"), "last_"),
        *_of(_STEP_STATE, ("updated_at", "started_at", "completed_at"), STEP),
    ],
    f"{_JOB} {_EACH_STEP} LEFT JOIN job_outputs o ON o.job_id = j.job_id AND o.step_index = (s.place - 1)"
    f" AND {_is_true(_STEP_STATE, 'is_output_outside', STEP)}",
)  # fmt: skip


def _attempt_columns(step: str, index: str, attempt: str) -> list[str]:
    fields = tuple(field for field in ATTEMPT if field not in ("attempt_no", "dispatch", "error", "is_held"))
    return [
        "j.job_id", f"{index} AS step_index", *_of(attempt, ("attempt_no",), ATTEMPT),
        *_of(step, ("step_id",), STEP_SPEC), "j.tenant_id", *_ROUTING,
        *_of(attempt, fields, ATTEMPT), f"({attempt} ->> {ATTEMPT.index('dispatch')}) AS outbox_status",
        *_error(attempt, ATTEMPT.index("error")),
    ]  # fmt: skip


_CURRENT = f"({_STEP_STATE} -> {STEP.index('attempt')})"
_STEP_OF_PAST = f"({_SPEC_STEPS} -> a.step_index::int)"
_ATTEMPTS = (
    _view(
        "attempts",
        _attempt_columns("s.value", "(s.place - 1)", _CURRENT),
        f"{_JOB} {_EACH_STEP} WHERE ({_CURRENT} ->> 0) IS NOT NULL",
    )
    + f" UNION ALL SELECT {', '.join(_attempt_columns(_STEP_OF_PAST, 'a.step_index', 'a.document::json'))}"
    + f" {_JOB} JOIN job_attempts a ON a.job_id = j.job_id"
)
_OUTBOX = _view(
    "outbox",
    [
        "(job_id || ':' || step_id || ':' || attempt_no) AS outbox_id", "job_id", "step_id", "attempt_no", "lease_id",
        "outbox_status AS state", "('global-bus-p' || lane) AS topic", 'lane AS "partition"', "tenant_id",
        *_ROUTING_FIELDS, "created_at", "sent_at", "COALESCE(ended_at, acked_at, sent_at, created_at) AS updated_at",
    ],
    "FROM attempts",
)  # fmt: skip
_EVENTS = _view(
    "events",
    [
        "r.job_id", "(r.last_seq - json_array_length(r.events::json -> 1) + 1 + (e.place - 1)) AS seq",
        f"((r.events::json ->> 0)::bigint + (e.value ->> {EVENT.index('since_first')})::bigint) AS created_at",
        f"(e.value ->> {EVENT.index('type')}) AS event_type", *_of("e.value", ("step_id", "attempt_no"), EVENT),
        _status("step_status", STEP_STATUSES), _status("job_status", JOB_STATUSES),
        f"COALESCE({_value('e.value', 'data', EVENT)}, '{{}}') AS payload",
    ],
    "FROM job_events r CROSS JOIN LATERAL json_array_elements(r.events::json -> 1) WITH ORDINALITY AS e (value, place)",
)  # fmt: skip
_JOB_INDEX = _view(
    "job_index",
    ["c.claim_key", *_of(_SPEC, ("idempotency_hash",), SPEC), "c.job_id", *_of(_SPEC, ("created_at",), SPEC)],
    "FROM claims c JOIN job_specs p ON p.job_id = c.job_id",
)

LEDGER_VIEWS = (_JOBS, _STEPS, _ATTEMPTS, _OUTBOX, _EVENTS, _JOB_INDEX)
