"""One small run of a runbook with everything in it, told by lives that may end at any point.

What is outside LUCIUS lives on: the clock, the CSV source, and a worker that remembers what it did and what it has to
say. A batch of four goes through init with a poll, a phase with output variables, retries and a rollback, and a phase
with polls; a fifth member joins late, and one leaves while a worker has its job. When that happens depends on what the
worker has done, not on the time, so that a run with many deaths has the same story.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.runbooks.crash.mortal_runbooks import Doom, Killed, MortalDatabase

from lucius.buses.memory import MemoryBus
from lucius.ports.bus import Bus
from lucius.ports.observer import Observer
from lucius.runbooks.core.messages import EVENTS_TOPIC, JOBS_TOPIC, ORCHESTRATOR, SUBSCRIPTIONS, read_result, utc
from lucius.runbooks.engine.outbox import Outbox
from lucius.runbooks.engine.turn import Turns
from lucius.runbooks.loops.orchestrator import Orchestrator
from lucius.runbooks.loops.scheduler import Scheduler
from lucius.runbooks.loops.settings import OrchestratorSettings, SchedulerSettings
from lucius.runbooks.service.publishing import Publishing
from lucius.runbooks.sources.limits import SourceLimits
from lucius.sql.database import Database, Fetch, Script
from lucius.testing.samples import JOB_TOKENS, ManualClock

WORKER = "pool"
SOURCE = "LUCIUS_SOURCE_MOVES"
MINUTE = 60.0
STARTS_IN = 15 * MINUTE
LATE_DONE = ("Copy", "late", "1")
ROLLBACK_DONE = ("Clean", "broken", "1")
AFTER_BARRIER = ("Tell", "ann", "1")
REMOVAL_DONE = ("Gone", "leaver", "1")
QUIET_ROUNDS = 2
"""So long is watched, when all is over, that nothing comes after."""
ROUNDS_MAX = 80
LIVES_MAX = 1_000
LOCK_SECONDS = MINUTE
"""What a process had taken when it died comes again in the next round."""
SETTINGS = SchedulerSettings(
    source_interval=110.0, lease_seconds=50.0, absence_seconds=0.0, limits=SourceLimits(still_seconds=0.0)
)
"""The source is read every second round; a dead leader's lease is over before the next."""
YAML = json.dumps({
    "name": "moves",
    "data_source": {"type": "csv", "connection": SOURCE, "primary_key": "Upn", "batch_time_column": "Date"},
    "init": [
        {"name": "warm", "worker_id": WORKER, "function": "Warm", "params": {"at": "{{_batch_start_time}}"},
         "poll": {"interval": "1m", "timeout": "1h"}},
    ],
    "phases": [
        {"name": "prep", "offset": "T-13m", "steps": [
            {"name": "look", "worker_id": WORKER, "function": "Look", "params": {"Upn": "{{Upn}}"},
             "output_params": {"Guid": "guid"}},
            {"name": "copy", "worker_id": WORKER, "function": "Copy",
             "params": {"Upn": "{{Upn}}", "to": ["{{Guid}}", "x {{Guid}} {{City}}"]},
             "retry": {"max_retries": 1, "interval": "1m"}, "on_failure": "undo"},
        ]},
        {"name": "go", "offset": "T-0", "steps": [
            {"name": "move", "worker_id": WORKER, "function": "Move", "params": {"Upn": "{{Upn}}", "g": "{{Guid}}"},
             "poll": {"interval": "1m", "timeout": "2h"}, "timeout": "2h"},
            {"name": "tell", "worker_id": WORKER, "function": "Tell", "params": {"Upn": "{{Upn}}"}},
        ]},
    ],
    "on_member_removed": [
        {"name": "bye", "worker_id": WORKER, "function": "Bye", "params": {"Upn": "{{Upn}}", "city": "{{City}}"}},
        {"name": "gone", "worker_id": WORKER, "function": "Gone", "params": {"Upn": "{{Upn}}"}},
    ],
    "rollbacks": {"undo": [
        {"name": "back", "worker_id": WORKER, "function": "Back", "params": {"Upn": "{{Upn}}"}},
        {"name": "clean", "worker_id": WORKER, "function": "Clean", "params": {"Upn": "{{Upn}}"}},
    ]},
})  # fmt: skip


class RunOutcome(Struct, frozen=True):
    """Everything that must be the same however often the process died."""

    tables: dict[str, list[tuple[Any, ...]]]
    effects: dict[tuple[str, str, str], int]
    """Function, member and dispatch, and how often that was done in effect."""


