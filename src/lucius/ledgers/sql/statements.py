"""Every statement of the ledger, in PostgreSQL's dialect (see `lucius.sql.dialect`)."""

from __future__ import annotations

JOB_SPEC = (
    "job_id, tenant_id, request_type, protocol_id, protocol_version, schema_version, resolved_mode, decision_source,"
    " decision_reason, routing_key_used, lane, input_ref, output_ref, claim_key, idempotency_key, idempotency_hash,"
    " doc_id, callback_urls, correlation_id, traceparent, not_before, deadline_at, created_at, redrive_of,"
    " rules_version"
)
JOB_STATE = (
    "status, current_step_id, current_step_index, attempts_total, updated_at, completed_at, error_code, error_message,"
    " dead_letter, wake_at, event_seq, revision, engine"
)
STEP_SPEC = "job_id, step_index, step_id, step_type, service, payload, policy, workspace_ref, created_at"
STEP_STATE = (
    "status, attempt_no, attempts_counted, lease_id, due_at, queue_until, ends_by, progress, note, artifacts,"
    " output_ref, last_error_code, last_error_message, updated_at, started_at, completed_at"
)
ATTEMPT_KEY = "job_id, step_index, attempt_no"
ATTEMPT_SPEC = "step_id, lease_id, tenant_id, resolved_mode, lane, routing_key_used, created_at"
ATTEMPT_STATE = (
    "status, outbox_status, claimed_until, sent_at, acked_at, ended_at, verdict, error_code, error_message, acked_by"
)
EVENT = "job_id, seq, created_at, event_type, step_id, attempt_no, payload"
WEBHOOK = "job_id, url, tenant_id, attempts, next_at, last_error"


def _names(columns: str) -> list[str]:
    return [name.strip() for name in columns.split(",")]


def _insert(table: str, columns: str) -> str:
    marks = ", ".join(f"${place}" for place in range(1, len(_names(columns)) + 1))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"


def _assign(columns: str, first: int) -> str:
    return ", ".join(f"{name} = ${place}" for place, name in enumerate(_names(columns), first))


# Writing: one turn.
LOCK_JOBS = "SELECT job_id, revision FROM jobs WHERE job_id = ANY($1::text[]) ORDER BY job_id FOR UPDATE"
MOVED_JOBS = (  # SQLite alone: needs no locks, so it can answer with nothing but the exceptions.
    "SELECT g.value ->> 0 FROM json_each($1) g LEFT JOIN jobs j ON j.job_id = g.value ->> 0"
    " WHERE j.revision IS NOT g.value ->> 1"
)
INSERT_JOB = _insert("jobs", f"{JOB_SPEC}, {JOB_STATE}")
UPDATE_JOB = f"UPDATE jobs SET {_assign(JOB_STATE, 2)} WHERE job_id = $1"
INSERT_STEP = _insert("steps", f"{STEP_SPEC}, {STEP_STATE}")
UPDATE_STEP = f"UPDATE steps SET {_assign(STEP_STATE, 3)} WHERE job_id = $1 AND step_index = $2"
WRITE_ATTEMPT = (
    _insert("attempts", f"{ATTEMPT_KEY}, {ATTEMPT_SPEC}, {ATTEMPT_STATE}")
    + f" ON CONFLICT ({ATTEMPT_KEY}) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _names(ATTEMPT_STATE))
)
INSERT_EVENT = _insert("events", EVENT)
INSERT_CLAIM = "INSERT INTO claims (claim_key, job_id) VALUES ($1, $2) ON CONFLICT (claim_key) DO NOTHING"
READ_CLAIMS = (
    "SELECT c.claim_key, c.job_id, j.idempotency_hash, j.status FROM claims c JOIN jobs j ON j.job_id = c.job_id"
    " WHERE c.claim_key = ANY($1::text[])"
)
CLAIM_OWNERS = "SELECT claim_key, job_id FROM claims WHERE claim_key = ANY($1::text[])"
READ_SLOTS = "SELECT scope, jobs FROM inflight WHERE scope = ANY($1::text[])"
MOVE_SLOTS = (
    "INSERT INTO inflight (scope, jobs) VALUES ($1, $2)"
    " ON CONFLICT (scope) DO UPDATE SET jobs = inflight.jobs + excluded.jobs"
)
INSERT_WEBHOOK = (
    f"INSERT INTO webhooks ({WEBHOOK}, status) VALUES ($1, $2, $3, $4, $5, $6, 'PENDING')"
    + " ON CONFLICT (job_id) DO NOTHING"
)

