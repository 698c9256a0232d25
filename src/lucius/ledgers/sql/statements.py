"""Every statement of the ledger, in PostgreSQL's dialect (see `lucius.sql.dialect`); tables: `sql/ledger_tables.py`."""

from __future__ import annotations

from typing import NamedTuple

from lucius.domain.job import JOB_TERMINAL

STATE_KEY = "job_id, tenant_id, request_type, resolved_mode, claim_key"
MOVING = "document, revision, updated_at, step_status, wait_cause, wake_at"
"""What most turns change."""
STATE = f"{MOVING}, status, unsent_since, unsent_until, completed_at, error_signature, engine, held_for"
"""Everything that a turn may change."""
CLOSING = "job_id, closed_at, dismissed_by, reason, redriven_as"
AUDIT = "entry_id, at, actor, action, kind, target, tenant_id, reason, detail"
"""In the order of `AuditEntry`."""
WEBHOOK = "job_id, url, tenant_id, attempts, next_at, last_error"


def names(columns: str) -> list[str]:
    return [name.strip() for name in columns.split(",")]


def _insert(table: str, columns: str) -> str:
    marks = ", ".join(f"${place}" for place in range(1, len(names(columns)) + 1))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"


def _assign(columns: str, first: int) -> str:
    return ", ".join(f"{name} = ${place}" for place, name in enumerate(names(columns), first))


