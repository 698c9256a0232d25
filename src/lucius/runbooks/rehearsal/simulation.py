"""The rehearsal: the real scheduler, orchestrator and tables, on a clock that jumps from event to event.

The clock stops when a result, a phase, a poll or the `wake_at` of a step is due. Results close together are handled
together, as by a real orchestrator: `grain_seconds` is the minimum time between two stops.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from lucius.domain.callbacks import CallbackKey
from lucius.domain.time import Instant, after
from lucius.ports.database import Database, Script
from lucius.runbooks.core.approvals import APPROVED, Decision
from lucius.runbooks.core.definition.calendar import Freeze
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.grants import EverythingGranted
from lucius.runbooks.core.job_tokens import JobTokens
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.records import BY_HAND, Batch
from lucius.runbooks.core.source_members import Members
from lucius.runbooks.core.states import Kind
from lucius.runbooks.engine import facts
from lucius.runbooks.engine.batching import add_members, create_batch, start_batch
from lucius.runbooks.engine.detection import to_rows
from lucius.runbooks.engine.outbox import Outbox
from lucius.runbooks.engine.turn import Turn, Turns
from lucius.runbooks.loops.orchestrator import Orchestrator
from lucius.runbooks.loops.scheduler import Scheduler
from lucius.runbooks.loops.settings import OrchestratorSettings, SchedulerSettings
from lucius.runbooks.rehearsal.behaviour import Behaviour
from lucius.runbooks.rehearsal.inside import RehearsalBus, RehearsalFailed, StrictObserver, VirtualClock
from lucius.runbooks.rehearsal.pool import Job, Pool, SimulatedResult
from lucius.runbooks.service.publishing import Publishing
from lucius.runbooks.store import approvals, batches, executions, phases, rehearsals, runbooks
from lucius.runbooks.store.data_tables import open_table
from lucius.runbooks.store.executions import TABLES
from lucius.runbooks.store.rehearsals import SentStep

ACTOR = "rehearsal"
_KEY = CallbackKey("rehearsal", b"not used outside the rehearsal")
RESULTS_MAX = 256
JOBS_MAX = 2_000_000
POLL_GRAINS = 60
"""Polls due within this fraction of their interval are requested together."""
ROUNDS_MAX = 10_000
"""Rounds of messages and jobs at one time: more would be an endless loop."""


class Simulation:
    def __init__(
        self,
        database: Database,
        runbook: Runbook,
        behaviour: Behaviour,
        seed: int,
        begin: Instant,
        grain_seconds: float,
    ) -> None:
        self.clock = VirtualClock(begin)
        self.pool = Pool(behaviour, seed)
        self.moments = 0
        self._database = database
        self._runbook = runbook
        self._grain = max(1, round(grain_seconds * 1000))
        self._bus = RehearsalBus(database)
        self._turns = Turns(database, Outbox(database, self._bus), self.clock, JobTokens((_KEY,)), EverythingGranted())
        observer = StrictObserver()
        self._orchestrator = Orchestrator(self._turns, self._bus, observer, OrchestratorSettings())
        # Without an environment no source has an address, so none can be read.
        self._scheduler = Scheduler(self._turns, observer, SchedulerSettings(), ACTOR, {})
        self._unfinished: set[int] = set()
        self._turns.after = self._committed
        self._polls: list[Instant] = []
        self._polls_known: set[Instant] = set()
        self._output_fields: dict[str, tuple[str, ...]] = {}
        for step in runbook.steps:
            known = self._output_fields.get(step.name, ())
            self._output_fields[step.name] = tuple(dict.fromkeys([*known, *step.output_params.values()]))

    def _committed(self, turn: Turn) -> None:
        self._unfinished |= turn.unfinished

    # --- Preparation ----------------------------------------------------------------------------------------------

    async def prepare(
        self, content: bytes, members: Members, starts: dict[Instant, list[str]], of_files: Sequence[Freeze] = ()
    ) -> None:
        """Publish the runbook and create its batches; then retire it, so that its source is not read."""
        publishing = Publishing(self._turns, self._bus, of_files=of_files)
        await publishing.publish(content, ACTOR)
        for start, keys in starts.items():
            await self._turns.take(partial(self._make, members, start, keys), ACTOR)
        await publishing.retire(self._runbook.name, ACTOR)

    def _make(self, members: Members, start: Instant, keys: Sequence[str], turn: Turn) -> Script[None]:
        row = yield from runbooks.active_by_name(self._runbook.name)
        assert row is not None
        batch = yield from create_batch(turn, row, self._runbook, start, BY_HAND, "time")
        table = yield from open_table(row.id, row.data_table, members.columns)
        yield from table.add(to_rows(members, keys, table.columns), turn.now, BY_HAND)
        yield from add_members(turn, batch, keys, announce=False, by_source=False)
        yield from self._approve(turn, batch)
        yield from start_batch(turn, batch, self._runbook)

    def _approve(self, turn: Turn, batch: Batch) -> Script[None]:
        """Nobody decides in a rehearsal: approvals are taken as given in time."""
        for phase in (yield from phases.of_batch(batch.id)):
            wanted = self._runbook.phase(phase.name).approval
            for number in range(wanted.count if wanted else 0):
                yield from approvals.write(Decision(phase.id, f"{ACTOR}-{number}", APPROVED, None, turn.now))

    # --- Running ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until nothing is left to happen."""
        await self._run_until_idle()
        rounds = 0
        while (moment := await self._next_moment()) is not None:
            rounds = rounds + 1 if moment <= self.clock.now() else 0
            if rounds > ROUNDS_MAX:
                raise RehearsalFailed(f"work due at {utc(moment)} has no effect: please report this runbook")
            self.clock.set(moment)
            self.moments += 1
            await self._process(moment)
            if self.pool.counts["jobs"] > JOBS_MAX:
                raise RehearsalFailed(f"more than {JOBS_MAX} jobs were sent: rehearse fewer members, or fewer polls")

    async def _next_moment(self) -> Instant | None:
        """The next multiple of the grain at which something is due."""
        due = [moment for moment in await self._database.read(_due_moments) if moment is not None]
        due += [] if self.pool.next_at is None else [self.pool.next_at]
        due += self._polls[:1] or ([] if due else await self._times_in_tables())
        if not due:
            return None
        now, first = self.clock.now(), min(due)
        return max(first, min(-(-first // self._grain) * self._grain, after(first, 60.0)), now)

    async def _times_in_tables(self) -> list[Instant]:
        """Nothing is expected. Check the tables for pending work before treating this as the end."""
        for due_at in await self._database.read(rehearsals.next_polls):
            if due_at is not None:
                self._expect_poll(due_at, self._grain)
        ready = await self._ready_batches()
        if ready:
            self._unfinished |= ready
            await self._run_until_idle()
        return [*self._polls[:1], *([] if self.pool.next_at is None else [self.pool.next_at])]

    async def _ready_batches(self) -> set[int]:
        now = self.clock.now()
        return await self._database.read(lambda: executions.ready_batches(now))

    async def _process(self, now: Instant) -> None:
        answers = self.pool.advance(now)
        for start in range(0, len(answers), RESULTS_MAX):
            await self._take_answers(answers[start : start + RESULTS_MAX])
        is_poll_due = False
        while self._polls and self._polls[0] <= now:
            self._polls_known.discard(heapq.heappop(self._polls))
            is_poll_due = True
        phase_at, opens_at, *wakes = await self._database.read(_due_moments)
        if any(wake is not None and wake <= now for wake in wakes):
            while await self._orchestrator.sweep() >= facts.SWEEP_MAX:
                pass
        if opens_at is not None and opens_at <= now:
            self._unfinished |= await self._ready_batches()
        if is_poll_due or (phase_at is not None and phase_at <= now):
            await self._scheduler.tick()
        await self._run_until_idle()

    async def _take_answers(self, answers: Sequence[SimulatedResult]) -> None:
        await self._orchestrator.take_results([answer.result for answer in answers], needs_token=False)
        running: dict[str, list[int]] = {}
        for answer in answers:
            if answer.is_running:
                kind: Any = answer.job.kind
                running.setdefault(TABLES[kind], []).append(answer.job.execution_id)
        for table, ids in running.items():
            for last_at, seconds in await self._database.read(partial(rehearsals.polls_of, table, ids)):
                self._expect_poll(after(last_at, seconds), max(self._grain, seconds * 1000 // POLL_GRAINS))

    def _expect_poll(self, due_at: Instant, grain: int) -> None:
        moment = -(-due_at // grain) * grain
        if moment not in self._polls_known:
            self._polls_known.add(moment)
            heapq.heappush(self._polls, moment)

    async def _run_until_idle(self) -> None:
        """Deliver messages and jobs until nothing is left to do at this time."""
        for _ in range(ROUNDS_MAX):
            if deliveries := self._bus.events():
                await self._orchestrator.handle(deliveries)
            elif self._unfinished:
                batch_ids, self._unfinished = sorted(self._unfinished), set()
                await self._orchestrator.send_ready(batch_ids)
            else:
                self._bus.settled, settled = [], self._bus.settled
                self.pool.withdraw(settled)
                self._bus.jobs, sent = [], self._bus.jobs
                if sent:
                    self.pool.take(await self._jobs(sent), self.clock.now())
                return
        raise RehearsalFailed("endless loop of messages: please report this runbook")

    async def _jobs(self, sent: Sequence[Any]) -> list[Job]:
        bodies = [msgspec.json.decode(message.body) for message in sent]
        ids: dict[str, list[int]] = {}
        for body in bodies:
            kind: Kind = body["correlationData"]["kind"]
            ids.setdefault(TABLES[kind], []).append(body["correlationData"]["stepExecutionId"])
        steps: dict[tuple[str, int], SentStep] = {}
        for table, wanted in ids.items():
            for step in await self._database.read(partial(rehearsals.sent, table, wanted)):
                steps[table, step.id] = step
        return [self._job(body, steps) for body in bodies]

    def _job(self, body: dict[str, Any], steps: dict[tuple[str, int], SentStep]) -> Job:
        kind: Kind = body["correlationData"]["kind"]
        execution_id = body["correlationData"]["stepExecutionId"]
        step = steps[TABLES[kind], execution_id]
        return Job(
            body["jobId"], kind, execution_id, body["workerId"], body["functionName"], self.clock.now(),
            bool(step.is_poll_step), step.poll_count, self._output_fields[step.step_name],
        )  # fmt: skip


def _due_moments() -> Script[list[Instant | None]]:
    """When the next phase is due, when steps that wait may be sent, and the first wake-up in each table."""
    return [(yield from phases.next_due()), (yield from batches.next_wait()), *(yield from rehearsals.next_wakes())]
