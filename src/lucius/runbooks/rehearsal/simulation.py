"""The rehearsal itself: the real scheduler, orchestrator and tables, on a clock that jumps from moment to moment.

A moment is when an answer is due, a phase, a poll, or the `wake_at` of a step. Answers that come close together are
handed on together, as a real orchestrator takes them: `grain_seconds` is how far apart two moments are at least.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from lucius.domain.time import Instant, after
from lucius.runbooks.definition.model import Runbook
from lucius.runbooks.execution import Kind
from lucius.runbooks.messages import utc
from lucius.runbooks.orchestrator import facts
from lucius.runbooks.orchestrator.orchestrator import Orchestrator, OrchestratorSettings
from lucius.runbooks.orchestrator.turn import Turn, Turns
from lucius.runbooks.publishing import Publishing
from lucius.runbooks.rehearsal.behaviour import Behaviour
from lucius.runbooks.rehearsal.inside import RehearsalBus, RehearsalFailed, StrictObserver, VirtualClock
from lucius.runbooks.rehearsal.pool import Answer, Job, Pool
from lucius.runbooks.scheduler.batching import RUNBOOK, RunbookRow, add_members, create_batch, start_batch
from lucius.runbooks.scheduler.detection import to_rows
from lucius.runbooks.scheduler.scheduler import Scheduler, SchedulerSettings
from lucius.runbooks.sources.rows import Members
from lucius.runbooks.tables.data_tables import BY_HAND, open_table
from lucius.runbooks.tables.executions import ALL_TABLES, TABLES
from lucius.runbooks.tables.outbox import Outbox
from lucius.sql.database import Database, Fetch, Script

ACTOR = "rehearsal"
RESULTS_MAX = 256
JOBS_MAX = 2_000_000
POLL_GRAINS = 60
"""Polls are asked for together where their moments lie within this part of their interval."""
ROUNDS_MAX = 10_000
"""Of messages and jobs at one moment: more would be a circle."""

_ROW = f"{RUNBOOK} WHERE name = $1 AND is_active = TRUE"
_NEXT_PHASE = (
    "SELECT MIN(p.due_at) FROM phase_executions p JOIN batches b ON b.id = p.batch_id"
    " WHERE p.status = 'pending' AND b.status = 'active' AND b.held_at IS NULL"
)
_NEXT_WAKE = tuple(f"SELECT MIN(wake_at) FROM {table} WHERE wake_at IS NOT NULL" for table in ALL_TABLES)
_IDLE_POLL = (
    "status = 'polling' AND in_flight = FALSE AND ready = FALSE AND retry_at IS NULL AND poll_asked <= poll_count"
)
_NEXT_POLL = tuple(
    f"SELECT MIN(last_polled_at + poll_interval_sec * 1000) FROM {table} WHERE {_IDLE_POLL}" for table in ALL_TABLES
)
_POLLS_OF = {
    table: f"SELECT DISTINCT last_polled_at, poll_interval_sec FROM {table} WHERE id = ANY($1::bigint[])"
    " AND last_polled_at IS NOT NULL"
    for table in ALL_TABLES
}
_JOBS = {
    table: f"SELECT id, step_name, is_poll_step, poll_count FROM {table} WHERE id = ANY($1::bigint[])"
    for table in ALL_TABLES
}
_READY = tuple(f"SELECT DISTINCT batch_id FROM {table} WHERE ready = TRUE" for table in ALL_TABLES)


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
        self._turns = Turns(database, Outbox(database, self._bus), self.clock)
        observer = StrictObserver()
        self._orchestrator = Orchestrator(self._turns, self._bus, observer, OrchestratorSettings())
        # Without an environment no source has an address, so that none can be read.
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

    # --- Before it begins --------------------------------------------------------------------------------------------

    async def prepare(self, content: bytes, members: Members, starts: dict[Instant, list[str]]) -> None:
        """Publish the runbook and make its batches; then retire it, so that nobody looks for its source."""
        publishing = Publishing(self._turns, self._bus)
        await publishing.publish(content, ACTOR)
        for start, keys in starts.items():
            await self._turns.take(partial(self._make, members, start, keys), ACTOR)
        await publishing.retire(self._runbook.name, ACTOR)

    def _make(self, members: Members, start: Instant, keys: Sequence[str], turn: Turn) -> Script[None]:
        row = RunbookRow(*(yield Fetch(_ROW, [self._runbook.name]))[0])
        batch = yield from create_batch(turn, row, self._runbook, start, BY_HAND, "time")
        table = yield from open_table(row.id, row.data_table, members.columns)
        yield from table.add(to_rows(members, keys, table.columns), turn.now, BY_HAND)
        yield from add_members(turn, batch, keys, told=False)
        yield from start_batch(turn, batch, self._runbook)

    # --- Moment by moment --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """To the end: until nothing is left that could happen."""
        await self._settle_down()
        rounds = 0
        while (moment := await self._next_moment()) is not None:
            rounds = rounds + 1 if moment <= self.clock.now() else 0
            if rounds > ROUNDS_MAX:
                raise RehearsalFailed(f"nothing comes of what is due at {utc(moment)}: please report this runbook")
            self.clock.set(moment)
            self.moments += 1
            await self._happen(moment)
            if self.pool.counts["jobs"] > JOBS_MAX:
                raise RehearsalFailed(f"more than {JOBS_MAX} jobs were sent: rehearse fewer members, or fewer polls")

    async def _next_moment(self) -> Instant | None:
        """The next whole grain by which something is due."""
        due = [moment for moment in await self._database.read(_due_moments) if moment is not None]
        due += [] if self.pool.next_at is None else [self.pool.next_at]
        due += self._polls[:1] or ([] if due else await self._overlooked())
        if not due:
            return None
        now, first = self.clock.now(), min(due)
        return max(first, min(-(-first // self._grain) * self._grain, after(first, 60.0)), now)

    async def _overlooked(self) -> list[Instant]:
        """Nothing is expected. Before that counts as the end, the tables are asked what they are waiting for."""
        for due_at in await self._database.read(_poll_moments):
            if due_at is not None:
                self._expect_poll(due_at, self._grain)
        ready = await self._database.read(_ready_batches)
        if ready:
            self._unfinished |= ready
            await self._settle_down()
        return [*self._polls[:1], *([] if self.pool.next_at is None else [self.pool.next_at])]

    async def _happen(self, now: Instant) -> None:
        answers = self.pool.advance(now)
        for start in range(0, len(answers), RESULTS_MAX):
            await self._take_answers(answers[start : start + RESULTS_MAX])
        is_poll_due = False
        while self._polls and self._polls[0] <= now:
            self._polls_known.discard(heapq.heappop(self._polls))
            is_poll_due = True
        phase_at, *wakes = await self._database.read(_due_moments)
        if any(wake is not None and wake <= now for wake in wakes):
            while await self._orchestrator.sweep() >= facts.SWEEP_MAX:
                pass
        if is_poll_due or (phase_at is not None and phase_at <= now):
            await self._scheduler.tick()
        await self._settle_down()

    async def _take_answers(self, answers: Sequence[Answer]) -> None:
        await self._orchestrator.take_results([answer.result for answer in answers])
        running: dict[str, list[int]] = {}
        for answer in answers:
            if answer.is_running:
                kind: Any = answer.job.kind
                running.setdefault(TABLES[kind], []).append(answer.job.execution_id)
        for table, ids in running.items():
            for last_at, seconds in await self._database.read(partial(_fetch, _POLLS_OF[table], ids)):
                self._expect_poll(after(last_at, seconds), max(self._grain, seconds * 1000 // POLL_GRAINS))

    def _expect_poll(self, due_at: Instant, grain: int) -> None:
        moment = -(-due_at // grain) * grain
        if moment not in self._polls_known:
            self._polls_known.add(moment)
            heapq.heappush(self._polls, moment)

    async def _settle_down(self) -> None:
        """Hand on every message and job until nobody has anything more to do at this moment."""
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
        raise RehearsalFailed("messages go round in a circle: please report this runbook")

    async def _jobs(self, sent: Sequence[Any]) -> list[Job]:
        bodies = [msgspec.json.decode(message.body) for message in sent]
        ids: dict[str, list[int]] = {}
        for body in bodies:
            kind: Kind = body["correlationData"]["kind"]
            ids.setdefault(TABLES[kind], []).append(body["correlationData"]["stepExecutionId"])
        rows: dict[tuple[str, int], Any] = {}
        for table, wanted in ids.items():
            for row in await self._database.read(partial(_fetch, _JOBS[table], wanted)):
                rows[table, row[0]] = row
        return [self._job(body, rows) for body in bodies]

    def _job(self, body: dict[str, Any], rows: dict[tuple[str, int], Any]) -> Job:
        kind: Kind = body["correlationData"]["kind"]
        execution_id = body["correlationData"]["stepExecutionId"]
        _, step_name, is_poll_step, poll_count = rows[TABLES[kind], execution_id]
        return Job(
            body["jobId"], kind, execution_id, body["workerId"], body["functionName"], self.clock.now(),
            bool(is_poll_step), poll_count, self._output_fields[step_name],
        )  # fmt: skip


def _due_moments() -> Script[list[Instant | None]]:
    """Of the next phase, and of the first step in each table that must wake."""
    return (yield from _firsts((_NEXT_PHASE, *_NEXT_WAKE)))


def _poll_moments() -> Script[list[Instant | None]]:
    return (yield from _firsts(_NEXT_POLL))


def _ready_batches() -> Script[set[int]]:
    found: set[int] = set()
    for statement in _READY:
        found.update(row[0] for row in (yield Fetch(statement)))
    return found


def _firsts(statements: Sequence[str]) -> Script[list[Instant | None]]:
    found = []
    for statement in statements:
        rows = yield Fetch(statement)
        found.append(rows[0][0])
    return found


def _fetch(sql: str, ids: Sequence[int]) -> Script[Sequence[Any]]:
    return (yield Fetch(sql, [list(ids)]))
