"""Every ledger passes the ledger suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from lucius.buses.sql import JournaledBus, SqlBus
from lucius.domain.attempt import DispatchStatus
from lucius.ledgers.memory import MemoryLedger
from lucius.ledgers.sql import SqlLedger, rows, statements
from lucius.ports.ledger import Ledger
from lucius.sql.database import Run, Script
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.ledger_suite import EnlistingSuite, LedgerSuite
from lucius.testing.samples import ManualClock


class TestMemoryLedger(LedgerSuite):
    @pytest.fixture
    async def ledger(self) -> AsyncIterator[MemoryLedger]:
        async with MemoryLedger() as ledger:
            yield ledger

    async def break_count(self, ledger: Ledger, scope: str, jobs: int) -> None:
        assert isinstance(ledger, MemoryLedger)
        ledger._slots[scope] = jobs

    async def lose_timer(self, ledger: Ledger, job_id: str) -> None:
        assert isinstance(ledger, MemoryLedger)
        ledger._jobs[job_id] = replace(ledger._jobs[job_id], wake_at=None)

    async def set_outbox(self, ledger: Ledger, job_id: str, step_index: int, attempt_no: int, status: str) -> None:
        assert isinstance(ledger, MemoryLedger)
        job, attempts = ledger._jobs[job_id], ledger._attempts[job_id]
        attempt = replace(attempts[step_index, attempt_no], dispatch=DispatchStatus(status))
        attempts[step_index, attempt_no] = attempt
        steps = list(job.steps)
        steps[step_index] = replace(steps[step_index], attempt=attempt)
        ledger._jobs[job_id] = replace(job, steps=tuple(steps))


class SqlLedgerSuite(LedgerSuite):
    async def break_count(self, ledger: Ledger, scope: str, jobs: int) -> None:
        insert = "INSERT INTO inflight (scope, jobs) VALUES ($1, $2)"
        await _run(ledger, f"{insert} ON CONFLICT (scope) DO UPDATE SET jobs = excluded.jobs", scope, jobs)

    async def lose_timer(self, ledger: Ledger, job_id: str) -> None:
        await _run(ledger, "UPDATE job_states SET wake_at = NULL WHERE job_id = $1", job_id)

    async def set_outbox(self, ledger: Ledger, job_id: str, step_index: int, attempt_no: int, status: str) -> None:
        job = (await ledger.load([job_id]))[job_id]
        steps, step = list(job.steps), job.steps[step_index]
        assert step.attempt is not None
        assert step.attempt.attempt_no == attempt_no
        steps[step_index] = replace(step, attempt=replace(step.attempt, dispatch=DispatchStatus(status)))
        changed = replace(job, steps=tuple(steps), revision=job.revision - 1)
        await _run(ledger, statements.UPDATE_STATE, *rows.state_row(changed))


async def _run(ledger: Ledger, sql: str, *args: Any) -> None:
    def script() -> Script[None]:
        yield Run(sql, [args])

    assert isinstance(ledger, SqlLedger)
    await ledger._database.write(script)


class TestSqliteLedger(SqlLedgerSuite):
    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database) as ledger:
            yield ledger


class TestPostgresLedger(SqlLedgerSuite):
    @pytest.fixture
    async def ledger(self, postgres_database: PostgresDatabase) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(postgres_database) as ledger:
            yield ledger


class TestSqliteEnlisting(EnlistingSuite):
    @pytest.fixture
    async def bus(self, sqlite_database: SqliteDatabase, clock: ManualClock) -> AsyncIterator[JournaledBus]:
        async with JournaledBus(sqlite_database, clock) as bus:
            yield bus

    @pytest.fixture
    async def ledger(self, sqlite_database: SqliteDatabase, bus: JournaledBus) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(sqlite_database, bus) as ledger:
            yield ledger


class TestPostgresEnlisting(EnlistingSuite):
    @pytest.fixture
    async def bus(self, postgres_database: PostgresDatabase, clock: ManualClock) -> AsyncIterator[SqlBus]:
        async with SqlBus(postgres_database, clock) as bus:
            yield bus

    @pytest.fixture
    async def ledger(self, postgres_database: PostgresDatabase, bus: SqlBus) -> AsyncIterator[SqlLedger]:
        async with SqlLedger(postgres_database, bus) as ledger:
            yield ledger
