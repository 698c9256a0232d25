"""The tables of runbooks: those of the contract, with its names, and what it leaves unsaid.

Columns of the contract come first in every table; those after the comment are LUCIUS's own. Instants are whole
milliseconds, as everywhere. The three tables of executions share their columns from `step_name` on, because one machine
drives them all.
"""

from __future__ import annotations

IS_OPEN = "status IN ('pending', 'dispatched', 'polling')"
"""Steps that have not ended. Queries must say it in these words for the partial indexes to serve them."""
NOT_SUCCEEDED = "status IN ('failed', 'poll_timeout', 'rolled_back', 'cancelled')"

_EXECUTION = """step_name TEXT NOT NULL, step_index BIGINT NOT NULL, worker_id TEXT NOT NULL,
    function_name TEXT NOT NULL, params_json TEXT NOT NULL, status TEXT NOT NULL, job_id TEXT, result_json TEXT,
    error_message TEXT, dispatched_at BIGINT, completed_at BIGINT, is_poll_step BOOLEAN NOT NULL,
    poll_interval_sec BIGINT, poll_timeout_sec BIGINT, poll_started_at BIGINT, last_polled_at BIGINT,
    poll_count BIGINT NOT NULL,
    batch_id BIGINT NOT NULL, late_json TEXT, fault TEXT, cancel_cause TEXT, dispatch_count BIGINT NOT NULL,
    retries_used BIGINT NOT NULL, ready BOOLEAN NOT NULL, in_flight BOOLEAN NOT NULL, retry_at BIGINT,
    timeout_at BIGINT, wake_at BIGINT, poll_asked BIGINT NOT NULL"""