# Reading: the engine.
LOAD_JOBS = f"SELECT {JOB_SPEC}, {JOB_STATE} FROM jobs WHERE job_id = ANY($1::text[])"
LOAD_STEPS = f"SELECT {STEP_SPEC}, {STEP_STATE} FROM steps WHERE job_id = ANY($1::text[]) ORDER BY job_id, step_index"
LOAD_CURRENT_ATTEMPTS = (
    "SELECT "
    + ", ".join(f"a.{name}" for name in _names(f"{ATTEMPT_KEY}, {ATTEMPT_SPEC}, {ATTEMPT_STATE}"))
    + " FROM steps s JOIN attempts a"
    " ON a.job_id = s.job_id AND a.step_index = s.step_index AND a.attempt_no = s.attempt_no"
    " WHERE s.job_id = ANY($1::text[])"
)
# Jobs of another engine have their timers and their unsent attempts there.
DUE = (
    "SELECT job_id FROM jobs WHERE wake_at IS NOT NULL AND engine = 'outbox' AND wake_at <= $1"
    " ORDER BY wake_at LIMIT $2"
)
UNDISPATCHED = (
    "SELECT job_id FROM attempts WHERE outbox_status = 'PENDING' AND claimed_until <= $1 AND EXISTS ("
    "SELECT 1 FROM jobs j WHERE j.job_id = attempts.job_id AND j.engine = 'outbox')"
    " ORDER BY claimed_until LIMIT $2"
)
OUTBOX = (
    f"SELECT {ATTEMPT_KEY}, {ATTEMPT_SPEC}, {ATTEMPT_STATE} FROM attempts"
    " WHERE outbox_status = 'PENDING' ORDER BY created_at, job_id LIMIT $1"
)

# Reading: people.
ATTEMPTS = (
    f"SELECT {ATTEMPT_KEY}, {ATTEMPT_SPEC}, {ATTEMPT_STATE} FROM attempts WHERE job_id = $1"
    " ORDER BY step_index, attempt_no"
)
EVENTS = f"SELECT {EVENT} FROM events WHERE job_id = $1 AND seq > $2 ORDER BY seq LIMIT $3"
INFLIGHT = "SELECT scope, jobs FROM inflight WHERE jobs <> 0"
PING = "SELECT 1"
TOUCH = "INSERT INTO schema_versions (version, name) VALUES ($1, 'can anything be written?') ON CONFLICT DO NOTHING"
UNTOUCH = "DELETE FROM schema_versions WHERE version = $1"

# Webhooks.
WEBHOOKS_DUE = (
    f"SELECT {WEBHOOK} FROM webhooks WHERE status = 'PENDING' AND next_at <= $1"
    " ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED"
)
CLAIM_WEBHOOK = "UPDATE webhooks SET next_at = $2 WHERE job_id = $1"
FINISH_WEBHOOK = "UPDATE webhooks SET status = $2, attempts = $3, next_at = $4, last_error = $5 WHERE job_id = $1"

# Repair. SQLite does not see by itself that an open job lies within the partial index on `status`.
_IS_OPEN = "status <> 'SUCCEEDED' AND status IN ('QUEUED', 'DISPATCHING', 'IN_PROGRESS', 'PAUSED', 'CANCELLING')"
COUNT_BY_TENANT_AND_MODE = (
    f"SELECT tenant_id, resolved_mode, COUNT(*) FROM jobs WHERE {_IS_OPEN} GROUP BY tenant_id, resolved_mode"
)
MAKE_GLOBAL_SLOT = "INSERT INTO inflight (scope, jobs) VALUES ('global', 0) ON CONFLICT (scope) DO NOTHING"
ALL_SLOTS = "SELECT scope, jobs FROM inflight ORDER BY scope FOR UPDATE"
SET_SLOTS = "INSERT INTO inflight (scope, jobs) VALUES ($1, $2) ON CONFLICT (scope) DO UPDATE SET jobs = excluded.jobs"
WAKE_SLEEPERS = (
    "UPDATE jobs SET wake_at = $1, revision = revision + 1"
    f" WHERE {_IS_OPEN} AND engine = 'outbox' AND (wake_at IS NULL OR EXISTS ("
    "SELECT 1 FROM steps s WHERE s.job_id = jobs.job_id AND s.step_index = jobs.current_step_index"
    " AND s.status = 'DISPATCHING' AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.job_id = s.job_id"
    " AND a.step_index = s.step_index AND a.attempt_no = s.attempt_no AND a.outbox_status = 'PENDING')))"
    " RETURNING job_id"
)
CLOSE_ORPHANED_OUTBOX = (
    "UPDATE attempts SET outbox_status = 'FAILED_FINAL' WHERE outbox_status = 'PENDING' AND NOT EXISTS ("
    "SELECT 1 FROM jobs j WHERE j.job_id = attempts.job_id"
    " AND j.status IN ('QUEUED', 'DISPATCHING', 'IN_PROGRESS', 'PAUSED', 'CANCELLING'))"
    " RETURNING job_id"
)

# Pruning.
PRUNABLE = (
    "SELECT job_id, claim_key FROM jobs WHERE completed_at IS NOT NULL AND completed_at < $1 ORDER BY job_id LIMIT $2"
    " FOR UPDATE SKIP LOCKED"
)
PRUNE = tuple(f"DELETE FROM {table} WHERE job_id = $1" for table in ("events", "attempts", "steps", "webhooks", "jobs"))
PRUNE_CLAIM = "DELETE FROM claims WHERE claim_key = $1 AND job_id = $2"


def list_jobs(conditions: list[str]) -> str:
    """A page of jobs, newest first; the conditions are fixed texts with numbered arguments."""
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {JOB_SPEC}, {JOB_STATE} FROM jobs{where} ORDER BY job_id DESC LIMIT $1"