# Writing: one turn.
LOCK_JOBS = "SELECT job_id, revision FROM job_states WHERE job_id = ANY($1::text[]) ORDER BY job_id FOR UPDATE"
JOBS_ARE = (  # PostgreSQL alone: locks them, and answers whether each has this revision.
    f"WITH locked AS ({LOCK_JOBS}) SELECT COUNT(*) = cardinality($1::text[]) FROM locked"
    " JOIN unnest($1::text[], $2::bigint[]) AS given (job_id, revision) USING (job_id, revision)"
)
JOBS_THAT_ARE_NOT = (  # PostgreSQL alone.
    "SELECT g.job_id FROM unnest($1::text[], $2::bigint[]) AS g (job_id, revision)"
    " LEFT JOIN job_states j ON j.job_id = g.job_id WHERE j.revision IS DISTINCT FROM g.revision"
)
MOVED_JOBS = (  # SQLite alone: needs no locks, so it can answer with nothing but the exceptions.
    "SELECT g.value ->> 0 FROM json_each($1) g LEFT JOIN job_states j ON j.job_id = g.value ->> 0"
    " WHERE j.revision IS NOT g.value ->> 1"
)
INSERT_STATE = _insert("job_states", f"{STATE_KEY}, {STATE}")
UPDATE_STATE = f"UPDATE job_states SET {_assign(STATE, 2)} WHERE job_id = $1"
UPDATE_MOVING = f"UPDATE job_states SET {_assign(MOVING, 2)} WHERE job_id = $1"
"""For a job whose other columns stay as they are: what is not assigned needs no update in its indexes either."""
INSERT_SPEC = _insert("job_specs", "job_id, document, correlation_id")
INSERT_SEARCH_VALUE = _insert("job_search_values", "job_id, field, value, tenant_id")
INSERT_POLICY = f"{_insert('policies', 'policy_id, document')} ON CONFLICT (policy_id) DO NOTHING"
INSERT_ATTEMPT = (
    f"{_insert('job_attempts', 'job_id, step_index, attempt_no, document')}"
    " ON CONFLICT (job_id, step_index, attempt_no) DO NOTHING"
)
WRITE_OUTPUT = (
    f"{_insert('job_outputs', 'job_id, step_index, artifacts, output_ref')} ON CONFLICT (job_id, step_index)"
    " DO UPDATE SET artifacts = excluded.artifacts, output_ref = excluded.output_ref"
)
INSERT_EVENTS = _insert("job_events", "job_id, last_seq, events")
COUNT_JOBS = (
    f"{_insert('job_counts', 'minute, tenant_id, outcome, jobs')} ON CONFLICT (minute, tenant_id, outcome)"
    " DO UPDATE SET jobs = job_counts.jobs + excluded.jobs"
)
INSERT_CLOSING = f"{_insert('dead_letter_closings', CLOSING)} ON CONFLICT (job_id) DO NOTHING"
INSERT_AUDIT = _insert("audit_entries", AUDIT)
READ_AUDIT = f"SELECT {AUDIT} FROM audit_entries WHERE entry_id = ANY($1::text[]) ORDER BY entry_id DESC"
READ_CLOSINGS = f"SELECT {CLOSING} FROM dead_letter_closings WHERE job_id = ANY($1::text[])"
# Scalar subqueries, looked up row by row: of EXISTS, PostgreSQL makes a join that reads and sorts the whole list.
_CLOSING_OF_JOB = "(SELECT c.{} FROM dead_letter_closings c WHERE c.job_id = job_states.job_id)"
NOT_CLOSED = f"{_CLOSING_OF_JOB.format('closed_at')} IS NULL"
DISMISSED = f"{_CLOSING_OF_JOB.format('dismissed_by')} IS NOT NULL"
INSERT_NEW_CLAIM = "INSERT INTO claims (claim_key, job_id) VALUES ($1, $2)"
INSERT_CLAIM = f"{INSERT_NEW_CLAIM} ON CONFLICT (claim_key) DO NOTHING"
HASH_PLACE = 13
"""Where the idempotency hash is in the document of what was accepted."""
READ_CLAIMS = (
    f"SELECT c.claim_key, c.job_id, p.document::json ->> {HASH_PLACE}, j.status FROM claims c"
    " JOIN job_states j ON j.job_id = c.job_id JOIN job_specs p ON p.job_id = c.job_id"
    " WHERE c.claim_key = ANY($1::text[])"
)
TAKE_CLAIMS = (  # PostgreSQL alone: answers with those that nobody had.
    "INSERT INTO claims (claim_key, job_id) SELECT * FROM unnest($1::text[], $2::text[])"
    " ON CONFLICT (claim_key) DO NOTHING RETURNING claim_key"
)
CLAIM_OWNERS = "SELECT claim_key, job_id FROM claims WHERE claim_key = ANY($1::text[])"
TENANTS = "SELECT job_id, tenant_id FROM job_states WHERE job_id = ANY($1::text[])"
STATUSES = "SELECT job_id, status FROM job_states WHERE job_id = ANY($1::text[])"
READ_SLOTS = "SELECT scope, jobs FROM inflight WHERE scope = ANY($1::text[])"
MOVE_SLOTS = (
    "INSERT INTO inflight (scope, jobs) VALUES ($1, $2)"
    " ON CONFLICT (scope) DO UPDATE SET jobs = inflight.jobs + excluded.jobs"
)
MOVE_SLOTS_AND_READ = (  # PostgreSQL alone.
    "INSERT INTO inflight (scope, jobs) SELECT * FROM unnest($1::text[], $2::bigint[])"
    " ON CONFLICT (scope) DO UPDATE SET jobs = inflight.jobs + excluded.jobs RETURNING scope, jobs"
)
MOVE_SLOTS_WITHIN = (  # PostgreSQL alone: fails if a scope is filled beyond its ceiling.
    "INSERT INTO inflight (scope, jobs) SELECT * FROM unnest($1::text[], $2::bigint[])"
    " ON CONFLICT (scope) DO UPDATE SET jobs = CASE WHEN inflight.jobs + excluded.jobs <= (SELECT ceiling"
    " FROM unnest($1::text[], $3::bigint[]) AS given (scope, ceiling) WHERE given.scope = inflight.scope)"
    " THEN inflight.jobs + excluded.jobs"
    " ELSE CAST('LUCIUS: another process has filled the scope ' || inflight.scope AS bigint) END"
)
NO_CEILING = (1 << 62) - 1
INSERT_WEBHOOK = (
    f"INSERT INTO webhooks ({WEBHOOK}, status) VALUES ($1, $2, $3, $4, $5, $6, 'PENDING')"
    + " ON CONFLICT (job_id) DO NOTHING"
)

