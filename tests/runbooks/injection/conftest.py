"""Runbooks on a database in memory, with time that stands still and sources that the test names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import psycopg  # noqa: F401 - loaded before a source's few seconds begin
import pytest
import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401

from lucius.buses.sql import JournaledBus
from lucius.ports.observer import Observer
from lucius.runbooks.core.messages import EVENTS_TOPIC, JOBS_TOPIC, ORCHESTRATOR, read_result
from lucius.runbooks.engine.outbox import Outbox
from lucius.runbooks.engine.turn import Turns
from lucius.runbooks.loops.orchestrator import Orchestrator
from lucius.runbooks.loops.scheduler import Scheduler
from lucius.runbooks.loops.settings import OrchestratorSettings, SchedulerSettings
from lucius.runbooks.service.dead_letters import DeadLetters
from lucius.runbooks.service.operations import Operations
from lucius.runbooks.service.publishing import Publishing
from lucius.runbooks.service.queries import Queries
from lucius.runbooks.sources.limits import SourceLimits
from lucius.sql.database import Fetch, Script
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.samples import JOB_TOKENS, ManualClock

ROUNDS_MAX = 200


class Harness:
    """The use cases as the API has them, and hands to play bus, worker and clock."""

    def __init__(self, database: VolatileDatabase, bus: JournaledBus, clock: ManualClock) -> None:
        self.environ: dict[str, str] = {}
        self.clock = clock
        self.bus = bus
        self._database = database
        limits = SourceLimits(query_seconds=3.0, still_seconds=0.0)
        turns = Turns(database, Outbox(database, bus), clock, JOB_TOKENS)
        self.orchestrator = Orchestrator(turns, bus, Observer(), OrchestratorSettings())
        settings = SchedulerSettings(limits=limits, absence_seconds=0.0)
        self.scheduler = Scheduler(turns, Observer(), settings, "me", self.environ)
        self.publishing = Publishing(turns, bus)
        self.operations = Operations(turns, limits)
        self.queries = Queries(turns, DeadLetters(turns, bus), limits, self.environ, ())

    async def fetch(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        def script() -> Script[list[tuple[Any, ...]]]:
            return [tuple(row) for row in (yield Fetch(sql, args))]

        return await self._database.read(script)

    async def run(
        self, answers: dict[str, Any] | None = None, fails: str | None = None, worker: str = "w"
    ) -> list[dict[str, Any]]:
        """Tick, and do every job there is: each with the result that `answers` has for its function, or this error."""
        done: list[dict[str, Any]] = []
        assert await self.scheduler.tick()
        for _ in range(ROUNDS_MAX):
            events = await self.bus.receive([EVENTS_TOPIC], ORCHESTRATOR, 64, 60.0, 0.0)
            if events:
                await self.orchestrator.handle(events)
            jobs = await self.bus.receive([JOBS_TOPIC], worker, 256, 60.0, 0.0)
            if not events and not jobs:
                return done
            bodies = [msgspec.json.decode(job.body) for job in jobs]
            done += bodies
            results = []
            for body in bodies:
                result: dict[str, Any] = {"jobId": body["jobId"], "status": "Failure", "error": {"message": fails}}
                if fails is None:
                    answer = (answers or {}).get(body["functionName"], {})
                    result = {"jobId": body["jobId"], "status": "Success", "result": answer}
                results.append(read_result(result))
            if results:
                await self.orchestrator.take_results(results, needs_token=False)
        raise AssertionError("it does not come to rest")

    async def source_of(self, name: str) -> tuple[str, str]:
        """How a runbook's source was last found, and what was said of it."""
        [(state, detail)] = await self.fetch(
            "SELECT source_state, source_detail FROM runbook_controls WHERE name = $1", name
        )
        return state, detail or ""

    async def everything_kept(self) -> str:
        """All that the database holds, as one text."""
        parts = []
        for (table,) in await self.fetch("SELECT name FROM sqlite_master WHERE type = 'table'"):
            parts += [repr(row) for row in await self.fetch(f'SELECT * FROM "{table}"')]
        return "\n".join(parts)


@pytest.fixture
async def harness(clock: ManualClock) -> AsyncIterator[Harness]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        async with JournaledBus(database, clock) as bus:
            yield Harness(database, bus, clock)
