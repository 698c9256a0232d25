"""A table of many jobs, made quickly: some tenants and types are old or rare, as they are where lists are slow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lucius.ledgers.sql import statements
from lucius.sql.database import Database, Run, Script
from lucius.testing.samples import START

JOBS = 20_000
OPEN_JOBS = JOBS // 40
"""The newest of them."""
SPACING_MILLIS = 1_000
ROWS_AT_ONCE = 2_000
DOCUMENT = '{"note":"' + "x" * 600 + '"}'
"""As large as the state of a job."""
COLUMNS = statements.names(f"{statements.STATE_KEY}, {statements.STATE}")


def job_id_of(place: int) -> str:
    millis = f"{START + place * SPACING_MILLIS:012x}"
    return f"{millis[:8]}-{millis[8:]}-7000-8000-{place:012x}"


def tenant_of(place: int) -> str:
    """`early` has jobs only at the far end of every list."""
    return "early" if place < JOBS // 10 else f"tenant-{place % 7}"


def type_of(place: int) -> str:
    return "RARE" if place % (JOBS // 10) == 1 else ("OCR", "SIS")[place % 2]


def status_of(place: int) -> str:
    if place >= JOBS - OPEN_JOBS:
        return ("QUEUED", "IN_PROGRESS")[place % 2]
    return "FAILED_FINAL" if place % 50 == 3 else "CANCELLED" if place % 400 == 7 else "SUCCEEDED"


def _rows() -> Iterator[tuple[Any, ...]]:
    fixed = dict.fromkeys(COLUMNS) | {
        "resolved_mode": "DEFAULT", "engine": "outbox", "revision": 5, "step_status": "PROCESSING",
        "document": DOCUMENT,
    }  # fmt: skip
    for place in range(JOBS):
        at, status = START + place * SPACING_MILLIS, status_of(place)
        is_open = status in ("QUEUED", "IN_PROGRESS")
        values = fixed | {
            "job_id": job_id_of(place), "tenant_id": tenant_of(place), "request_type": type_of(place), "status": status,
            "updated_at": at, "completed_at": None if is_open else at + 5,
            "wake_at": at + 10**6 if is_open else None, "wait_cause": "RESULT" if is_open else None,
        }  # fmt: skip
        yield tuple(values[name] for name in COLUMNS)


async def fill(database: Database) -> None:
    rows = list(_rows())
    for first in range(0, JOBS, ROWS_AT_ONCE):
        page = rows[first : first + ROWS_AT_ONCE]

        def script(page: list[tuple[Any, ...]] = page) -> Script[None]:
            yield Run(statements.INSERT_STATE, page, in_one_statement=True)

        await database.write(script)


# --- The tables of other lists, on PostgreSQL ------------------------------------------------------------------------

TABLES = (
    "job_states", "job_specs", "job_search_values",
    "dead_letter_closings", "audit_entries", "batches", "batch_changes", "batch_members", "runbook_events",
)  # fmt: skip
_OTHERS = (
    # Few rows a page, so that the tables are about as large as with a million rows.
    *(
        f"ALTER TABLE {table} SET (fillfactor = 10)"
        for table in ("dead_letter_closings", "batches", "batch_changes", "batch_members", "runbook_events")
    ),
    """INSERT INTO job_specs (job_id, document, correlation_id)
        SELECT job_id, '[]', 'order-' || ROW_NUMBER() OVER (ORDER BY job_id) / 5 FROM job_states""",
    """INSERT INTO job_search_values (job_id, field, value, tenant_id)
        SELECT job_id, 'kind', 'invoice', tenant_id FROM job_states
        UNION ALL SELECT job_id, 'customer', 'c-' || ROW_NUMBER() OVER (ORDER BY job_id) / 3, tenant_id
        FROM job_states""",
    # Of jobs that are no dead letters: how many are closed decides the plan.
    """INSERT INTO dead_letter_closings (job_id, closed_at, dismissed_by, reason)
        SELECT job_id, 1, 'key:operator', 'because' FROM job_states WHERE status = 'SUCCEEDED'""",
    """INSERT INTO audit_entries (entry_id, at, actor, action, kind, target, tenant_id, detail)
        SELECT replace(substr(job_id, 1, 13), '-', '') || substr(job_id, 14), 1, 'key:' || (n % 20), 'pause', 'job',
            job_id, tenant_id, '{}'
        FROM (SELECT job_id, tenant_id, ROW_NUMBER() OVER (ORDER BY job_id) n FROM job_states) numbered""",
    """INSERT INTO runbooks (name, version, yaml_content, data_table_name, is_active, overdue_behavior,
            ignore_overdue_applied, rerun_init, created_at, created_by)
        VALUES ('move', 1, '', 'move', TRUE, 'ignore', FALSE, FALSE, 1, 'operator')""",
    # The batches of `move` are the oldest, and few have any other status than completed.
    """INSERT INTO batches (runbook_id, batch_start_time, status, detected_at, runbook_name, origin, advance,
            completed_at)
        SELECT 1, n, CASE WHEN n % 97 = 0 THEN 'active' WHEN n % 101 = 0 THEN 'failed' ELSE 'completed' END, n,
            CASE WHEN n < 1000 THEN 'move' ELSE 'other' END, 'source', 'auto', n FROM generate_series(1, 20000) n""",
    # Of an ended batch the last change is kept, of others many: more than a page may read of all its batches.
    """INSERT INTO batch_changes (batch_id, change_number, changed)
        SELECT id, n, '{}' FROM batches, generate_series(1, 256) n WHERE n = 256 OR status = 'active'""",
    # The first batch is a large one; whoever left or failed came last.
    """INSERT INTO batch_members (batch_id, member_key, status, added_at, failed_at, added_by)
        SELECT CASE WHEN n <= 10000 THEN 1 ELSE 2 + n % 50 END, 'u' || n,
            CASE WHEN n > 9900 AND n % 2 = 0 THEN 'removed' ELSE 'active' END, n,
            CASE WHEN n > 9900 THEN n END, 'scheduler' FROM generate_series(1, 20000) n""",
    """INSERT INTO runbook_events (at, kind, actor, runbook_name, batch_id, detail)
        SELECT n, 'batch-made', 'scheduler', CASE WHEN n < 4000 THEN 'move' ELSE 'other' END,
            CASE WHEN n < 4000 THEN 1 WHEN n % 3 = 0 THEN 2 + n % 50 END, '{}' FROM generate_series(1, 20000) n""",
)


async def fill_other_tables(database: Database) -> None:
    def script() -> Script[None]:
        for statement in _OTHERS:
            yield Run(statement)

    await database.write(script)