# Reading: the engine.
LOAD_JOBS = (
    "SELECT j.job_id, j.tenant_id, j.status, j.engine, j.wake_at, j.updated_at, j.completed_at, j.revision, j.holder,"
    " j.document, p.document, j.request_type, j.resolved_mode FROM job_states j LEFT JOIN job_specs p"
    " ON p.job_id = j.job_id WHERE j.job_id = ANY($1::text[])"
)
LOAD_OUTPUTS = "SELECT job_id, step_index, artifacts, output_ref FROM job_outputs WHERE job_id = ANY($1::text[])"
LOAD_POLICIES = "SELECT policy_id, document FROM policies WHERE policy_id = ANY($1::text[])"
LOCK_HOLDER = "SELECT document, holder FROM job_states WHERE job_id = $1 FOR UPDATE"
NOTE_HOLDER = "UPDATE job_states SET holder = $2 WHERE job_id = $1"
# Jobs of another engine have their timers and their unsent attempts there.
DUE = (
    "SELECT job_id FROM job_states WHERE wake_at IS NOT NULL AND engine = 'outbox' AND wake_at <= $1"
    " ORDER BY wake_at LIMIT $2"
)
UNDISPATCHED = (
    "SELECT job_id FROM job_states WHERE unsent_until IS NOT NULL AND unsent_until <= $1 AND engine = 'outbox'"
    " ORDER BY unsent_until LIMIT $2"
)
HELD = "SELECT job_id FROM job_states WHERE tenant_id = $1 AND held_for = $2 AND engine = $3 ORDER BY job_id LIMIT $4"
_NEXT_HELD = (
    "SELECT {0} FROM job_states j WHERE j.held_for IS NOT NULL AND {1} ORDER BY j.tenant_id, j.held_for LIMIT 1"
)
HELD_LINES = (  # From one line to the next, however many wait in each.
    "WITH RECURSIVE lines (tenant_id, held_for) AS (SELECT * FROM (SELECT j.tenant_id, j.held_for FROM job_states j"
    " WHERE j.held_for IS NOT NULL ORDER BY j.tenant_id, j.held_for LIMIT 1) f UNION ALL SELECT"
    f" ({_NEXT_HELD.format('j.tenant_id', '(j.tenant_id, j.held_for) > (lines.tenant_id, lines.held_for)')}),"
    f" ({_NEXT_HELD.format('j.held_for', '(j.tenant_id, j.held_for) > (lines.tenant_id, lines.held_for)')})"
    " FROM lines WHERE lines.tenant_id IS NOT NULL)"
    " SELECT tenant_id, held_for FROM lines WHERE tenant_id IS NOT NULL LIMIT $1"
)
WAIT_CAUSES = "SELECT job_id, wait_cause FROM job_states WHERE job_id = ANY($1::text[])"
OUTBOX = (
    "SELECT j.job_id, j.tenant_id, j.resolved_mode, j.document, p.document FROM job_states j LEFT JOIN job_specs p"
    " ON p.job_id = j.job_id WHERE j.unsent_since IS NOT NULL ORDER BY j.unsent_since, j.job_id LIMIT $1"
)

# Reading: people.
PAST_ATTEMPTS = "SELECT step_index, document FROM job_attempts WHERE job_id = $1 ORDER BY step_index, attempt_no"
EVENTS = "SELECT last_seq, events FROM job_events WHERE job_id = $1 AND last_seq > $2 ORDER BY last_seq LIMIT $3"
COUNTED = ("ACCEPTED", "REFUSED", *sorted(status.value for status in JOB_TERMINAL))
"""The outcomes in `job_counts`."""


def _counted(of_tenants: bool) -> str:
    """Rows from minute $1 to the end of its hour, before minute $2, and of the hours after it, whose rows have $3 or
    less in place of the minute."""
    also = " AND tenant_id = ANY($4::text[])" if of_tenants else ""
    columns = "SELECT tenant_id, outcome, jobs FROM job_counts"
    return (
        f" FROM ({columns} WHERE minute >= $1 AND minute < $2{also}"
        f" UNION ALL {columns} WHERE minute <= $3{also}) AS counted"
    )