RUNBOOK_TABLES = (
    """CREATE TABLE runbooks (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL, version BIGINT NOT NULL,
        yaml_content TEXT NOT NULL, data_table_name TEXT NOT NULL, is_active BOOLEAN NOT NULL,
        overdue_behavior TEXT NOT NULL, ignore_overdue_applied BOOLEAN NOT NULL, rerun_init BOOLEAN NOT NULL,
        created_at BIGINT NOT NULL,
        created_by TEXT NOT NULL, columns_json TEXT, UNIQUE (name, version))""",
    """CREATE TABLE runbook_controls (
        name TEXT PRIMARY KEY, automation BOOLEAN NOT NULL, source_state TEXT NOT NULL, source_detail TEXT,
        source_count BIGINT, held_count BIGINT, confirmed_count BIGINT, checked_at BIGINT)""",
    """CREATE TABLE batches (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, runbook_id BIGINT NOT NULL,
        batch_start_time BIGINT NOT NULL, status TEXT NOT NULL, detected_at BIGINT NOT NULL, init_dispatched_at BIGINT,
        runbook_name TEXT NOT NULL, origin TEXT NOT NULL, advance TEXT NOT NULL, held_at BIGINT, hold_reason TEXT,
        error_message TEXT, completed_at BIGINT)""",
    "CREATE INDEX batches_by_runbook ON batches (runbook_name, id)",
    "CREATE INDEX batches_unfinished ON batches (runbook_name, id) WHERE completed_at IS NULL",
    """CREATE TABLE batch_members (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, batch_id BIGINT NOT NULL, member_key TEXT NOT NULL,
        status TEXT NOT NULL, added_at BIGINT NOT NULL, removed_at BIGINT, add_dispatched_at BIGINT,
        remove_dispatched_at BIGINT,
        failed_at BIGINT, added_by TEXT NOT NULL, removed_by TEXT)""",
    "CREATE UNIQUE INDEX members_once ON batch_members (batch_id, member_key) WHERE status = 'active'",
    "CREATE INDEX members_by_batch ON batch_members (batch_id, id)",
    """CREATE TABLE phase_executions (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, batch_id BIGINT NOT NULL, phase_name TEXT NOT NULL,
        offset_minutes BIGINT NOT NULL, due_at BIGINT NOT NULL, runbook_version BIGINT NOT NULL, status TEXT NOT NULL,
        dispatched_at BIGINT, completed_at BIGINT,
        member_count BIGINT, barrier_index BIGINT, failures_forgiven BIGINT NOT NULL, error_message TEXT,
        UNIQUE (batch_id, runbook_version, phase_name))""",
    "CREATE INDEX phases_due ON phase_executions (due_at) WHERE status = 'pending'",
    f"""CREATE TABLE step_executions (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, phase_execution_id BIGINT NOT NULL,
        batch_member_id BIGINT NOT NULL, {_EXECUTION}, catching_up BOOLEAN NOT NULL,
        UNIQUE (phase_execution_id, batch_member_id, step_index))""",
    "CREATE INDEX steps_by_member ON step_executions (batch_member_id, phase_execution_id, step_index)",
    f"""CREATE INDEX steps_at_barrier ON step_executions (phase_execution_id, step_index)
        WHERE {IS_OPEN} AND catching_up = FALSE""",
    f"CREATE INDEX steps_open ON step_executions (phase_execution_id) WHERE {IS_OPEN} AND catching_up = TRUE",
    f"""CREATE INDEX steps_unhappy ON step_executions (phase_execution_id, batch_member_id, status)
        WHERE {NOT_SUCCEEDED}""",
    f"""CREATE TABLE init_executions (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, runbook_version BIGINT NOT NULL, {_EXECUTION},
        UNIQUE (batch_id, runbook_version, step_index))""",
    f"""CREATE TABLE followup_executions (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind TEXT NOT NULL, parent_id BIGINT NOT NULL,
        round BIGINT NOT NULL, batch_member_id BIGINT, phase_execution_id BIGINT, runbook_version BIGINT NOT NULL,
        list_name TEXT NOT NULL, {_EXECUTION}, UNIQUE (kind, parent_id, round, step_index))""",
    f"CREATE INDEX followups_open ON followup_executions (batch_id) WHERE {IS_OPEN}",
    "CREATE INDEX followups_by_member ON followup_executions (batch_member_id)",
    *(
        statement
        for table, prefix in (
            ("step_executions", "steps"),
            ("init_executions", "inits"),
            ("followup_executions", "followups"),
        )
        for statement in (
            f"CREATE INDEX {prefix}_ready ON {table} (batch_id, id) WHERE ready = TRUE",
            f"CREATE INDEX {prefix}_in_flight ON {table} (batch_id) WHERE in_flight = TRUE",
            f"CREATE INDEX {prefix}_due ON {table} (wake_at) WHERE wake_at IS NOT NULL",
            f"CREATE INDEX {prefix}_polling ON {table} (last_polled_at) WHERE status = 'polling'",
        )
    ),
    """CREATE TABLE runbook_events (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at BIGINT NOT NULL, kind TEXT NOT NULL,
        actor TEXT NOT NULL, runbook_name TEXT NOT NULL, batch_id BIGINT, batch_member_id BIGINT,
        detail TEXT NOT NULL)""",
    "CREATE INDEX runbook_events_by_batch ON runbook_events (batch_id, id) WHERE batch_id IS NOT NULL",
    "CREATE INDEX runbook_events_by_runbook ON runbook_events (runbook_name, id)",
    """CREATE TABLE runbook_outbox (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic TEXT NOT NULL, message_id TEXT NOT NULL,
        body BYTEA NOT NULL, properties TEXT NOT NULL, created_at BIGINT NOT NULL, claimed_until BIGINT NOT NULL)""",
    "CREATE TABLE runbook_leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until_at BIGINT NOT NULL)",
)

