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
from tests.sql.many_jobs import JOBS, OPEN_JOBS, SPACING_MILLIS, fill, job_id_of

from lucius.domain.job import JobStatus
from lucius.ledgers.sql import statements
from lucius.ledgers.sql.lists import page_of_ids
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
EARLY, LATE = START + JOBS // 4 * SPACING_MILLIS, START + JOBS // 2 * SPACING_MILLIS
TENANTS = (None, "early", "tenant-3")
STATUSES = (None, *JobStatus)
TYPES = (None, "RARE", "OCR", "NONE")
TIMES = ((None, None), (EARLY, None), (None, LATE), (EARLY, LATE))
CURSORS = (None, job_id_of(JOBS * 3 // 4))


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
    yield "open on Temporal", page_of_ids(JobFilter(open_on="temporal"), None, PAGE, None)


def other_lists() -> Iterator[tuple[str, Fetch]]:
    yield "outbox", Fetch(statements.OUTBOX, [PAGE])
    for runbook, status, before in product((None, "move"), (None, *BATCH), (None, 500)):
        script = batches.batch_page(runbook, status, PAGE, before)
        yield f"batches of {runbook} {status} {before}", next(script)  # type: ignore[misc]
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
        if any("TEMP B-TREE" in step for step in plan) or not _goes_by_index(name, fetch.sql, plan[0]):
            wrong.append((name, plan))
    assert not wrong, f"{len(wrong)} plans: {wrong[:5]}"


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
    columns = re.findall(r"(tenant_id|status|request_type|runbook_name|batch_id|member_key) = \$", sql)
    if "states_succeeded" in step:
        columns.remove("status")
    if "member_key" in columns:
        return "members_by_key (batch_id=? AND member_key=?" in step
    return all(f"{column}=?" in step for column in columns)


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


async def test_postgres_reads_no_more_of_a_list_than_its_page(
    postgres_database: PostgresDatabase, postgres_url: str
) -> None:
    await fill(postgres_database)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("VACUUM ANALYZE job_states")
    await connection.close()
    wrong = []
    for name, fetch in job_lists():
        [plan] = await plan_of(postgres_database, "EXPLAIN (ANALYZE, FORMAT JSON)", fetch)
        nodes = list(_nodes(json.loads(plan)[0]["Plan"]))
        read = max(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in nodes)
        kinds = {node["Node Type"] for node in nodes}
        if "Seq Scan" in kinds or "Sort" in kinds or read > (OPEN_JOBS if is_open_status(name) else PAGE):
            wrong.append((name, read, [(node["Node Type"], node.get("Index Name")) for node in nodes]))
    assert not wrong, f"{len(wrong)} plans: {wrong[:20]}"


async def test_postgres_has_an_index_for_every_other_list(postgres_database: PostgresDatabase) -> None:
    wrong = {}
    for name, fetch in other_lists():

        def script(fetch: Fetch = fetch) -> Script[list[str]]:
            yield Run("SET LOCAL enable_seqscan = off")
            yield Run("SET LOCAL enable_bitmapscan = off")
            rows = yield Fetch(f"EXPLAIN {fetch.sql}", fetch.args)
            return [row[0] for row in rows]

        plan = await postgres_database.write(script)
        if any("Seq Scan" in step or "Sort" in step for step in plan):
            wrong[name] = plan
    assert not wrong, wrong


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", ()):
        yield from _nodes(inner)