_SUMS = ", ".join(f"SUM(CASE WHEN outcome = '{outcome}' THEN jobs END)" for outcome in COUNTED)
COUNTS = f"SELECT {_SUMS}{_counted(of_tenants=False)}"
COUNTS_OF_TENANTS = f"SELECT {_SUMS}{_counted(of_tenants=True)}"
_BY_TENANT = "SELECT tenant_id, outcome, SUM(jobs){} GROUP BY tenant_id, outcome"
COUNTS_BY_TENANT = _BY_TENANT.format(_counted(of_tenants=False))
COUNTS_BY_TENANT_OF_TENANTS = _BY_TENANT.format(_counted(of_tenants=True))
TENANT_SCOPES = "SELECT scope FROM inflight WHERE scope LIKE 'tenant:%'"
"""Of every tenant that ever had a job."""
INFLIGHT = "SELECT scope, jobs FROM inflight WHERE jobs <> 0"
PING = "SELECT 1"
TOUCH = "INSERT INTO schema_versions (version, name) VALUES ($1, 'can anything be written?') ON CONFLICT DO NOTHING"
UNTOUCH = "DELETE FROM schema_versions WHERE version = $1"

# Webhooks.
IS_ANY_WEBHOOK_DUE = "SELECT 1 FROM webhooks WHERE status = 'PENDING' AND next_at <= $1 LIMIT 1"
_NEXT_TENANT = (
    "SELECT w.tenant_id FROM webhooks w WHERE w.status = 'PENDING' AND w.tenant_id > {} ORDER BY w.tenant_id LIMIT 1"
)
TENANTS_WITH_WEBHOOKS_DUE = (  # From one tenant to the next, however many webhooks each has.
    f"WITH RECURSIVE pending (tenant_id) AS (SELECT ({_NEXT_TENANT.format('$2')}) UNION ALL"
    f" SELECT ({_NEXT_TENANT.format('pending.tenant_id')}) FROM pending WHERE pending.tenant_id IS NOT NULL)"
    " SELECT pending.tenant_id FROM pending WHERE pending.tenant_id IS NOT NULL AND EXISTS (SELECT 1 FROM webhooks w"
    " WHERE w.status = 'PENDING' AND w.tenant_id = pending.tenant_id AND w.next_at <= $1) LIMIT $3"
)
WEBHOOKS_DUE = (
    f"SELECT {WEBHOOK} FROM webhooks WHERE status = 'PENDING' AND tenant_id = $1 AND next_at <= $2"
    " ORDER BY next_at LIMIT $3"
)
STILL_DUE = (
    "SELECT job_id FROM webhooks WHERE job_id = ANY($1::text[]) AND status = 'PENDING' AND next_at <= $2"
    " FOR UPDATE SKIP LOCKED"
)
CLAIM_WEBHOOK = "UPDATE webhooks SET next_at = $2 WHERE job_id = $1"
FINISH_WEBHOOK = (
    "UPDATE webhooks SET status = $2, attempts = $3, next_at = $4, last_error = $5, asked_wait_ms = $6"
    " WHERE job_id = $1"
)
SHORTEN_WEBHOOKS = (
    "UPDATE webhooks SET next_at = $3 + asked_wait_ms WHERE status = 'PENDING' AND attempts BETWEEN $1 AND $2"
    " AND next_at > $3 + asked_wait_ms"
)