TOKENS_AND_ABSENCES = (
    *(
        f"ALTER TABLE {table} ADD COLUMN has_token BOOLEAN NOT NULL DEFAULT FALSE"
        for table in ("step_executions", "init_executions", "followup_executions")
    ),
    """CREATE TABLE runbook_absences (
        runbook_name TEXT NOT NULL, member_key TEXT NOT NULL, missing_since BIGINT NOT NULL,
        removal_at BIGINT NOT NULL, PRIMARY KEY (runbook_name, member_key))""",
)
RUNBOOK_HANDLED = (
    "ALTER TABLE batch_members ADD COLUMN add_handled_at BIGINT",
    "ALTER TABLE batch_members ADD COLUMN remove_handled_at BIGINT",
    # What was sent before this version counts as handled: messages on the bus are still delivered.
    "UPDATE batch_members SET add_handled_at = add_dispatched_at, remove_handled_at = remove_dispatched_at",
    """CREATE INDEX members_add_unhandled ON batch_members (add_dispatched_at)
        WHERE status = 'active' AND add_dispatched_at IS NOT NULL AND add_handled_at IS NULL""",
    """CREATE INDEX members_remove_unhandled ON batch_members (remove_dispatched_at)
        WHERE remove_dispatched_at IS NOT NULL AND remove_handled_at IS NULL""",
    """CREATE INDEX phases_not_taken_up ON phase_executions (dispatched_at)
        WHERE status = 'dispatched' AND barrier_index IS NULL""",
)
"""When the orchestrator took up that a member joined or left: what it did not is found by looking."""
DECISIONS = (
    "ALTER TABLE batches ADD COLUMN cancelled_at BIGINT",
    """UPDATE batches SET cancelled_at = (SELECT MIN(e.at) FROM runbook_events e
        WHERE e.batch_id = batches.id AND e.kind = 'batch-cancelled')""",
    "ALTER TABLE phase_executions ADD COLUMN skip_cause TEXT",
    """UPDATE phase_executions SET skip_cause = 'init_failed'
        WHERE status = 'skipped' AND error_message LIKE 'init step %'""",
    "ALTER TABLE batch_members ADD COLUMN added_by_source BOOLEAN NOT NULL DEFAULT FALSE",
    "ALTER TABLE batch_members ADD COLUMN removed_by_source BOOLEAN NOT NULL DEFAULT FALSE",
    "UPDATE batch_members SET added_by_source = TRUE WHERE added_by = 'scheduler'",
    "UPDATE batch_members SET removed_by_source = TRUE WHERE removed_by = 'scheduler'",
)
"""What was read out of the audit trail, out of messages and out of actors' names before, as columns."""
MOVED_DATES = (
    "ALTER TABLE batch_members ADD COLUMN move_to BIGINT",
    "ALTER TABLE batch_members ADD COLUMN move_held_at BIGINT",
    "CREATE INDEX members_held ON batch_members (batch_id, id) WHERE move_held_at IS NOT NULL",
)
"""The date that the source moves a member to after steps of it were sent, and since when it is held for that. Without
the second, an operator has decided that it stays."""
_EXECUTION_DEFAULTS = {
    "is_poll_step": "FALSE", "poll_count": "0", "dispatch_count": "0", "retries_used": "0", "ready": "FALSE",
    "in_flight": "FALSE", "poll_asked": "0",
}  # fmt: skip
_DEFAULTS = {
    "runbooks": {"created_by": "'scheduler'"},
    "batches": {"runbook_name": "''", "origin": "'source'", "advance": "'time'"},
    "batch_members": {"added_by": "'scheduler'"},
    "phase_executions": {"failures_forgiven": "0"},
    "step_executions": {"batch_id": "0", "catching_up": "FALSE", **_EXECUTION_DEFAULTS},
    "init_executions": _EXECUTION_DEFAULTS,
}
CONTRACT_DEFAULTS = tuple(
    f"ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {value}"
    for table, columns in _DEFAULTS.items()
    for column, value in columns.items()
)
"""A scheduler that knows only the contract can write its tables. The orchestrator fills in `runbook_name` and
`batch_id`, which it derives, when it first meets the row."""
REHEARSALS = (
    """CREATE TABLE runbook_rehearsals (
        rehearsal_id TEXT PRIMARY KEY, runbook_name TEXT NOT NULL, version BIGINT NOT NULL, made_at BIGINT NOT NULL,
        made_by TEXT NOT NULL, report TEXT NOT NULL) /* clustered */""",
    "CREATE INDEX rehearsals_by_runbook ON runbook_rehearsals (runbook_name, rehearsal_id)",
)
"""Reports of rehearsals: what would happen, to compare with what did."""
