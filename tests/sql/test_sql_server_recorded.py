"""What a run of runbooks really sends to its database, statement by statement, in Transact-SQL: parsed, never run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import sqlglot
from sqlglot import ErrorLevel, exp

from lucius.buses.memory import MemoryBus
from lucius.ports.observer import Observer
from lucius.runbooks.core.messages import EVENTS_TOPIC, ORCHESTRATOR
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
from lucius.sql.database import Script
from lucius.sql.schema import upgrade
from lucius.sql.sql_server import to_sql_server
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.samples import JOB_TOKENS, ManualClock

T = TypeVar("T")
RUNBOOK = b"""
name: demo
data_source: {type: manual, primary_key: Upn}
init: [{name: check, worker_id: w, function: Check}]
phases:
  - {name: go, offset: T-0, steps: [{name: a, worker_id: w, function: A, params: {Upn: "{{Upn}}"}}]}
"""


class RecordingDatabase(VolatileDatabase):
    def __init__(self) -> None:
        super().__init__()
        self.sent: set[str] = set()

    async def write(self, script: Callable[[], Script[T]]) -> T:
        return await super().write(lambda: self._recorded(script))

    async def read(self, script: Callable[[], Script[T]]) -> T:
        return await super().read(lambda: self._recorded(script))

    async def scan(self, script: Callable[[], Script[T]]) -> T:
        return await super().scan(lambda: self._recorded(script))

    def _recorded(self, script: Callable[[], Script[T]]) -> Script[T]:
        running = script()
        rows: Any = None
        while True:
            try:
                statement = running.send(rows)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            self.sent.add(statement.sql)
            rows = yield statement


async def drive(database: RecordingDatabase, clock: ManualClock) -> None:
    """Publish, make a batch, run its init, and look at everything in every way."""
    bus, limits = MemoryBus(clock), SourceLimits()
    turns = Turns(database, Outbox(database, bus), clock, JOB_TOKENS)
    orchestrator = Orchestrator(turns, bus, Observer(), OrchestratorSettings())
    operations = Operations(turns, limits)
    await Publishing(turns, bus).publish(RUNBOOK, "me")
    batch = await operations.create_batch("demo", b"Upn\nu1\nu2\n", clock.now(), "time", "me")
    assert await Scheduler(turns, Observer(), SchedulerSettings(), "me", {}).tick()
    await orchestrator.handle(await bus.receive([EVENTS_TOPIC], ORCHESTRATOR, 64, 60.0, 0.0))
    await orchestrator.sweep()
    queries = Queries(turns, DeadLetters(turns, bus), limits, {}, ())
    await queries.batches("demo", "init_dispatched", 5, 1_000)
    await queries.batches(None, None, 5, None)
    await queries.batch(batch["batch_id"])
    for status in ("active", "removed", "failed", "all"):
        await queries.members(batch["batch_id"], status, "u1", 5, 0)
        await queries.members(batch["batch_id"], status, None, 5, None)
    await queries.batch_events(batch["batch_id"], 5, 1_000)
    await queries.runbook_events("demo", 5, None)
    await queries.runbook("demo", 1)
    assert [part async for part in queries.export(batch["batch_id"])]
    await operations.remove(batch["batch_id"], ["u1"], "me")
    await operations.cancel(batch["batch_id"], "", "me")


async def test_everything_that_is_sent_has_a_form_for_sql_server(clock: ManualClock) -> None:
    async with RecordingDatabase() as database:
        await upgrade(database)
        database.sent.clear()
        await drive(database, clock)
    assert len(database.sent) > 60
    for sql in sorted(database.sent):
        translated = to_sql_server(sql)
        [tree] = sqlglot.parse(translated, dialect="tsql", error_level=ErrorLevel.RAISE)
        assert tree is not None
        assert tree.find(exp.Command) is None, translated
        assert not re.search(r"\$\d|::|\bLIMIT\b|\bFOR UPDATE\b", translated), translated
