"""The ledger's tables since schema version 11: documents, with a column for whatever is selected or ordered by.

The columns of an index are those that are equal, then the one that a list is ordered by. Each index costs the hot path
something, so all but a few are written once in a job's life: when it is made (tenant and request type never change), or
when it ends. Jobs that have not ended are few, and found by their status: the columns behind `job_id` let a list be
filtered within the index.
"""

from __future__ import annotations

LEDGER_TABLES = (
    "CREATE TABLE job_specs (job_id TEXT PRIMARY KEY, document TEXT NOT NULL)",
    """CREATE TABLE job_states (
        job_id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, request_type TEXT NOT NULL, resolved_mode TEXT NOT NULL,
        claim_key TEXT, status TEXT NOT NULL, step_status TEXT NOT NULL, wait_cause TEXT, engine TEXT NOT NULL,
        wake_at BIGINT, unsent_since BIGINT, unsent_until BIGINT, updated_at BIGINT NOT NULL, completed_at BIGINT,
        error_signature TEXT, revision BIGINT NOT NULL, holder TEXT, document TEXT NOT NULL)""",
    "CREATE TABLE policies (policy_id TEXT PRIMARY KEY, document TEXT NOT NULL) /* clustered */",
    """CREATE TABLE job_attempts (
        job_id TEXT NOT NULL, step_index BIGINT NOT NULL, attempt_no BIGINT NOT NULL, document TEXT NOT NULL,
        PRIMARY KEY (job_id, step_index, attempt_no)) /* clustered */""",
    """CREATE TABLE job_outputs (
        job_id TEXT NOT NULL, step_index BIGINT NOT NULL, artifacts TEXT NOT NULL, output_ref TEXT NOT NULL,
        PRIMARY KEY (job_id, step_index))""",
    """CREATE TABLE job_events (
        job_id TEXT NOT NULL, last_seq BIGINT NOT NULL, events TEXT NOT NULL,
        PRIMARY KEY (job_id, last_seq)) /* clustered */""",
    """CREATE TABLE job_counts (
        minute BIGINT NOT NULL, tenant_id TEXT NOT NULL, outcome TEXT NOT NULL, jobs BIGINT NOT NULL,
        PRIMARY KEY (minute, tenant_id, outcome)) /* clustered */""",
)
LEDGER_INDEXES = (
    "CREATE INDEX states_by_tenant ON job_states (tenant_id, job_id)",
    "CREATE INDEX states_by_type ON job_states (request_type, job_id)",
    "CREATE INDEX states_by_tenant_and_type ON job_states (tenant_id, request_type, job_id)",
    "CREATE INDEX states_succeeded ON job_states (job_id) WHERE status = 'SUCCEEDED'",
    "CREATE INDEX states_ended_by_tenant ON job_states (tenant_id, status, job_id) WHERE completed_at IS NOT NULL",
    "CREATE INDEX states_ended_by_type ON job_states (request_type, status, job_id) WHERE completed_at IS NOT NULL",
    """CREATE INDEX states_ended_by_tenant_and_type ON job_states (tenant_id, request_type, status, job_id)
        WHERE completed_at IS NOT NULL""",
    "CREATE INDEX states_by_end ON job_states (completed_at) WHERE completed_at IS NOT NULL",
    """CREATE INDEX states_unsuccessful ON job_states (status, job_id, tenant_id, request_type)
        WHERE status <> 'SUCCEEDED'""",
    "CREATE INDEX states_by_signature ON job_states (error_signature, job_id) WHERE error_signature IS NOT NULL",
    "CREATE INDEX states_due ON job_states (wake_at) WHERE wake_at IS NOT NULL AND engine = 'outbox'",
    """CREATE INDEX states_elsewhere ON job_states (engine, job_id)
        WHERE engine <> 'outbox' AND completed_at IS NULL""",
    """CREATE INDEX states_unsent ON job_states (unsent_until) WHERE unsent_until IS NOT NULL AND engine = 'outbox'""",
    "CREATE INDEX states_unsent_by_age ON job_states (unsent_since, job_id) WHERE unsent_since IS NOT NULL",
)
DEAD_LETTER_CLOSINGS = (
    """CREATE TABLE dead_letter_closings (
        job_id TEXT PRIMARY KEY, closed_at BIGINT NOT NULL, dismissed_by TEXT, reason TEXT,
        redriven_as TEXT) /* clustered */""",
    """INSERT INTO dead_letter_closings (job_id, closed_at, redriven_as)
        SELECT redrive_of, MIN(created_at), MIN(job_id) FROM jobs WHERE redrive_of IS NOT NULL GROUP BY redrive_of""",
)
UNIQUE_MESSAGES = "ALTER TABLE messages ADD COLUMN is_unique BIGINT NOT NULL DEFAULT 0"
"""1: nobody publishes this message's id again, so the row goes when the message is settled."""
HELD_ATTEMPTS = (
    "ALTER TABLE job_states ADD COLUMN held_for TEXT",
    "CREATE INDEX states_held ON job_states (tenant_id, held_for, job_id) WHERE held_for IS NOT NULL",
)
"""`held_for`: lane and service of an attempt that waits because its tenant has as many there as it may."""
TENANTS_TAKE_TURNS = (
    "ALTER TABLE messages ADD COLUMN tenant_id TEXT NOT NULL DEFAULT ''",
    """CREATE INDEX messages_in_turns ON messages (subscription_id, tenant_id, visible_at, message_seq)
        WHERE state = 'QUEUED'""",
)
RENAME_OLD_TABLES = tuple(
    f"ALTER TABLE {table} RENAME TO old_{table}" for table in ("jobs", "steps", "attempts", "events")
)
DROP_OLD_TABLES = tuple(f"DROP TABLE IF EXISTS old_{table}" for table in ("jobs", "steps", "attempts", "events"))
DROP_NEW_TABLES = (
    *(
        f"DROP TABLE {table}"
        for table in (
            "job_specs", "job_states", "policies", "job_attempts", "job_outputs", "job_events", "job_counts",
        )
    ),
    "ALTER TABLE messages DROP COLUMN is_unique",
)  # fmt: skip
