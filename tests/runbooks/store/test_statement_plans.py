"""The plan of every statement of runbooks that runs often: by the index that was made for it, on both databases."""

from __future__ import annotations

import re

import pytest

from lucius.runbooks.store import (
    absences,
    batch_changes,
    batches,
    behind,
    changes,
    conditions,
    executions,
    followups,
    grid,
    members,
    phases,
    runbooks,
    step_counts,
    steps,
)
from lucius.runbooks.store.executions import ALL_TABLES, FOLLOWUPS, INITS, SELECT, STEPS
from lucius.sql import runbook_counts, runbook_tables
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.dialect import for_many_rows, to_sqlite
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.runbook_tables import IS_OPEN
from lucius.sql.sqlite import SqliteDatabase

PREFIX = {STEPS: "steps", INITS: "inits", FOLLOWUPS: "followups"}

HOT = {
    "heads": (steps.HEADS, "steps_by_member"),
    "phase_progress, those at the barrier": (steps.PHASE_PROGRESS, "steps_at_barrier"),
    "phase_progress, those who catch up": (steps.PHASE_PROGRESS, "steps_open"),
    "ready at the barrier": (steps.READY_AT, "steps_at_barrier"),
    "ready at the barrier, none before": (steps.READY_AT, "steps_by_member"),
    "open rollback": (followups.OPEN_ROLLBACK, "followups_open"),
    "counted against a phase": (steps.COUNTED_AGAINST, "steps_unhappy"),
    "failed members": (steps.FAILED_MEMBERS, "steps_unhappy"),
    "busy members": (steps.BUSY_MEMBERS, "steps_by_member"),
    "open chains": (f"{SELECT[FOLLOWUPS]} WHERE e.batch_id = $1 AND e.{IS_OPEN} ORDER BY e.id", "followups_open"),
    "in flight": (steps.IN_FLIGHT, "steps_in_flight"),
    "who is behind, the step": (behind.LOWEST, "steps_at_barrier"),
    "who is behind, how many": (behind.COUNT, "steps_at_barrier"),
    "who is behind": (behind.LONGEST, "steps_at_barrier"),
    "changed cells of members": (grid.CELLS_OF_MEMBERS, "steps_by_member"),
    "in flight anywhere": (runbook_counts.IN_FLIGHT, "steps_in_flight"),
    "results of members": (steps.RESULTS_OF_MEMBERS, "steps_by_member"),
    "phases due": (phases.DUE, "phases_due"),
    "a page of members": (members.ACTIVE_AFTER, "members_by_status"),
    "members by key": (members.UNANNOUNCED, "members_by_key"),
    "members of open batches": (members.OF_OPEN_BATCHES, "batches_unfinished"),
    "members of open batches, in each": (members.OF_OPEN_BATCHES, "members_by_status"),
    "open batches": (batches.OPEN_FROM_SOURCE, "batches_unfinished"),
    "batches left over": (batches.NOT_STARTED, "batches_by_runbook_and_status"),
    "batches behind": (batches.BEHIND, "batches_unfinished"),
    "cancel what is ready": (steps.READY_TO_CANCEL, "steps_ready"),
    "cancel what is open": (steps.OPEN_TO_CANCEL, "steps_at_barrier"),
    "cancel who catches up": (steps.CATCHING_UP_TO_CANCEL, "steps_open"),
    "batches that are being cancelled": (batches.CANCELLING, "batches_cancelling"),
    "batches without counts": (step_counts.UNCOUNTED, "batches_unfinished"),
    "ready steps by place": (step_counts.READY, "steps_ready"),
    "phases that are not adopted": (step_counts.PHASES_NOT_ADOPTED, "steps_at_barrier"),
    "runbooks of tenants": (runbooks.LINES_OF_TENANTS, "runbooks_by_tenant"),
    "lost batch-init": (batches.INIT_NOT_BEGUN, "batches_by_status"),
    "lost phase-due": (phases.NOT_HANDLED, "phases_not_taken_up"),
    "lost member-added": (members.ADD_UNHANDLED, "members_add_unhandled"),
    "lost member-removed": (members.REMOVE_UNHANDLED, "members_remove_unhandled"),
    **{
        f"lost poll-check of {table}": (executions.POLLS_UNHANDLED[table], f"{PREFIX[table]}_polling")
        for table in ALL_TABLES
    },
    **{f"due {table}": (executions.DUE[table], f"{PREFIX[table]}_due") for table in ALL_TABLES},
    **{f"ahead {table}": (executions.AHEAD[table], f"{PREFIX[table]}_due") for table in ALL_TABLES},
    **{f"polls of {table}": (executions.POLLS_DUE[table], f"{PREFIX[table]}_polling") for table in ALL_TABLES},
    **{f"ready of {table}": (executions.READY[table], f"{PREFIX[table]}_ready") for table in ALL_TABLES},
    **{
        f"ready batches of {table}": (executions.READY_BATCHES[table], f"{PREFIX[table]}_ready") for table in ALL_TABLES
    },
}
"""Statement, and the index that must serve it."""
BY_KEY = {
    "lock batches": batches.LOCK,
    "ready": steps.MAKE_READY,
    "caught up": steps.CAUGHT_UP,
    "later steps": steps.PENDING_OF_MEMBERS,
    "a rollback": followups.CHAIN,
    "cancel steps": steps.CANCEL,
    "steps that were made": steps.MADE,
    "steps without their batch": steps.SET_BATCH,
    "pending steps by place": steps.PENDING_BY_PLACE,
    "counts of a batch": step_counts.OF_BATCH,
    "counts of a batch by rows": step_counts.BY_ROWS,
    "counts of what is not adopted": step_counts.NOT_ADOPTED,
    "counts of what is adopted": step_counts.ADOPTED,
    "change counts": step_counts.CHANGE,
    "resume a batch": steps.CANCELLED_OF_BATCH,
    "limit cancels": steps.CANCEL_PENDING,
    "forgive": phases.FORGIVE,
    "grid's members": grid.MEMBERS,
    "grid's changed members": grid.MEMBERS_BY_IDS,
    "grid's changed cells": grid.CELLS_BY_IDS,
    "changes of a batch": batch_changes.SINCE,
    "newest change of a batch": batch_changes.NEWEST,
    "newest changes of batches": batch_changes.NEWEST_OF,
    "old changes of a batch": batch_changes.PRUNE,
    "members of a batch": members.ACTIVE_BY_KEY,
    "missing of a runbook": absences._READ,
    "missing of a batch": absences._OF_BATCH,
    "missing of members": absences._OF_MEMBERS,
    **{f"update {table}": changes.UPDATE[table] for table in ALL_TABLES},
    **{f"batch of {table}": executions.BATCH_OF[table] for table in ALL_TABLES},
    **{f"{table} by id": executions.BY_IDS[table] for table in ALL_TABLES},
}
"""Statements that may take any key, but must take one."""
IN_ORDER = [f"{what} {table}" for what in ("due", "polls of", "ready of") for table in ALL_TABLES]

