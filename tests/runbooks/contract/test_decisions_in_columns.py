"""What decides is a column: neither the words of a message nor the audit trail."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import FAILURE, OPERATOR, SUCCESS, Harness, runbook

from lucius.domain.errors import CallerError
from lucius.sql import schema
from lucius.sql.database import Database, Fetch, Row, Run, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase

BEFORE = schema.MIGRATIONS[: [migration.version for migration in schema.MIGRATIONS].index(10)]
"""The migrations before the one that makes these columns."""


async def test_a_cancelled_batch_is_not_retried_though_its_trail_is_gone(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"]}))
    harness.answer = lambda job: FAILURE
    await harness.batch("moves", ["a"])
    await harness.tick()
    await harness.handle_events()
    await harness.operations.cancel(1, "no longer wanted", OPERATOR)
    await harness.settle()
    await harness.run("DELETE FROM runbook_events")
    with pytest.raises(CallerError, match="was cancelled"):
        await harness.operations.retry(1, None, OPERATOR)


async def test_retried_init_brings_its_phases_back_whatever_their_message_says(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"]}, init=["check"]))
    harness.answer = lambda job: FAILURE if job.function == "check" else SUCCESS
    await harness.batch("moves", ["a"])
    await harness.settle()
    assert await harness.phases() == {"one": "skipped"}
    await harness.run("UPDATE phase_executions SET error_message = 'put otherwise'")
    harness.answer = lambda job: SUCCESS
    await harness.operations.retry(1, None, OPERATOR)
    await harness.settle()
    await harness.step()
    assert await harness.phases() == {"one": "completed"}


async def test_phases_that_were_overdue_stay_skipped_when_init_is_retried(real_harness: Harness) -> None:
    harness = real_harness
    await harness.publish(runbook({"one": ["a"], "two": ["b"]}, init=["check"], offsets={"one": "T-2h", "two": "T-0"}),
                        overdue_behavior="ignore")  # fmt: skip
    harness.answer = lambda job: FAILURE if job.function == "check" else SUCCESS
    await harness.batch("moves", ["a"], starts_in=3_600)
    await harness.settle()
    await harness.run("UPDATE phase_executions SET error_message = 'init step of another time'")
    harness.answer = lambda job: SUCCESS
    await harness.operations.retry(1, None, OPERATOR)
    await harness.settle()
    assert await harness.phases() == {"one": "skipped", "two": "pending"}


# --- Rows of before --------------------------------------------------------------------------------------------------

OLD = (
    """INSERT INTO batches (runbook_id, batch_start_time, status, detected_at, runbook_name, origin, advance,
        error_message, completed_at) VALUES (1, 0, 'failed', 0, 'moves', 'manual', 'time', 'cancelled by olga', 9),
        (1, 0, 'failed', 0, 'moves', 'manual', 'time', 'init step check: boom', 9)""",
    """INSERT INTO phase_executions (batch_id, phase_name, offset_minutes, due_at, runbook_version, status,
        failures_forgiven, error_message) VALUES (1, 'one', 0, 0, 1, 'skipped', 0, 'cancelled by olga'),
        (2, 'one', 0, 0, 1, 'skipped', 0, 'init step check: boom'), (2, 'two', 0, 0, 1, 'pending', 0, NULL),
        (2, 'three', 0, 0, 1, 'failed', 0, 'init step is how this begins')""",
    """INSERT INTO batch_members (batch_id, member_key, status, added_at, added_by, removed_by) VALUES
        (2, 'a', 'active', 0, 'scheduler', NULL), (2, 'b', 'active', 0, 'olga', NULL),
        (2, 'c', 'removed', 0, 'scheduler', 'olga'), (2, 'd', 'removed', 0, 'olga', 'scheduler')""",
    """INSERT INTO runbook_events (at, kind, actor, runbook_name, batch_id, detail)
        VALUES (7, 'batch-cancelled', 'olga', 'moves', 1, '{}'), (8, 'batch-ended', 'olga', 'moves', 2, '{}')""",
)


async def check_upgrade(database: Database) -> None:
    def script() -> Script[None]:
        for statement in OLD:
            yield Run(statement)

    def read(sql: str) -> Script[list[Row]]:
        return [tuple(row) for row in (yield Fetch(sql))]

    await schema.upgrade(database, BEFORE)
    await database.write(script)
    await schema.upgrade(database)
    batches = await database.read(lambda: read("SELECT id, cancelled_at FROM batches ORDER BY id"))
    assert batches == [(1, 7), (2, None)]
    members = await database.read(
        lambda: read("SELECT member_key, added_by_source, removed_by_source FROM batch_members ORDER BY id")
    )
    assert members == [("a", True, False), ("b", False, False), ("c", True, False), ("d", False, True)]
    phases = await database.read(lambda: read("SELECT phase_name, skip_cause FROM phase_executions ORDER BY id"))
    assert phases == [("one", None), ("one", "init_failed"), ("two", None), ("three", None)]


async def test_upgrade_fills_the_columns_on_sqlite(tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "lucius.db") as database:
        await check_upgrade(database)


async def test_upgrade_fills_the_columns_on_postgres(postgres_database: PostgresDatabase) -> None:
    def script() -> Script[None]:
        yield Run("DROP SCHEMA public CASCADE")
        yield Run("CREATE SCHEMA public")

    await postgres_database.write(script)
    await check_upgrade(postgres_database)
