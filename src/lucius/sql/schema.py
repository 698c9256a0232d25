"""The tables, as an ordered list of migrations. A migration that was released is never edited: add the next one."""

from __future__ import annotations

from msgspec import Struct

from lucius.sql.database import Database, Fetch, Run, Script
from lucius.sql.runbook_tables import RUNBOOK_TABLES


class Migration(Struct, frozen=True):
    version: int
    name: str
    statements: tuple[str, ...]
    for_sharing: tuple[str, ...] = ()
    """Only where several processes share the database; a single owner keeps this in memory."""


class SchemaMismatch(Exception):
    """The database is not at the version this program works with."""


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
)

VERSION = MIGRATIONS[-1].version
_TABLE = "CREATE TABLE IF NOT EXISTS schema_versions (version BIGINT PRIMARY KEY, name TEXT NOT NULL)"


_TABLE_IN_POSTGRES = "SELECT 1 FROM pg_tables WHERE tablename = 'schema_versions' AND schemaname = current_schema()"
_TABLE_IN_SQLITE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_versions'"


def _current_script(is_shared: bool) -> Script[int]:
    """The version of the tables, 0 where there are none. Only looks: who serves need not be allowed to create."""
    found = yield Fetch(_TABLE_IN_POSTGRES if is_shared else _TABLE_IN_SQLITE)
    if not found:
        return 0
    rows = yield Fetch("SELECT COALESCE(MAX(version), 0) FROM schema_versions")
    return int(rows[0][0])


def _upgrade_script(is_shared: bool) -> Script[int]:
    if is_shared:
        yield Fetch("SELECT pg_advisory_xact_lock(5824001)")
    yield Run(_TABLE)
    current = yield from _current_script(is_shared)
    if current > VERSION:
        raise SchemaMismatch(
            f"the database is at version {current}; this program knows up to {VERSION}: upgrade LUCIUS"
        )
    for migration in MIGRATIONS[current:]:
        for statement in migration.statements + (migration.for_sharing if is_shared else ()):
            yield Run(statement)
        yield Run("INSERT INTO schema_versions (version, name) VALUES ($1, $2)", [(migration.version, migration.name)])
    return VERSION - current


async def upgrade(database: Database) -> int:
    """Bring the database to this program's version; how many migrations that took."""
    return await database.write(lambda: _upgrade_script(database.is_shared))


async def verify(database: Database) -> None:
    """Raise `SchemaMismatch` unless the database is at exactly this program's version."""
    current = await database.read(lambda: _current_script(database.is_shared))
    if current != VERSION:
        raise SchemaMismatch(
            f"{database.name} is at schema version {current}, this program needs {VERSION}: run 'lucius db upgrade'"
        )
