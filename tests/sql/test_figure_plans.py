"""The figures of the console read counters and indexes, never a whole table of jobs."""

from __future__ import annotations

import pytest
from tests.sql.many_jobs import fill
from tests.sql.test_list_plans import plan_of, run

from lucius.ledgers.sql import statements
from lucius.sql.database import Fetch
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.samples import START

MINUTE = START // 60_000
WEEK = [MINUTE, MINUTE - MINUTE % 60 + 60, -(MINUTE // 60 + 1)]
"""The rest of an hour in minutes, and the hours after it."""
FIRST_ID = "00000000-0000-0000-0000-000000000000"
FIGURES = {
    "counts": Fetch(statements.COUNTS, WEEK),
    "counts of tenants": Fetch(statements.COUNTS_OF_TENANTS, [*WEEK, ["tenant-3"]]),
    "counts by tenant": Fetch(statements.COUNTS_BY_TENANT, WEEK),
    "counts by tenant, of tenants": Fetch(statements.COUNTS_BY_TENANT_OF_TENANTS, [*WEEK, ["tenant-3"]]),
    "open jobs": Fetch(statements.open_groups(False), [10_001]),
    "open jobs of tenants": Fetch(statements.open_groups(True), [10_001, ["tenant-3"]]),
    "oldest waiting": Fetch(statements.OLDEST_WAITING),
    "oldest waiting of tenants": Fetch(statements.OLDEST_WAITING_OF_TENANTS, [["tenant-3"]]),
    "wait causes": Fetch(statements.COUNT_WAIT_CAUSES),
    "wait causes of tenants": Fetch(statements.COUNT_WAIT_CAUSES_OF_TENANTS, [["tenant-3"]]),
    "failures": Fetch(statements.failures(False, False), [10_001, FIRST_ID]),
    "dead letters": Fetch(statements.failures(False, True), [10_001, FIRST_ID]),
    "dead letters of tenants": Fetch(statements.failures(True, True), [10_001, FIRST_ID, ["tenant-3"]]),
}


@pytest.mark.parametrize("statistics", ["none", "its own"])
async def test_sqlite_reads_figures_through_indexes(sqlite_database: SqliteDatabase, statistics: str) -> None:
    await fill(sqlite_database)
    if statistics != "none":
        await run(sqlite_database, "ANALYZE")
    wrong = {}
    for name, fetch in FIGURES.items():
        plan = await plan_of(sqlite_database, "EXPLAIN QUERY PLAN", fetch)
        if any(step.startswith(("SCAN job_states", "SCAN job_counts", "SCAN job_specs", "SCAN p")) for step in plan):
            wrong[name] = plan
    assert not wrong