class World:
    """What lives on when LUCIUS dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.bus = MemoryBus(self.clock)
        """For those lives whose bus is not in the database."""
        self.began = self.clock.now()
        self.waiting: dict[str, dict[str, Any]] = {}
        """Jobs that the worker has, and whose answers have not been taken yet."""
        self.effects: Counter[tuple[str, str, str]] = Counter()
        self.taken: set[tuple[str, str, str]] = set()
        self.deliveries = 0
        self._done: dict[str, dict[str, Any]] = {}
        """By step, the dispatches that were done: what idempotence by `step_key` rests on."""

    @property
    def csv(self) -> Path:
        return self.folder / "members.csv"

    @property
    def seconds(self) -> float:
        return (self.clock.now() - self.began) / 1000

    @property
    def leaver_has_left(self) -> bool:
        """It leaves while the worker has its job, and everybody else waits for it at the barrier."""
        return ("Move", "ann", "2") in self.effects and ("Move", "leaver", "1") in self.taken

    def pass_time(self) -> None:
        """A minute; or, when nothing more can happen before the batch starts, until then."""
        waits = LATE_DONE in self.effects and self.seconds < STARTS_IN
        self.clock.advance(STARTS_IN - self.seconds if waits else MINUTE)

    def keep_csv(self) -> None:
        """The members as they are at this time; nobody can read half a file."""
        members = ["ann", "bob", "broken"]
        members += ["late"] if ROLLBACK_DONE in self.effects else []
        members += ["leaver"] if not self.leaver_has_left else []
        start = utc(self.began + int(STARTS_IN * 1000))
        rows = "".join(f"{member},{member}-town,{start}\n" for member in members)
        draft = self.csv.with_suffix(".draft")
        draft.write_text(f"Upn,City,Date\n{rows}")
        draft.replace(self.csv)

    def take(self, body: dict[str, Any]) -> None:
        self.deliveries += 1
        self.waiting[body["jobId"]] = body
        self.taken.add(_named(body))

    def answers(self) -> list[dict[str, Any]]:
        """What the worker has to say now; it says it again until somebody has heard it."""
        return [answer for body in self.waiting.values() if (answer := self._answer(body)) is not None]

    def _answer(self, body: dict[str, Any]) -> dict[str, Any] | None:
        named = _named(body)
        if named[:2] == ("Move", "leaver") and AFTER_BARRIER not in self.effects:
            return None  # The others go on though this job is still out, and the removal steps wait for its answer.
        job_id = body["jobId"]
        if job_id not in self._done:
            step_key = job_id.rpartition("-a")[0]
            before = sum(1 for known in self._done if known.rpartition("-a")[0] == step_key)
            self._done[job_id] = {"jobId": job_id, **_outcome(*named[:2], before)}
            self.effects[named] += 1
        return self._done[job_id]


def _named(body: dict[str, Any]) -> tuple[str, str, str]:
    """Function, member and dispatch: what a job is about, whatever its step's number."""
    return body["functionName"], str(body["parameters"].get("Upn", "")), body["jobId"].rpartition("-a")[2]


def _outcome(function: str, member: str, before: int) -> dict[str, Any]:
    """What comes of a function that was called so often before for this step."""
    if function == "Copy" and (member == "broken" or (member == "bob" and before == 0)):
        return {"status": "Failure", "error": {"message": f"boom {before}"}}
    if function in ("Warm", "Move") and before < (1 if member == "ann" else 2):
        return {"status": "Success", "result": {"complete": False}}
    return {"status": "Success", "result": {"guid": f"{member}-guid", "calls": before}}


class _Raising(Observer):
    def __init__(self) -> None:
        self.failures: list[tuple[str, BaseException]] = []

    def failed(self, what: str, error: BaseException) -> None:
        self.failures.append((what, error))


