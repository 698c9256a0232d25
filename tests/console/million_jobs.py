"""A ledger with a million jobs as a busy week leaves it: twenty tenants, a tenth failed, counters for every minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import asyncpg
from bench.prefill import Template, prefill

from lucius.ledgers.sql import SqlLedger
from lucius.sql.figure_tables import COUNTS_OF_PAST_HOURS
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import ManualClock

TENANTS = 20
FAILED_OF = 10
"""One of so many jobs failed."""
WEEK_MINUTES = 7 * 24 * 60
TABLES = ("policies", "job_specs", "job_states", "job_attempts", "job_outputs", "job_events", "claims", "job_counts")
ROWS_AT_ONCE = 50_000


def make_ledger(path: Path, jobs: int) -> None:
    prefill(path, asyncio.run(_make_templates(path)), jobs)
    _fill_counts(path)


async def _make_templates(path: Path) -> list[Template]:
    templates = []
    async with SqliteDatabase(path) as database:
        await upgrade(database)
        driver = LedgerDriver(SqlLedger(database), ManualClock())
        for place in range(TENANTS):
            key = f"template-{place}"
            job = await driver.create(key=key, tenant_id=f"tenant-{place}", request_type="OCR", steps=["ocr"])
            await (driver.fail(job) if place % FAILED_OF == 3 else driver.succeed(job))
            templates.append(Template(job.job_id, key))
    return templates


def _fill_counts(path: Path) -> None:
    """The week before now: each tenant accepts and ends jobs in every minute."""
    last = time.time_ns() // 60_000_000_000
    with closing(apsw.Connection(str(path))) as database:
        rows = (
            (minute, f"tenant-{tenant}", outcome, 3)
            for minute in range(last - WEEK_MINUTES, last)
            for tenant in range(TENANTS)
            for outcome in ("ACCEPTED", "SUCCEEDED")
        )
        statement = (
            "INSERT INTO job_counts (minute, tenant_id, outcome, jobs) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
        )
        database.execute("BEGIN")
        database.executemany(statement, rows)
        database.execute("DELETE FROM job_counts WHERE minute < 0")
        database.execute(COUNTS_OF_PAST_HOURS)
        database.execute("COMMIT")


async def copy_to_postgres(path: Path, url: str, say: Callable[[str], None]) -> None:
    """The same rows in PostgreSQL, whose tables are there and empty."""
    connection = await asyncpg.connect(url)
    try:
        with closing(apsw.Connection(str(path))) as database:
            for table in TABLES:
                columns = [str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")]
                cursor, rows = database.execute(f"SELECT {', '.join(columns)} FROM {table}"), 0
                while page := [row for _, row in zip(range(ROWS_AT_ONCE), cursor, strict=False)]:
                    await connection.copy_records_to_table(table, records=page, columns=columns)
                    rows += len(page)
                say(f"{table}: {rows:,} rows")
        await connection.execute("VACUUM ANALYZE", timeout=600)
    finally:
        await connection.close()