# Repair. SQLite does not see by itself that an open job lies within the partial index on `status`.
IS_OPEN = "status <> 'SUCCEEDED' AND status IN ('QUEUED', 'DISPATCHING', 'IN_PROGRESS', 'PAUSED', 'CANCELLING')"
COUNT_BY_TENANT_AND_MODE = (
    f"SELECT tenant_id, resolved_mode, COUNT(*) FROM job_states WHERE {IS_OPEN} GROUP BY tenant_id, resolved_mode"
)
COUNT_WAIT_CAUSES = f"SELECT wait_cause, COUNT(*) FROM job_states WHERE {IS_OPEN} GROUP BY wait_cause"
COUNT_WAIT_CAUSES_OF_TENANTS = (
    f"SELECT wait_cause, COUNT(*) FROM job_states WHERE {IS_OPEN} AND tenant_id = ANY($1::text[]) GROUP BY wait_cause"
)
OLDEST_WAITING = (
    f"SELECT tenant_id, MIN(job_id) FROM job_states WHERE {IS_OPEN} AND wait_cause <> 'RESULT' GROUP BY tenant_id"
)
OLDEST_WAITING_OF_TENANTS = (
    f"SELECT tenant_id, MIN(job_id) FROM job_states WHERE {IS_OPEN} AND wait_cause <> 'RESULT'"
    " AND tenant_id = ANY($1::text[]) GROUP BY tenant_id"
)
UNDELIVERED = (
    f"SELECT job_id FROM job_states WHERE {IS_OPEN} AND engine = $1 AND job_id > $3"
    " AND (unsent_since IS NOT NULL OR step_status = 'FAILED_RETRY') ORDER BY job_id LIMIT $2"
)
UNACKNOWLEDGED = (
    f"SELECT job_id FROM job_states WHERE {IS_OPEN} AND engine = $1 AND job_id > $3"
    " AND wait_cause IN ('BUS', 'ACK') ORDER BY job_id LIMIT $2"
)
MAKE_GLOBAL_SLOT = "INSERT INTO inflight (scope, jobs) VALUES ('global', 0) ON CONFLICT (scope) DO NOTHING"
ALL_SLOTS = "SELECT scope, jobs FROM inflight ORDER BY scope FOR UPDATE"
SET_SLOTS = "INSERT INTO inflight (scope, jobs) VALUES ($1, $2) ON CONFLICT (scope) DO UPDATE SET jobs = excluded.jobs"
WAKE_SLEEPERS = (
    "UPDATE job_states SET wake_at = CASE WHEN wake_at < $1 THEN wake_at ELSE $1 END, revision = revision + 1"
    f" WHERE {IS_OPEN} AND engine = 'outbox' AND (wake_at IS NULL OR updated_at > $2"
    " OR (step_status = 'DISPATCHING' AND held_for IS NULL AND (unsent_until IS NULL OR unsent_until > $3)))"
    " RETURNING job_id"
)
ORPHANED_OUTBOX = (
    "SELECT job_id, document FROM job_states WHERE unsent_since IS NOT NULL AND completed_at IS NOT NULL FOR UPDATE"
)
CLOSE_OUTBOX = (
    "UPDATE job_states SET unsent_since = NULL, unsent_until = NULL, held_for = NULL, document = $2 WHERE job_id = $1"
)

# Pruning.
_OWES_NOTHING = (
    "completed_at IS NOT NULL AND completed_at < $1"
    " AND NOT EXISTS (SELECT 1 FROM webhooks w WHERE w.job_id = job_states.job_id AND w.status = 'PENDING')"
    " AND NOT EXISTS (SELECT 1 FROM notifications n WHERE n.job_id = job_states.job_id AND n.status = 'PENDING')"
    " AND NOT EXISTS (SELECT 1 FROM dead_letter_closings d JOIN job_states r ON r.job_id = d.redriven_as"
    " WHERE d.job_id = job_states.job_id AND r.completed_at IS NULL)"
)
_BY_END = " ORDER BY completed_at LIMIT $2"
_PRUNABLE = f"SELECT job_id, tenant_id FROM job_states WHERE {_OWES_NOTHING}"
PRUNABLE_EXCEPT = f"{_PRUNABLE} AND NOT (tenant_id = ANY($3::text[])){_BY_END}"
# A job has ended after it was made, so its id lies before the end: this reads along the tenant's ids.
PRUNABLE_OF_TENANT = f"{_PRUNABLE} AND tenant_id = $3 AND job_id < $4 ORDER BY job_id LIMIT $2"
PRUNABLE = f"SELECT job_id, claim_key FROM job_states WHERE {_OWES_NOTHING}{_BY_END} FOR UPDATE SKIP LOCKED"
PRUNABLE_NAMED = (
    f"SELECT job_id, claim_key FROM job_states WHERE job_id = ANY($3::text[]) AND {_OWES_NOTHING} LIMIT $2"
    " FOR UPDATE SKIP LOCKED"
)
PRUNE_DEAD_MESSAGES = (  # The id of a directive begins with that of its job, which has 36 characters.
    "DELETE FROM messages WHERE state = 'DEAD' AND substr(message_id, 1, 36) = ANY($1::text[])"
)
PRUNE = tuple(
    f"DELETE FROM {table} WHERE job_id = $1"
    for table in (
        "job_events",
        "job_attempts",
        "job_outputs",
        "webhooks",
        "dead_letter_closings",
        "job_search_values",
        "job_specs",
        "job_states",
    )
)
PRUNE_AUDIT = (
    "DELETE FROM audit_entries WHERE entry_id IN"
    " (SELECT entry_id FROM audit_entries WHERE entry_id < $1 ORDER BY entry_id LIMIT $2)"
)
PRUNE_CLAIM = "DELETE FROM claims WHERE claim_key = $1 AND job_id = $2"