FILL = (
    """INSERT INTO batches (runbook_id, batch_start_time, status, detected_at, runbook_name, origin, advance,
        completed_at) SELECT 1, n, 'active', 0, 'r' || n % 3, 'source', 'time', CASE WHEN n <= 6 THEN NULL ELSE n END
        FROM generate_series(1, 60) n""",
    """INSERT INTO batch_members (batch_id, member_key, status, added_at, added_by)
        SELECT 1 + n % 60, 'u' || n, 'active', 0, 'scheduler' FROM generate_series(1, 3000) n""",
    """INSERT INTO phase_executions (batch_id, phase_name, offset_minutes, due_at, runbook_version, status,
        failures_forgiven) SELECT 1 + n % 60, 'p' || n / 60, 0, n, 1,
        CASE WHEN n <= 6 THEN 'pending' ELSE 'completed' END, 0 FROM generate_series(0, 239) n""",
    """INSERT INTO step_executions (phase_execution_id, batch_member_id, step_name, step_index, worker_id,
        function_name, params_json, status, is_poll_step, last_polled_at, poll_interval_sec, poll_count, batch_id,
        dispatch_count, retries_used, ready, in_flight, wake_at, poll_asked, catching_up)
        SELECT p.id, m.id, 's', i, 'w', 'F', '{}', CASE WHEN m.id % 50 = 0 THEN 'pending' WHEN m.id % 50 = 1 THEN
        'polling' WHEN m.id % 50 = 2 THEN 'failed' ELSE 'succeeded' END, FALSE,
        CASE WHEN m.id % 50 = 1 THEN m.id END, 60, 0, p.batch_id, 1, 0, m.id % 100 = 0, m.id % 100 = 1,
        CASE WHEN m.id % 100 = 1 THEN m.id END, 0, m.id % 150 = 0
        FROM phase_executions p JOIN batch_members m ON m.batch_id = p.batch_id, generate_series(0, 2) i""",
    "ANALYZE batches",
    "ANALYZE batch_members",
    "ANALYZE phase_executions",
    "ANALYZE step_executions",
)


def test_shared_conditions_are_in_the_words_of_the_indexes() -> None:
    assert (conditions.IS_OPEN, conditions.NOT_SUCCEEDED) == (runbook_tables.IS_OPEN, runbook_tables.NOT_SUCCEEDED)


async def sqlite_plan(database: SqliteDatabase, sql: str) -> list[str]:
    places = [int(place) for place in re.findall(r"\?(\d+)", sql)]
    args = [None] * (max(places) if places else sql.count("?"))

    def script() -> Script[list[str]]:
        rows = yield Fetch("EXPLAIN QUERY PLAN " + sql, args)
        return [str(row[3]) for row in rows]

    return await database.read(script)


