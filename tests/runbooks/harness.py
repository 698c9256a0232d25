"""The real scheduler, orchestrator and tables, with a clock that stands still and a worker that does as it is told.

Nothing runs by itself: a test ticks, lets messages be handled, takes jobs off the bus and answers them. `settle` goes
on until nothing is left to do at this moment. Tests read the tables by SQL, in the names of the contract.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from harness_samples import FAILURE, STILL_POLLING, SUCCESS, THROTTLED, WORKER, as_step, csv, failure, runbook, success
from msgspec import Struct

from lucius.buses.sql import JournaledBus, SqlBus
from lucius.ports.bus import Bus, Delivery, DeliveryRef, Message
from lucius.ports.observer import Observer
from lucius.runbooks.core.messages import (
    EVENTS_TOPIC,
    JOBS_TOPIC,
    ORCHESTRATOR,
    RESULTS_TOPIC,
    SUBSCRIPTIONS,
    read_result,
    worker_subscription,
)
from lucius.runbooks.engine.facts import Outcome
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
from lucius.sql.database import Database, Fetch, Run, Script
from lucius.testing.samples import JOB_TOKENS, ManualClock

__all__ = [
    "FAILURE",
    "OPERATOR",
    "STILL_POLLING",
    "SUCCESS",
    "THROTTLED",
    "WORKER",
    "Harness",
    "Job",
    "as_step",
    "csv",
    "failure",
    "open_harness",
    "runbook",
    "success",
]  # fmt: skip

OPERATOR = "olga"
LOCK_SECONDS = 60 * 86_400.0
"""Longer than any test's time: a job that a test leaves unanswered is not delivered again."""
ROUNDS_MAX = 500
SETTINGS = SchedulerSettings(absence_seconds=0.0, limits=SourceLimits(still_seconds=0.0))
"""Files are read as soon as they are written, and who is missing is removed at once."""


class Job(Struct, frozen=True):
    """What a worker reads from `jobs`."""

    body: dict[str, Any]
    properties: Mapping[str, Any]
    message_id: str

    @property
    def id(self) -> str:
        return str(self.body["jobId"])

    @property
    def function(self) -> str:
        return str(self.body["functionName"])

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.body["parameters"])

    @property
    def member(self) -> str:
        """By the tests' convention the member's key travels as the parameter Upn."""
        return str(self.body["parameters"].get("Upn", ""))


Answer = Callable[[Job], dict[str, Any] | None]
"""What the worker says to a job; None: nothing yet."""