class Life:
    """One process: a scheduler and an orchestrator, on what the ones before it have left."""

    def __init__(self, world: World, database: MortalDatabase, bus: Bus, number: int) -> None:
        self._world = world
        self._bus = bus
        self._database = database
        self._observer = _Raising()
        turns = Turns(database, Outbox(database, bus), world.clock, JOB_TOKENS)
        self._orchestrator = Orchestrator(turns, bus, self._observer, OrchestratorSettings())
        environ = {SOURCE: str(world.csv)}
        self._scheduler = Scheduler(turns, self._observer, SETTINGS, f"life {number}", environ)
        self._publishing = Publishing(turns, bus)

    async def live(self) -> None:
        await self._bus.declare(SUBSCRIPTIONS)
        await self._publishing.declare()
        if not await rows(self._database, "SELECT 1 FROM runbooks"):
            await self._publishing.publish(YAML.encode(), "olga")
        quiet = 0
        for _ in range(ROUNDS_MAX):
            self._world.keep_csv()
            await self._scheduler.tick()
            await self._settle()
            while await self._orchestrator.sweep():
                pass
            await self._settle()
            assert not self._observer.failures, self._observer.failures
            quiet = quiet + 1 if await self._is_over() else 0
            if quiet > QUIET_ROUNDS:
                return
            self._world.pass_time()
        raise AssertionError(f"not over after {ROUNDS_MAX} rounds: {await tables(self._database)}")

    async def _settle(self) -> None:
        """Until there is nothing left to do at this moment."""
        for _ in range(ROUNDS_MAX):
            events = await self._bus.receive([EVENTS_TOPIC], ORCHESTRATOR, 64, LOCK_SECONDS, 0)
            await self._orchestrator.handle(events)
            await self._orchestrator.resume()
            batch_ids = self._orchestrator.take_unfinished()
            await self._orchestrator.send_ready(batch_ids)
            for delivery in await self._bus.receive([JOBS_TOPIC], WORKER, 100, LOCK_SECONDS, 0):
                self._world.take(json.loads(delivery.body))
            said = self._world.answers()
            if said:
                await self._orchestrator.take_results([read_result(one) for one in said], needs_token=False)
                for one in said:
                    del self._world.waiting[one["jobId"]]
            if not events and not batch_ids and not said:
                return
        raise AssertionError("it does not come to rest")

    async def _is_over(self) -> bool:
        started = await rows(self._database, "SELECT 1 FROM batches")
        running = await rows(self._database, "SELECT 1 FROM batches WHERE completed_at IS NULL")
        if not started or running or REMOVAL_DONE not in self._world.effects:
            return False
        for table in ("step_executions", "init_executions", "followup_executions"):
            if await rows(self._database, f"SELECT 1 FROM {table} WHERE completed_at IS NULL OR in_flight = TRUE"):
                return False
        return not await rows(self._database, "SELECT 1 FROM runbook_outbox")


Opening = Callable[[], AbstractAsyncContextManager[Database]]
BusOf = Callable[[MortalDatabase, World, Doom], AbstractAsyncContextManager[Any]]


async def tell(world: World, opening: Opening, bus_of: BusOf, doom: Doom, dies_inside: bool = False) -> RunOutcome:
    """Live, die, and live again until the story is told; then look at what there is."""
    for number in range(LIVES_MAX):
        async with opening() as database:
            mortal = MortalDatabase(database, doom, dies_inside)
            async with bus_of(mortal, world, doom) as bus:
                try:
                    await Life(world, mortal, bus, number).live()
                except Killed:
                    continue
                left = [one for one in await bus.depths() if one.ready or one.locked or one.dead]
                assert not left, f"left on the bus: {left}"
                return RunOutcome(await tables(database), dict(world.effects))
    raise AssertionError(f"it died in {LIVES_MAX} lives")


# --- Looking ---------------------------------------------------------------------------------------------------------

_EXECUTION = (
    "e.step_name, e.step_index, e.status, e.function_name, e.params_json, e.result_json, e.error_message,"
    " e.cancel_cause, e.dispatch_count, e.retries_used, e.poll_count, e.in_flight, e.ready"
)
_TABLES = {
    "batches": "SELECT runbook_name, batch_start_time, status, origin, error_message FROM batches",
    "members": (
        "SELECT m.member_key, b.batch_start_time, m.status, m.failed_at IS NULL, m.removed_at IS NULL,"
        " m.add_dispatched_at IS NULL FROM batch_members m JOIN batches b ON b.id = m.batch_id"
    ),
    "phases": (
        "SELECT phase_name, due_at, runbook_version, status, error_message, member_count, barrier_index"
        " FROM phase_executions"
    ),
    "init": f"SELECT {_EXECUTION} FROM init_executions e",
    "steps": (
        f"SELECT m.member_key, p.phase_name, {_EXECUTION}, e.catching_up FROM step_executions e"
        " JOIN batch_members m ON m.id = e.batch_member_id JOIN phase_executions p ON p.id = e.phase_execution_id"
    ),
    "followups": (
        f"SELECT e.kind, e.round, e.list_name, m.member_key, {_EXECUTION} FROM followup_executions e"
        " JOIN batch_members m ON m.id = e.batch_member_id"
    ),
    "events": (
        "SELECT e.kind, e.actor, m.member_key, e.detail FROM runbook_events e"
        " LEFT JOIN batch_members m ON m.id = e.batch_member_id"
    ),
    "data": 'SELECT _member_key, _is_current, _origin, "Upn", "City" FROM runbook_moves_v1',
}


async def rows(database: Any, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    def script() -> Script[Sequence[Any]]:
        return (yield Fetch(sql, args))

    return [tuple(row) for row in await database.read(script)]


async def tables(database: Any) -> dict[str, list[tuple[Any, ...]]]:
    """What the tables say, without times, ids and how often something was delivered."""
    return {name: sorted(await rows(database, sql), key=repr) for name, sql in _TABLES.items()}