def scans(plan: list[str]) -> list[str]:
    """Steps that go through a whole table; going along one of the partial indexes is none."""
    own = [step for step in plan if "VIRTUAL TABLE" not in step and "CONSTANT ROW" not in step]
    made = ("SCAN given", "SCAN found")  # What a statement was given or has found itself.
    return [step for step in own if step.startswith("SCAN ") and " USING " not in step and step not in made]


@pytest.mark.parametrize("name", HOT)
async def test_sqlite_takes_the_index_that_was_made_for_it(sqlite_database: SqliteDatabase, name: str) -> None:
    sql, index = HOT[name]
    plan = await sqlite_plan(sqlite_database, to_sqlite(sql))
    assert any(f"INDEX {index}" in step for step in plan), plan
    assert not scans(plan), plan


@pytest.mark.parametrize("name", BY_KEY)
async def test_sqlite_finds_the_rows_by_a_key(sqlite_database: SqliteDatabase, name: str) -> None:
    plan = await sqlite_plan(sqlite_database, to_sqlite(BY_KEY[name]))
    assert plan
    assert not scans(plan), plan


MANY = {
    name: sql
    for name, sql in {**{name: sql for name, (sql, _) in HOT.items()}, **BY_KEY}.items()
    if sql.startswith("UPDATE") and name not in ("forgive", "steps without their batch")  # For one batch at a time.
}


@pytest.mark.parametrize("name", MANY)
async def test_sqlite_finds_many_rows_at_once_by_a_key(sqlite_database: SqliteDatabase, name: str) -> None:
    sql = for_many_rows(MANY[name], 64)
    assert sql is not None
    plan = await sqlite_plan(sqlite_database, sql)
    assert not scans(plan), plan


async def test_sqlite_reads_the_grid_in_the_order_of_members_and_steps(sqlite_database: SqliteDatabase) -> None:
    """It has no order inside of an aggregate: the rows must come in the order of the unique index."""
    plan = await sqlite_plan(sqlite_database, to_sqlite(grid.OF_PHASE))
    assert any("SEARCH e USING INDEX sqlite_autoindex_step_executions_1 (phase_execution_id=?)" in one for one in plan)
    assert not [step for step in plan if "TEMP B-TREE" in step], plan


@pytest.mark.parametrize(
    "name", [*IN_ORDER, "phases due", "a page of members", "open chains", "batches behind", "cancel what is open"]
)
async def test_sqlite_reads_in_the_order_of_the_index(sqlite_database: SqliteDatabase, name: str) -> None:
    """What is limited must not sort everything first."""
    plan = await sqlite_plan(sqlite_database, to_sqlite(HOT[name][0]))
    assert not [step for step in plan if "TEMP B-TREE" in step], plan


def _explained(sql: str) -> Script[list[str]]:
    types = ", ".join("unknown" for _ in set(re.findall(r"\$\d+", sql)))
    yield Run(f"PREPARE statement{f'({types})' if types else ''} AS {sql}")
    call = f"({', '.join('NULL' for _ in types.split(', '))})" if types else ""
    rows = yield Fetch(f"EXPLAIN EXECUTE statement{call}")
    yield Run("DEALLOCATE statement")
    return [str(row[0]) for row in rows]


async def test_postgres_never_goes_through_all_steps(postgres_database: PostgresDatabase) -> None:
    """On tables with rows in them, with its own choice of plans."""

    def fill() -> Script[None]:
        for sql in FILL:
            yield Run(sql)

    await postgres_database.write(fill)

    def explain() -> Script[dict[str, list[str]]]:
        yield Run("SET LOCAL plan_cache_mode = force_generic_plan")
        found = {}
        for name, (sql, _) in HOT.items():
            found[name] = yield from _explained(sql)
        return found

    plans = await postgres_database.write(explain)
    assert {
        name: plan for name, plan in plans.items() if any("Seq Scan on step_executions" in line for line in plan)
    } == {}
    wanted = {name: index for name, (_, index) in HOT.items() if index.startswith("steps_")}
    assert len(wanted) > 10
    missed = {
        name: plans[name]
        for name, index in wanted.items()
        if not any(re.search(rf"\b{index}\b", line) for line in plans[name])
    }
    assert missed == {}


async def test_postgres_has_a_key_for_every_statement(postgres_database: PostgresDatabase) -> None:
    """With full scans forbidden, the planner takes one only where there is no other way."""
    statements = {**{name: sql for name, (sql, _) in HOT.items()}, **BY_KEY}

    def explain() -> Script[dict[str, list[str]]]:
        yield Run("SET LOCAL enable_seqscan = off")
        yield Run("SET LOCAL plan_cache_mode = force_generic_plan")
        found = {}
        for name, sql in statements.items():
            found[name] = yield from _explained(sql)
        return found

    plans = await postgres_database.write(explain)
    assert {name: plan for name, plan in plans.items() if any("Seq Scan" in line for line in plan)} == {}
