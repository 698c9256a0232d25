"""The plan of every statement that runs often: none goes through a whole table, on SQLite or on PostgreSQL."""

from __future__ import annotations

import re

import pytest

from lucius.buses.sql import statements as bus
from lucius.ledgers.sql import statements as ledger
from lucius.sql import search_tables
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.dialect import for_many_rows, to_sqlite
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase

SHARED = {
    "load jobs": ledger.LOAD_JOBS,
    "load outputs": ledger.LOAD_OUTPUTS,
    "load policies": ledger.LOAD_POLICIES,
    "update state": ledger.UPDATE_STATE,
    "update moving": ledger.UPDATE_MOVING,
    "lock holder": ledger.LOCK_HOLDER,
    "note holder": ledger.NOTE_HOLDER,
    "read claims": ledger.READ_CLAIMS,
    "claim owners": ledger.CLAIM_OWNERS,
    "read slots": ledger.READ_SLOTS,
    "due": ledger.DUE,
    "undispatched": ledger.UNDISPATCHED,
    "outbox": ledger.OUTBOX,
    "past attempts": ledger.PAST_ATTEMPTS,
    "events": ledger.EVENTS,
    "fill correlation ids": search_tables.FILL,
    "read audit": ledger.READ_AUDIT,
    "prune audit": ledger.PRUNE_AUDIT,
    "page of specs": search_tables.PAGE,
    "is any webhook due": ledger.IS_ANY_WEBHOOK_DUE,
    "tenants with webhooks due": ledger.TENANTS_WITH_WEBHOOKS_DUE,
    "webhooks due": ledger.WEBHOOKS_DUE,
    "webhooks still due": ledger.STILL_DUE,
    "claim webhook": ledger.CLAIM_WEBHOOK,
    "finish webhook": ledger.FINISH_WEBHOOK,
    "shorten webhooks": ledger.SHORTEN_WEBHOOKS,
    "count open jobs": ledger.COUNT_BY_TENANT_AND_MODE,
    "wake sleepers": ledger.WAKE_SLEEPERS,
    "orphaned outbox": ledger.ORPHANED_OUTBOX,
    "close outbox": ledger.CLOSE_OUTBOX,
    "prunable": ledger.PRUNABLE,
    "prunable except tenants": ledger.PRUNABLE_EXCEPT,
    "prunable of a tenant": ledger.PRUNABLE_OF_TENANT,
    "prunable by id": ledger.PRUNABLE_NAMED,
    "prune dead messages": ledger.PRUNE_DEAD_MESSAGES,
    "prune claim": ledger.PRUNE_CLAIM,
    **{f"prune {place}": sql for place, sql in enumerate(ledger.PRUNE)},
    "settle": bus.SETTLE,
    "settle unique": bus.SETTLE_UNIQUE,
    "unlock": bus.UNLOCK,
    "bury": bus.BURY,
    "old dead": bus.OLD_DEAD,
    "dead letters": bus.DEAD_LETTERS,
    "dead counts": bus.DEAD_COUNTS,
    "settled page": bus.SETTLED_PAGE,
    "forget": bus.FORGET,
}
SQLITE = SHARED | {
    "moved jobs": ledger.MOVED_JOBS,
    "seen": bus.SEEN,
    "bodies": bus.BODIES,
    "count delivery": bus.COUNT_DELIVERY,
}
POSTGRES = SHARED | {
    "lock jobs": ledger.LOCK_JOBS,
    "ready across": bus.READY_ACROSS,
    "take across": bus.TAKE_ACROSS,
    "is any ready": bus.IS_ANY_READY,
    "lock": bus.LOCK,
    "renew": bus.RENEW,
    "shorten locks": bus.SHORTEN_LOCKS,
    "show new": bus.SHOW_NEW,
    "waiting": bus.WAITING,
    "withdraw": bus.WITHDRAW,
    "expired": bus.EXPIRED,
    "depths": bus.DEPTHS,
}
TABLES = "job_[a-z_]+|audit_entries|policies|claims|inflight|webhooks|messages|[a-z]"


async def sqlite_plan(database: SqliteDatabase, sql: str) -> list[str]:
    places = [int(place) for place in re.findall(r"\?(\d+)", sql)]
    args = [None] * (max(places) if places else sql.count("?"))

    def script() -> Script[list[str]]:
        rows = yield Fetch("EXPLAIN QUERY PLAN " + sql, args)
        return [str(row[3]) for row in rows]

    return await database.read(script)


def full_scans(plan: list[str]) -> list[str]:
    """Steps that go through a whole table; going along an index in its order is none."""
    return [step for step in plan if re.match(rf"SCAN ({TABLES})\b(?!.* USING )", step) and "VIRTUAL TABLE" not in step]


@pytest.mark.parametrize("name", SQLITE)
async def test_sqlite_finds_rows_by_an_index(sqlite_database: SqliteDatabase, name: str) -> None:
    plan = await sqlite_plan(sqlite_database, to_sqlite(SQLITE[name]))
    assert plan
    assert not full_scans(plan), plan


@pytest.mark.parametrize("name", [name for name, sql in SQLITE.items() if sql.startswith("UPDATE")])
async def test_sqlite_finds_many_rows_at_once_by_an_index(sqlite_database: SqliteDatabase, name: str) -> None:
    sql = for_many_rows(SQLITE[name], 64)
    if sql is None:
        assert "RETURNING" in SQLITE[name]
        return
    if "ANY(" in SQLITE[name]:
        return  # It takes lists as it is.
    plan = await sqlite_plan(sqlite_database, sql)
    assert not [step for step in full_scans(plan) if "given" not in step and "CONSTANT" not in step], plan


@pytest.mark.parametrize("name", ["due", "undispatched", "outbox", "events", "webhooks due", "settled page"])
async def test_sqlite_reads_in_the_order_of_the_index(sqlite_database: SqliteDatabase, name: str) -> None:
    plan = await sqlite_plan(sqlite_database, to_sqlite(SQLITE[name]))
    assert not [step for step in plan if "TEMP B-TREE" in step], plan


@pytest.mark.parametrize("name", ["count open jobs", "wake sleepers"])
async def test_sqlite_repairs_without_going_through_jobs_that_have_ended(
    sqlite_database: SqliteDatabase, name: str
) -> None:
    """Repair runs every minute, and there may be a million of them."""
    plan = await sqlite_plan(sqlite_database, to_sqlite(SQLITE[name]))
    assert any("states_unsuccessful" in step for step in plan), plan


@pytest.mark.parametrize("name", POSTGRES)
async def test_postgres_has_an_index_for_its_rows(postgres_database: PostgresDatabase, name: str) -> None:
    """With full scans forbidden, the planner takes one only where there is no other way."""

    def script() -> Script[list[str]]:
        yield Run("SET LOCAL enable_seqscan = off")
        yield Run("SET LOCAL plan_cache_mode = force_generic_plan")
        types = ", ".join("unknown" for _ in set(re.findall(r"\$\d+", POSTGRES[name])))
        signature = f"({types})" if types else ""
        yield Run(f"PREPARE statement{signature} AS {POSTGRES[name]}")
        call = f"({', '.join('NULL' for _ in types.split(', '))})" if types else ""
        rows = yield Fetch(f"EXPLAIN EXECUTE statement{call}")
        yield Run("DEALLOCATE statement")
        return [str(row[0]) for row in rows]

    plan = await postgres_database.write(script)
    assert not [step for step in plan if "Seq Scan" in step], plan