class JobSource(NamedTuple):
    """What a list of jobs is read along."""

    tables: str
    job_id: str
    conditions: tuple[str, ...] = ()


JOBS = JobSource("job_states", "job_states.job_id")
# A CROSS JOIN, because SQLite reads its first table first.
BY_CORRELATION = JobSource("job_specs p CROSS JOIN job_states", "p.job_id", ("job_states.job_id = p.job_id",))
BY_SEARCH_VALUE = JobSource("job_search_values v CROSS JOIN job_states", "v.job_id", ("job_states.job_id = v.job_id",))
IS_ITS_OWN_CORRELATION = "(SELECT p.correlation_id FROM job_specs p WHERE p.job_id = job_states.job_id) IS NULL"
HAS_SEARCH_VALUE = (
    "(SELECT 1 FROM job_search_values v WHERE v.job_id = job_states.job_id AND v.field = {} AND v.value = {})"
    " IS NOT NULL"
)


def list_job_ids(source: JobSource, conditions: list[str], oldest_first: bool = False) -> str:
    """A page of ids, newest first unless said otherwise; the conditions are fixed texts with numbered arguments."""
    order = "ASC" if oldest_first else "DESC"
    return f"SELECT {source.job_id} {_from(source, conditions)} ORDER BY {source.job_id} {order} LIMIT $1"


def count_job_ids(source: JobSource, conditions: list[str]) -> str:
    """How many there are, $1 at most."""
    return f"SELECT COUNT(*) FROM (SELECT 1 {_from(source, conditions)} LIMIT $1) AS counted"


def _from(source: JobSource, conditions: list[str]) -> str:
    conditions = [*source.conditions, *conditions]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"FROM {source.tables}{where}"


def list_audit_ids(conditions: list[str]) -> str:
    """As `list_job_ids`: only ids, which every index has."""
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT entry_id FROM audit_entries{where} ORDER BY entry_id DESC LIMIT $1"


def failures(of_tenants: bool, are_open: bool) -> str:
    """Failed jobs by reason: of the newest, with an id of at least $2, $1 at most."""
    conditions = "status = 'FAILED_FINAL' AND job_id >= $2"
    conditions += " AND tenant_id = ANY($3::text[])" if of_tenants else ""
    conditions += f" AND {NOT_CLOSED}" if are_open else ""
    newest = (
        "SELECT error_signature, tenant_id, completed_at, job_id FROM job_states"
        f" WHERE {conditions} ORDER BY job_id DESC LIMIT $1"
    )
    return (
        "SELECT error_signature, COUNT(*), COUNT(DISTINCT tenant_id), MIN(completed_at), MAX(completed_at), MAX(job_id)"
        f" FROM ({newest}) AS newest GROUP BY error_signature ORDER BY COUNT(*) DESC, error_signature"
    )


PROTOCOL_PLACE, VERSION_PLACE, LANE_PLACE = 3, 4, 9
"""Where they are in the document of what was accepted."""


def open_groups(of_tenants: bool) -> str:
    """Open jobs by protocol version, lane and tenant: $1 of them at most. Without a protocol in the document, it is the
    request type."""
    conditions = f"{IS_OPEN} AND tenant_id = ANY($2::text[])" if of_tenants else IS_OPEN
    protocol, version, lane = (f"p.document::json ->> {place}" for place in (PROTOCOL_PLACE, VERSION_PLACE, LANE_PLACE))
    keys = f"COALESCE({protocol}, j.request_type), {version}, {lane}, j.tenant_id"
    return (
        f"SELECT {keys}, COUNT(*)"
        f" FROM (SELECT job_id, tenant_id, request_type FROM job_states WHERE {conditions} LIMIT $1) AS j"
        f" JOIN job_specs p ON p.job_id = j.job_id GROUP BY {keys}"
    )