class Raising(Observer):
    """Nothing may go wrong unseen: what nobody waits for is gathered, and the stand raises it when it closes."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.answered: list[str] = []
        """Outcomes of results."""
        self.refused: list[tuple[str, str]] = []
        """Topics and codes of messages that are dead letters."""

    def message_refused(self, topic: str, code: str) -> None:
        self.refused.append((topic, code))

    def worker_answered(self, outcome: str) -> None:
        self.answered.append(outcome)

    def failed(self, what: str, error: BaseException) -> None:
        self.failures.append(error)


class Harness:
    def __init__(
        self,
        database: Database,
        bus: Bus,
        clock: ManualClock,
        settings: SchedulerSettings,
        holder: str,
    ) -> None:
        self.database = database
        self.bus = bus
        self.clock = clock
        self.environ: dict[str, str] = {}
        self.observer = Raising()
        self.turns = Turns(database, Outbox(database, bus), clock, JOB_TOKENS)
        self.orchestrator = Orchestrator(self.turns, bus, self.observer, OrchestratorSettings())
        self.scheduler = Scheduler(self.turns, self.observer, settings, holder, self.environ)
        self.publishing = Publishing(self.turns, bus, SourceLimits(), self.environ)
        self.operations = Operations(self.turns, SourceLimits())
        self.dead_letters = DeadLetters(self.turns, bus)
        self.queries = Queries(self.turns, self.dead_letters, SourceLimits(), self.environ, ())
        self.answer: Answer = lambda job: SUCCESS
        self.waiting: dict[str, Job] = {}
        """Jobs that were taken and not answered yet."""
        self.done: list[Job] = []
        """Jobs in the order in which they were taken."""
        self.handled: list[Delivery] = []
        """The messages of the scheduler, as they came."""
        self._numbers = count(1)

    # --- Setting up --------------------------------------------------------------------------------------------------

    async def publish(self, yaml: str, overdue_behavior: str = "rerun", rerun_init: bool = False) -> int:
        said = await self.publishing.publish(yaml.encode(), OPERATOR, overdue_behavior, rerun_init)
        return int(said["version"])

    async def batch(
        self, name: str, members: Sequence[str] = ("a", "b"), starts_in: float = 0, advance: str = "time"
    ) -> int:
        """A batch by hand: one column, `Upn`."""
        start = self.clock.now() + int(starts_in * 1000)
        said = await self.operations.create_batch(name, csv(members), start, advance, OPERATOR)
        return int(said["batch_id"])

    # --- Going on ----------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        assert await self.scheduler.tick()

    async def handle_events(self) -> int:
        """Let the orchestrator take what the scheduler has sent; how much that was."""
        taken = await self.bus.receive([EVENTS_TOPIC], ORCHESTRATOR, 100, 60, 0)
        self.handled += taken
        await self.orchestrator.handle(taken)
        return len(taken)

    async def intercept(self) -> list[dict[str, Any]]:
        """Take what the scheduler has sent off the bus, unhandled; the bodies."""
        taken = await self.bus.receive([EVENTS_TOPIC], ORCHESTRATOR, 100, 60, 0)
        await self.bus.settle([one.ref for one in taken])
        return [json.loads(one.body) for one in taken]

    async def take_jobs(self) -> list[Job]:
        """Jobs that no test has seen yet, of every worker."""
        found = []
        for worker in sorted({depth.subscription for depth in await self.bus.depths() if depth.topic == JOBS_TOPIC}):
            for taken in await self.bus.receive([JOBS_TOPIC], worker, 500, LOCK_SECONDS, 0):
                job = Job(json.loads(taken.body), taken.properties, taken.ref.message_id)
                self.waiting[job.id] = job
                found.append(job)
        self.done += found
        return found

    async def reply(self, job: Job | str, answer: dict[str, Any], **more: Any) -> Outcome:
        """Hand in one result, as a worker over HTTP does."""
        job_id = job if isinstance(job, str) else job.id
        self.waiting.pop(job_id, None)
        results = [read_result({"jobId": job_id, **answer, **more})]
        return (await self.orchestrator.take_results(results, needs_token=False))[0]

    async def reply_on_bus(self, body: dict[str, Any]) -> None:
        """Publish one result on the topic `results` and let the orchestrator's own loop body take it."""
        number = next(self._numbers)
        await self.bus.publish(
            [Message(id=f"result-{number}", topic=RESULTS_TOPIC, body=json.dumps(body).encode(), properties={})]
        )
        self.waiting.pop(str(body.get("jobId")), None)
        await self.orchestrator._take_bus_results()

    async def reply_all(self, function: str, answer: dict[str, Any] | None = None) -> list[Job]:
        """Take jobs, and answer those waiting ones that call this function."""
        await self.take_jobs()
        chosen = [job for job in self.waiting.values() if job.function == function]
        for job in chosen:
            await self.reply(job, SUCCESS if answer is None else answer)
        return chosen

    async def settle(self) -> None:
        """Until nothing is left to be done now: messages, jobs, answers, and what a turn could not send."""
        for _ in range(ROUNDS_MAX):
            moved = await self.handle_events()
            moved += await self.send_rest()
            await self.take_jobs()
            said = [(job, self.answer(job)) for job in list(self.waiting.values())]
            results = [(job, answer) for job, answer in said if answer is not None]
            for job, answer in results:
                await self.reply(job, answer)
            if not moved and not results:
                self.check()
                return
        raise AssertionError(f"still not settled after {ROUNDS_MAX} rounds")

    async def send_rest(self) -> int:
        batch_ids = self.orchestrator.take_unfinished()
        await self.orchestrator.send_ready(batch_ids)
        return len(batch_ids)

    async def step(self, seconds: float = 0.0) -> None:
        """Let time pass, then one round of everybody."""
        self.clock.advance(seconds)
        await self.tick()
        await self.orchestrator.sweep()
        await self.settle()

    async def send(self, body: dict[str, Any]) -> None:
        """Put a message of the contract on the bus, with exactly this body, and let it be handled."""
        number = next(self._numbers)
        kind = body["messageType"]
        content = json.dumps(body).encode()
        properties = {"MessageType": kind, "ContentType": "application/json"}
        message = Message(id=f"by-hand-{number}", topic=EVENTS_TOPIC, body=content, properties=properties)
        assert await self.bus.publish([message]) == [None]
        await self.handle_events()
        self.check()

    async def handle_again(self, body: bytes) -> None:
        """The same message once more, as a bus does that delivers at least once."""
        ref = DeliveryRef(EVENTS_TOPIC, ORCHESTRATOR, f"again-{next(self._numbers)}")
        again = Delivery(ref=ref, body=body, properties={}, delivery_count=2, locked_until=self.clock.now() + 60_000)
        await self.orchestrator.handle([again])
        self.check()

    def check(self) -> None:
        if self.observer.failures:
            raise self.observer.failures[0]

    # --- Looking -----------------------------------------------------------------------------------------------------

    async def rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        def script() -> Script[Sequence[Any]]:
            return (yield Fetch(sql, args))

        return [tuple(row) for row in await self.database.read(script)]

    async def value(self, sql: str, *args: Any) -> Any:
        found = await self.rows(sql, *args)
        assert len(found) == 1, found
        return found[0][0]

    async def run(self, sql: str, *args: Any) -> None:
        def script() -> Script[None]:
            yield Run(sql, [args])

        await self.database.write(script)

    async def steps(self, phase: str | None = None) -> dict[str, str]:
        """`member step` and its status, of the last row of each member; every version's."""
        found = await self.rows(
            "SELECT m.member_key, s.step_name, s.status, p.phase_name FROM step_executions s"
            " JOIN batch_members m ON m.id = s.batch_member_id JOIN phase_executions p ON p.id = s.phase_execution_id"
            " ORDER BY s.id"
        )
        return {f"{row[0]} {row[1]}": row[2] for row in found if phase is None or row[3] == phase}

    async def phases(self) -> dict[str, str]:
        return dict(await self.rows("SELECT phase_name, status FROM phase_executions ORDER BY id"))  # type: ignore[arg-type]

    async def batch_status(self, batch_id: int = 1) -> str:
        return str(await self.value("SELECT status FROM batches WHERE id = $1", batch_id))

    async def init(self) -> list[str]:
        return [row[0] for row in await self.rows("SELECT status FROM init_executions ORDER BY id")]

    async def followups(self) -> dict[str, str]:
        """`kind step`, with the member's key where there is one, and its status."""
        found = await self.rows(
            "SELECT f.kind, m.member_key, f.step_name, f.status FROM followup_executions f"
            " LEFT JOIN batch_members m ON m.id = f.batch_member_id ORDER BY f.id"
        )
        return {" ".join(part for part in row[:3] if part): row[3] for row in found}

    async def events(self, kind: str) -> list[dict[str, Any]]:
        found = await self.rows("SELECT detail FROM runbook_events WHERE kind = $1 ORDER BY id", kind)
        return [json.loads(row[0]) for row in found]

    async def dict_row(self, table: str, row_id: int) -> dict[str, Any]:
        """A row by its columns; only for tests that run on SQLite."""
        names = [row[0] for row in await self.rows("SELECT name FROM pragma_table_info($1)", table)]
        quoted = ", ".join(f'"{name}"' for name in names)
        return dict(
            zip(names, (await self.rows(f"SELECT {quoted} FROM {table} WHERE id = $1", row_id))[0], strict=True)
        )

    def functions(self) -> list[str]:
        """What was called, in order."""
        return [job.function for job in self.done]


@asynccontextmanager
async def open_harness(
    database: Database,
    clock: ManualClock | None = None,
    settings: SchedulerSettings | None = None,
    holder: str = "the stand",
    broker: Bus | None = None,
) -> AsyncIterator[Harness]:
    """On a database at the current schema; with the bus that belongs to it, or another. `holder` names its
    scheduler."""
    ticking = clock or ManualClock()
    own: Bus = SqlBus(database, ticking) if database.is_shared else JournaledBus(database, ticking)
    async with broker or own as bus:
        await bus.declare([*SUBSCRIPTIONS, worker_subscription(WORKER)])
        harness = Harness(database, bus, ticking, settings or SETTINGS, holder)
        yield harness
        harness.check()
