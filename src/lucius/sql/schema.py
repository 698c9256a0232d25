"""The tables, as an ordered list of migrations. A migration that was released is never edited: add the next one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lucius.sql import migrating
from lucius.sql.audit_tables import AUDIT_TABLES
from lucius.sql.batch_change_tables import BATCH_CHANGES
from lucius.sql.batch_pause_tables import BATCH_PAUSES
from lucius.sql.console_tables import CONSOLE_PERSONS_AND_VIEWS, CONSOLE_TABLES
from lucius.sql.database import Database
from lucius.sql.figure_tables import FIGURES, SIGNATURES_WITH_TENANTS
from lucius.sql.ledger_copy import CopyJobs
from lucius.sql.ledger_tables import (
    DEAD_LETTER_CLOSINGS,
    DROP_NEW_TABLES,
    DROP_OLD_TABLES,
    HELD_ATTEMPTS,
    LEDGER_INDEXES,
    LEDGER_TABLES,
    RENAME_OLD_TABLES,
    TENANTS_TAKE_TURNS,
    UNIQUE_MESSAGES,
)
from lucius.sql.ledger_views import LEDGER_VIEWS
from lucius.sql.list_indexes import LIST_INDEXES
from lucius.sql.migrating import Report
from lucius.sql.migration import Migration, SchemaError, SchemaMismatch
from lucius.sql.notification_tables import NOTIFICATION_TABLES
from lucius.sql.operation_tables import OPERATION_TABLES, WORKER_FAILURES, WORKER_TABLES
from lucius.sql.runbook_tables import (
    CONTRACT_DEFAULTS,
    DECISIONS,
    MOVED_DATES,
    REHEARSALS,
    RUNBOOK_HANDLED,
    RUNBOOK_TABLES,
    TOKENS_AND_ABSENCES,
)
from lucius.sql.runbook_tenants import RUNBOOK_TENANTS
from lucius.sql.runbook_wait_tables import RUNBOOK_WAITS
from lucius.sql.schema_state import read_state
from lucius.sql.search_tables import DROP_SEARCH_TABLES, SEARCH_TABLES, FillCorrelationIds
from lucius.sql.step_count_tables import STEP_COUNTS

__all__ = [
    "MIGRATIONS", "VERSION", "Migration", "SchemaError", "SchemaMismatch", "abandon", "contract", "current_version",
    "upgrade", "verify",
]  # fmt: skip

MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "jobs, steps, attempts with their outbox, events, idempotency, in-flight slots, webhooks, bus",
        (
            """CREATE TABLE jobs (
                job_id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, request_type TEXT NOT NULL,
                protocol_id TEXT NOT NULL, protocol_version BIGINT NOT NULL, schema_version TEXT NOT NULL,
                resolved_mode TEXT NOT NULL, decision_source TEXT NOT NULL, decision_reason TEXT NOT NULL,
                routing_key_used TEXT NOT NULL, lane BIGINT NOT NULL,
                input_ref TEXT NOT NULL, output_ref TEXT NOT NULL,
                claim_key TEXT, idempotency_key TEXT, idempotency_hash TEXT NOT NULL, doc_id TEXT, callback_urls TEXT,
                correlation_id TEXT NOT NULL, traceparent TEXT, not_before BIGINT, deadline_at BIGINT NOT NULL,
                created_at BIGINT NOT NULL, redrive_of TEXT, rules_version BIGINT NOT NULL,
                status TEXT NOT NULL, current_step_id TEXT NOT NULL, current_step_index BIGINT NOT NULL,
                attempts_total BIGINT NOT NULL, updated_at BIGINT NOT NULL, completed_at BIGINT,
                error_code TEXT, error_message TEXT, dead_letter BIGINT NOT NULL, wake_at BIGINT,
                event_seq BIGINT NOT NULL, revision BIGINT NOT NULL)""",
            "CREATE INDEX jobs_by_tenant ON jobs (tenant_id, job_id)",
            "CREATE INDEX jobs_unsuccessful ON jobs (status, job_id) WHERE status <> 'SUCCEEDED'",
            "CREATE INDEX jobs_due ON jobs (wake_at) WHERE wake_at IS NOT NULL",
            """CREATE TABLE steps (
                job_id TEXT NOT NULL, step_index BIGINT NOT NULL, step_id TEXT NOT NULL, step_type TEXT NOT NULL,
                service TEXT NOT NULL, payload TEXT NOT NULL, policy TEXT NOT NULL, workspace_ref TEXT NOT NULL,
                created_at BIGINT NOT NULL,
                status TEXT NOT NULL, attempt_no BIGINT NOT NULL, attempts_counted BIGINT NOT NULL,
                lease_id TEXT, due_at BIGINT, queue_until BIGINT, ends_by BIGINT,
                progress DOUBLE PRECISION NOT NULL, note TEXT, artifacts TEXT, output_ref TEXT,
                last_error_code TEXT, last_error_message TEXT,
                updated_at BIGINT NOT NULL, started_at BIGINT, completed_at BIGINT,
                PRIMARY KEY (job_id, step_index))""",
            """CREATE TABLE attempts (
                job_id TEXT NOT NULL, step_index BIGINT NOT NULL, attempt_no BIGINT NOT NULL, step_id TEXT NOT NULL,
                lease_id TEXT NOT NULL, tenant_id TEXT NOT NULL, resolved_mode TEXT NOT NULL, lane BIGINT NOT NULL,
                routing_key_used TEXT NOT NULL, created_at BIGINT NOT NULL,
                status TEXT NOT NULL, outbox_status TEXT NOT NULL, claimed_until BIGINT NOT NULL,
                sent_at BIGINT, acked_at BIGINT, ended_at BIGINT, verdict TEXT,
                error_code TEXT, error_message TEXT,
                PRIMARY KEY (job_id, step_index, attempt_no)) /* clustered */""",
            "CREATE INDEX attempts_unsent ON attempts (claimed_until) WHERE outbox_status = 'PENDING'",
            """CREATE TABLE events (
                job_id TEXT NOT NULL, seq BIGINT NOT NULL, created_at BIGINT NOT NULL, event_type TEXT NOT NULL,
                step_id TEXT, attempt_no BIGINT, payload TEXT NOT NULL,
                PRIMARY KEY (job_id, seq)) /* clustered */""",
            "CREATE TABLE claims (claim_key TEXT PRIMARY KEY, job_id TEXT NOT NULL) /* clustered */",
            "CREATE TABLE inflight (scope TEXT PRIMARY KEY, jobs BIGINT NOT NULL) /* clustered */",
            """CREATE TABLE webhooks (
                job_id TEXT PRIMARY KEY, url TEXT NOT NULL, tenant_id TEXT NOT NULL, status TEXT NOT NULL,
                attempts BIGINT NOT NULL, next_at BIGINT NOT NULL, last_error TEXT) /* clustered */""",
            "CREATE INDEX webhooks_due ON webhooks (next_at) WHERE status = 'PENDING'",
            """CREATE TABLE subscriptions (
                subscription_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                topic TEXT NOT NULL, name TEXT NOT NULL, filter TEXT NOT NULL,
                delivery_max BIGINT NOT NULL, ttl_seconds DOUBLE PRECISION NOT NULL, UNIQUE (topic, name))""",
            """CREATE TABLE messages (
                message_seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                subscription_id BIGINT NOT NULL, message_id TEXT NOT NULL, state TEXT NOT NULL,
                body BYTEA, properties TEXT NOT NULL, enqueued_at BIGINT NOT NULL, visible_at BIGINT NOT NULL,
                delivery_count BIGINT NOT NULL, expires_at BIGINT NOT NULL, ended_at BIGINT, reason TEXT)""",
            "CREATE UNIQUE INDEX messages_once ON messages (message_id, subscription_id)",
            "CREATE INDEX messages_dead ON messages (ended_at) WHERE state = 'DEAD'",
        ),
        ("CREATE INDEX messages_ready ON messages (subscription_id, visible_at, message_seq) WHERE state = 'QUEUED'",),
    ),
    Migration(2, "who acknowledged an attempt", ("ALTER TABLE attempts ADD COLUMN acked_by TEXT",)),
    Migration(
        3,
        "which engine drives a job",
        (
            "ALTER TABLE jobs ADD COLUMN engine TEXT NOT NULL DEFAULT 'outbox'",
            "DROP INDEX jobs_due",
            "CREATE INDEX jobs_due ON jobs (wake_at) WHERE wake_at IS NOT NULL AND engine = 'outbox'",
            """CREATE INDEX jobs_elsewhere ON jobs (engine, job_id)
                WHERE engine <> 'outbox' AND completed_at IS NULL""",
        ),
    ),
    Migration(4, "runbooks, batches, members, phases, steps and their trail", RUNBOOK_TABLES),
    Migration(5, "an index for every filter of every list, and webhooks by tenant", LIST_INDEXES),
    Migration(
        6,
        "dead letters without callback tokens, no directives of attempts that are over",
        (
            "ALTER TABLE subscriptions ADD COLUMN keeps_dead_bodies BIGINT NOT NULL DEFAULT 0",
            """UPDATE messages SET body = NULL WHERE state = 'DEAD' AND subscription_id IN (
                SELECT subscription_id FROM subscriptions WHERE topic <> 'orchestrator-events')""",
            """UPDATE messages SET state = 'SETTLED', body = NULL, properties = '', ended_at = enqueued_at
                WHERE state = 'QUEUED' AND message_id IN (
                    SELECT job_id || ':' || step_id || ':' || attempt_no FROM attempts
                    WHERE ended_at IS NOT NULL AND acked_at IS NULL)""",
        ),
    ),
    Migration(7, "tokens of runbook jobs, and members missing from their source", TOKENS_AND_ABSENCES),
    Migration(8, "callbacks that repeat each other", ("ALTER TABLE jobs ADD COLUMN callbacks_recorded TEXT",)),
    Migration(9, "which runbook messages were handled", RUNBOOK_HANDLED),
    Migration(
        10, "which batches were cancelled, why phases were skipped, and whom the source put in and took out", DECISIONS
    ),
    Migration(
        11,
        "jobs as documents, with views for whoever looks with SQL",
        (*LEDGER_TABLES, *LEDGER_INDEXES, UNIQUE_MESSAGES),
        copy=CopyJobs(),
        swap=(*RENAME_OLD_TABLES, *LEDGER_VIEWS),
        abandon=DROP_NEW_TABLES,
        contract=DROP_OLD_TABLES,
    ),
    Migration(
        12,
        "members whose date moves after they have begun; defaults for what the contract does not name",
        MOVED_DATES,
        CONTRACT_DEFAULTS,
    ),
    Migration(13, "dead letters that were redriven or dismissed", DEAD_LETTER_CLOSINGS, oldest_program=12),
    Migration(14, "bulk operations, and who asks for work", (*OPERATION_TABLES, *WORKER_TABLES), oldest_program=12),
    Migration(15, "fairness between the tenants of a lane", HELD_ATTEMPTS, TENANTS_TAKE_TURNS, oldest_program=12),
    Migration(16, "sign-in links and sessions of the console", CONSOLE_TABLES, oldest_program=12),
    Migration(
        17, "what has changed in a batch, under numbers that followers ask for", BATCH_CHANGES, oldest_program=12
    ),
    Migration(
        18,
        "jobs by correlation id, and by searchable fields of their payloads",
        SEARCH_TABLES,
        copy=FillCorrelationIds(),
        abandon=DROP_SEARCH_TABLES,
        oldest_program=12,
    ),
    Migration(19, "what people did, to whatever it was", AUDIT_TABLES, oldest_program=12),
    Migration(20, "failures by worker, and reports of rehearsals", (*WORKER_FAILURES, *REHEARSALS), oldest_program=12),
    Migration(
        21,
        "people that an issuer signed in, saved views, lanes by minute",
        CONSOLE_PERSONS_AND_VIEWS,
        oldest_program=12,
    ),
    Migration(22, "runbooks and batches of tenants", RUNBOOK_TENANTS, oldest_program=12),
    Migration(23, "what batches and phases wait for", RUNBOOK_WAITS, oldest_program=12),
    Migration(24, "batches that are paused, and those that were rescheduled", BATCH_PAUSES, oldest_program=12),
    Migration(25, "notifications, and causes that were told of", NOTIFICATION_TABLES, oldest_program=12),
    Migration(26, "failed jobs by reason, and counts by hour", FIGURES, oldest_program=12),
    # Programs before 17 do not say that they have changed a batch.
    Migration(27, "steps by status, and batches that are being cancelled", STEP_COUNTS, oldest_program=17),
    Migration(28, "tenants beside the reasons of failed jobs", SIGNATURES_WITH_TENANTS, oldest_program=17),
)

VERSION = MIGRATIONS[-1].version


async def upgrade(
    database: Database,
    migrations: Sequence[Migration] = MIGRATIONS,
    report: Report | None = None,
    ignored_pids: Collection[int] = (),
) -> int:
    """Bring the database to this program's version, or complete an upgrade that was interrupted; how many migrations
    were applied. `ignored_pids`: sessions of PostgreSQL that are known not to be LUCIUS, although they seem to be.

    Raises `SchemaMismatch` if the database is too new, `ProgramsRunning` if older programs use it."""
    return await migrating.upgrade(database, migrations, report, ignored_pids)


async def abandon(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> int | None:
    """Give up an upgrade that has not reached its swap; the version it was for, or None if there was none."""
    return await migrating.abandon(database, migrations)


async def contract(
    database: Database, migrations: Sequence[Migration] = MIGRATIONS, ignored_pids: Collection[int] = ()
) -> list[int]:
    """Remove what only older programs need; the versions that were contracted."""
    await verify(database, migrations)
    return await migrating.contract(database, migrations, ignored_pids)


async def current_version(database: Database) -> int:
    return (await database.read(lambda: read_state(database.is_shared))).version


async def verify(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Raise `SchemaMismatch` unless the database is at this program's version, or at a later one that says that this
    program can work with it."""
    state = await database.read(lambda: read_state(database.is_shared))
    mismatch = state.mismatch(migrations[-1].version)
    if mismatch is not None:
        raise SchemaMismatch(f"{database.name} {mismatch}")
