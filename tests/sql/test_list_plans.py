"""The plan of every documented filter of every list, over many rows: no scan, no sort, nothing read in vain.

A page must cost as much as it has rows. So the plans are made with the statistics of a table in which the newest rows
are not what is asked for: where a planner trusts to luck, it would walk through all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import asyncpg
import pytest
from tests.sql import many_jobs
from tests.sql.many_jobs import JOBS, OPEN_JOBS, SPACING_MILLIS, fill, job_id_of

from lucius.domain.job import JobStatus
from lucius.domain.search import SearchValue
from lucius.ledgers.sql import audit, statements
from lucius.ledgers.sql.lists import OWN_ID, count_of_ids, page_of_ids
from lucius.ports.audit import AuditFilter, AuditKind
from lucius.ports.ledger import JobFilter
from lucius.runbooks.core.states import BATCH
from lucius.runbooks.service.views import batches, events
from lucius.runbooks.service.views.members import MEMBER_FILTERS
from lucius.runbooks.store import members
from lucius.sql.database import Database, Fetch, Run, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.samples import START

PAGE = 50
READ_MAX = PAGE + 10
"""A page, one row more to know whether there is another, and a few that are left out where nearly all are wanted."""
EARLY, LATE = START + JOBS // 4 * SPACING_MILLIS, START + JOBS // 2 * SPACING_MILLIS
TENANTS = (None, "early", "tenant-3")
STATUSES = (None, *JobStatus)
TYPES = (None, "RARE", "OCR", "NONE")
TIMES = ((None, None), (EARLY, None), (None, LATE), (EARLY, LATE))
CURSORS = (None, job_id_of(JOBS * 3 // 4))
SEARCHES = {
    "correlation id": JobFilter(correlation_id="order-7"),
    "its own correlation id": JobFilter(correlation_id=OWN_ID, job_id=job_id_of(7)),
    "a common value": JobFilter(search=SearchValue("kind", "invoice")),
    "a rare value": JobFilter(search=SearchValue("customer", "c-7")),
    "both": JobFilter(correlation_id="order-7", search=SearchValue("kind", "invoice")),
}


def job_lists() -> Iterator[tuple[str, Fetch]]:
    for tenant, status, type_, (first, end), cursor in product(TENANTS, STATUSES, TYPES, TIMES, CURSORS):
        filter_ = JobFilter(
            tenants=None if tenant is None else (tenant,), status=status, request_type=type_, created_from=first,
            created_to=end,
        )  # fmt: skip
        yield f"{tenant} {status} {type_} {first} {end} {cursor}", page_of_ids(filter_, tenant, PAGE, cursor)
    for cursor in CURSORS:
        yield f"dead letters {cursor}", page_of_ids(JobFilter(dead_letter=True), None, PAGE, cursor)
    for status, (first, end), cursor in product((None, "FAILED_FINAL"), TIMES, CURSORS):
        filter_ = JobFilter(error_signature="OCR/1/ocr/X: y", status=status, created_from=first, created_to=end)
        yield f"signature {status} {first} {end} {cursor}", page_of_ids(filter_, None, PAGE, cursor)
    for tenant, cursor in product(TENANTS, CURSORS):
        for name, filter_ in SEARCHES.items():
            yield f"search by {name} {tenant} {cursor}", page_of_ids(filter_, tenant, PAGE, cursor)
    for tenant, status, cursor in product(TENANTS, (None, JobStatus.PAUSED, JobStatus.SUCCEEDED), CURSORS):
        filter_ = JobFilter(job_id_prefix=job_id_of(JOBS // 2)[:11], status=status)
        yield f"ids that begin {tenant} {status} {cursor}", page_of_ids(filter_, tenant, PAGE, cursor)
    yield "search by key", page_of_ids(JobFilter(), None, PAGE, None, [job_id_of(7), job_id_of(9)])
    yield "open on Temporal", page_of_ids(JobFilter(open_on="temporal"), None, PAGE, None)


def audit_lists() -> Iterator[tuple[str, Fetch]]:
    for tenant, before in product((None, "tenant-3"), (None, "019e7129")):
        yield f"audit {tenant} {before}", audit.page_of_ids(AuditFilter(), tenant, PAGE, before)
    for name in ("actor", "action", "kind", "target"):
        value = AuditKind.JOB if name == "kind" else "x"
        yield f"audit by {name}", audit.page_of_ids(AuditFilter(**{name: value}), None, PAGE, None)  # type: ignore[arg-type]


def other_lists() -> Iterator[tuple[str, Fetch]]:
    yield from audit_lists()
    yield "outbox", Fetch(statements.OUTBOX, [PAGE])
    for runbook, status, before in product((None, "move"), (None, *BATCH), (None, 500)):
        script = batches.batch_page(runbook, status, PAGE, before)
        yield f"batches of {runbook} {status} {before}", next(script)  # type: ignore[misc]
    for status, before in product((None, *BATCH), (None, 500)):
        script = batches.batch_page(None, status, PAGE, before, ["acme"])
        yield f"batches of a tenant {status} {before}", next(script)  # type: ignore[misc]
    for status, key, after in product(MEMBER_FILTERS, (None, "u1"), (None, 500)):
        yield f"members {status} {key} {after}", members.wanted(1, status, key, PAGE, after)
    for (runbook, batch), before in product((("move", None), (None, 1)), (None, 500)):
        yield f"events {runbook} {batch} {before}", next(events.event_page(runbook, batch, PAGE, before))  # type: ignore[misc]


def is_open_status(name: str) -> bool:
    """Jobs that have not ended are found by status and filtered within its index: there are few of them."""
    return any(f" {status} " in name for status in ("QUEUED", "DISPATCHING", "IN_PROGRESS", "PAUSED", "CANCELLING"))


async def plan_of(database: Database, prefix: str, fetch: Fetch) -> list[Any]:
    def script() -> Script[list[Any]]:
        rows = yield Fetch(f"{prefix} {fetch.sql}", fetch.args)
        return [row[-1] for row in rows]

    return await database.read(script)


async def run(database: Database, sql: str) -> None:
    def script() -> Script[None]:
        yield Run(sql)

    await database.write(script)


# --- SQLite ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statistics", ["none", "its own", "those of 1,000,000 jobs"])
async def test_sqlite_reads_no_more_of_a_list_than_its_page(sqlite_database: SqliteDatabase, statistics: str) -> None:
    await fill(sqlite_database)
    if statistics != "none":
        await run(sqlite_database, "ANALYZE")
    if statistics == "those of 1,000,000 jobs":
        await _scale_statistics(sqlite_database, 1_000_000 // JOBS)
    wrong = []
    for name, fetch in [*job_lists(), *other_lists()]:
        plan = await plan_of(sqlite_database, "EXPLAIN QUERY PLAN", fetch)
        if any("TEMP B-TREE" in step for step in plan) or not any(
            _goes_by_index(name, fetch.sql, step) for step in plan
        ):
            wrong.append((name, plan))
    assert not wrong, f"{len(wrong)} plans: {wrong[:5]}"


async def test_sqlite_counts_failures_of_one_reason_without_the_rows_of_jobs(sqlite_database: SqliteDatabase) -> None:
    await fill(sqlite_database)
    for tenant in TENANTS:
        filter_ = JobFilter(status=JobStatus.FAILED_FINAL, error_signature="OCR/1/ocr/X: y", unclosed=True)
        plan = await plan_of(sqlite_database, "EXPLAIN QUERY PLAN", count_of_ids(filter_, tenant, 100_000))
        (step,) = [step for step in plan if "job_states" in step]
        assert "COVERING INDEX" in step, (tenant, plan)


async def _scale_statistics(database: SqliteDatabase, factor: int) -> None:
    """As if each table had so many times its rows; what is unique stays so."""

    def script() -> Script[None]:
        for table, index, stat in (yield Fetch("SELECT tbl, idx, stat FROM sqlite_stat1")):
            numbers = [str(int(one) * factor if one.isdigit() and int(one) > 1 else one) for one in stat.split()]
            row = (" ".join(numbers), table, index)
            yield Run("UPDATE sqlite_stat1 SET stat = $1 WHERE tbl = $2 AND idx IS $3", [row])
        yield Run("CREATE TABLE changed (x BIGINT)")  # Every connection reads schema and statistics again.
        yield Run("DROP TABLE changed")

    await database.write(script)


def _goes_by_index(name: str, sql: str, step: str) -> bool:
    """Whether the rows wanted are found by everything that they must have, or, without a filter, one after another."""
    if "WHERE" in sql and "USING" not in step:
        return False
    if is_open_status(name):
        return "states_unsuccessful (status=?" in step
    if name.startswith("search by"):
        tenant = "tenant_id=? AND " if "v.tenant_id" in sql else ""
        by_value = f"({tenant}field=? AND value=?"
        by = "correlation_id=?" if "p.correlation_id = $" in sql else by_value if "v.field" in sql else "job_id=?"
        return by in step
    columns = re.findall(
        r"(tenant_id|status|request_type|runbook_name|batch_id|member_key|actor|action|kind|target) = \$", sql
    )
    if "states_succeeded" in step:
        columns.remove("status")
    if "member_key" in columns:
        return "members_by_key (batch_id=? AND member_key=?" in step
    return all(f"{column}=?" in step for column in columns)


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statistics", ["its own", "those of 1,000,000 rows"])
async def test_postgres_reads_no_more_of_a_list_than_its_page(
    postgres_database: PostgresDatabase, postgres_url: str, statistics: str
) -> None:
    """The plans are run, too: what they read shows whether the planner trusted to luck."""
    await fill(postgres_database)
    await many_jobs.fill_other_tables(postgres_database)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("VACUUM ANALYZE")
    if statistics == "those of 1,000,000 rows":
        await _have_a_million_rows(connection)
    await connection.close()
    wrong = []
    for name, fetch in [*job_lists(), *other_lists()]:
        [plan] = await plan_of(postgres_database, "EXPLAIN (ANALYZE, FORMAT JSON)", fetch)
        nodes = list(_nodes(json.loads(plan)[0]["Plan"]))
        read = max(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in nodes)
        # Runbooks are few. Of open jobs, those of a rare tenant and type are sorted, since their status finds more.
        is_scanned = any(node["Node Type"] == "Seq Scan" and node.get("Relation Name") != "runbooks" for node in nodes)
        is_sorted = not is_open_status(name) and _sorts_before_its_limit(nodes)
        if is_scanned or is_sorted or read > (OPEN_JOBS if is_open_status(name) else READ_MAX):
            wrong.append((name, read, [(node["Node Type"], node.get("Index Name")) for node in nodes]))
    assert not wrong, f"{len(wrong)} plans: {wrong[:20]}"


async def _have_a_million_rows(connection: asyncpg.Connection) -> None:
    """As if each table had a million rows: all other statistics are shares of these, as `ANALYZE` keeps them."""
    for table in many_jobs.TABLES:
        rows = await connection.fetchval("SELECT reltuples FROM pg_class WHERE oid = $1::regclass", table)
        assert rows > 0, table
        await connection.execute(
            "UPDATE pg_class SET reltuples = reltuples * $2 WHERE oid = $1::regclass"
            " OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = $1::regclass)",
            table, 1_000_000 / rows,
        )  # fmt: skip
    estimate = "EXPLAIN (FORMAT JSON) SELECT 1 FROM job_states"
    planned = json.loads(await connection.fetchval(estimate))[0]["Plan"]["Plan Rows"]
    assert 900_000 < planned < 1_100_000, "the planner does not take these statistics"


def _sorts_before_its_limit(nodes: list[dict[str, Any]]) -> bool:
    """A page may be sorted, once it is chosen."""
    limits = [node for node in nodes if node["Node Type"] == "Limit"]
    return not limits or any(inner["Node Type"] == "Sort" for limit in limits for inner in _nodes(limit))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", ()):
        yield from _nodes(inner)
