"""Turns: take all waiting inputs, decide them, write them in one transaction, then answer.

A turn is one commit, however many requests it contains. A turn that finds a job changed by another process decides that
job again on its new state; a turn in which one item cannot be written is repeated item by item.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import DeadlinePassed, Input
from lucius.domain.job import OUTBOX, Job
from lucius.engines.outbox.cache import JobCache
from lucius.engines.outbox.late_turns import ANSWER_SECONDS, LateTurns
from lucius.engines.outbox.work import Decider, Pending, Work
from lucius.ports.bus import DeliveryRef
from lucius.ports.clock import Clock
from lucius.ports.engine import NewJob
from lucius.ports.ledger import (
    Change,
    CommitOutcome,
    Committed,
    Conflict,
    Ledger,
    LedgerUnavailable,
)
from lucius.ports.observer import Observer

TURNS_AT_ONCE = 2
"""One is decided while the other is written; more would only mean smaller turns and more commits."""
IDLE_LOOK_SECONDS = 0.01
TRIES_MAX = 10
"""How often an input is decided again because its job has changed meanwhile."""


class Effects:
    """What a turn leaves to do after its commit, for a bus outside the ledger's database."""

    __slots__ = ("publish", "settle")

    def __init__(self) -> None:
        self.publish: list[tuple[Job, int]] = []
        self.settle: list[DeliveryRef] = []


class Turns:
    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        decider: Decider,
        observer: Observer,
        cache: JobCache,
        after_commit: Callable[[Effects], None],
        on_change: Callable[[Job], None],
        inputs_max: int,
        queue_max: int,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._decider = decider
        self._observer = observer
        self._cache = cache
        self._after_commit = after_commit
        self._on_change = on_change
        self._inputs_max = inputs_max
        self._queue_max = queue_max
        self._queue: deque[Pending] = deque()
        self._arrived = asyncio.Event()
        self._stopping = False
        self._in_turn: set[str] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._late = LateTurns(TURNS_AT_ONCE, self._answer_late)

    # --- Accepting ---------------------------------------------------------------------------------------------------

    def enqueue(
        self, job_id: str, fact: Input, tenant_id: str | None = None, new: NewJob | None = None
    ) -> asyncio.Future[Any]:
        if self._stopping:
            raise InfrastructureError.unavailable("this process is stopping; ask again")
        if len(self._queue) >= self._queue_max:
            raise InfrastructureError.unavailable(f"{self._queue_max} inputs are waiting already; ask again")
        if self._late.keeps_waiting(job_id):
            raise _unanswered()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(Pending(job_id, fact, future, tenant_id, new))
        self._arrived.set()
        return future

    async def run(self) -> None:
        """Run turns until stopped, and then until nothing waits any more.

        A turn may begin while the previous one is being written: it has other jobs, because inputs about a job that is
        in a turn wait until that turn ends.
        """
        while self._queue or self._running or not self._stopping:
            batch = self._take() if len(self._running) < TURNS_AT_ONCE else []
            if not batch:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            turn = asyncio.create_task(self._guarded_turn(batch))
            self._running.add(turn)
            turn.add_done_callback(self._ended)

    def _ended(self, turn: asyncio.Task[None]) -> None:
        self._running.discard(turn)
        self._arrived.set()

    def _take(self) -> list[Pending]:
        """Inputs for the next turn, in order, without those whose job is in a turn already."""
        batch: list[Pending] = []
        held: deque[Pending] = deque()
        while self._queue and len(batch) < self._inputs_max:
            pending = self._queue.popleft()
            if pending.job_id in self._in_turn:
                held.append(pending)
            else:
                batch.append(pending)
        held.extend(self._queue)
        self._queue = held
        self._in_turn.update(pending.job_id for pending in batch)
        return batch

    async def _guarded_turn(self, batch: list[Pending]) -> None:
        try:
            with self._late.watched(batch):
                await self._turn(batch)
        except LedgerUnavailable as error:
            self._fail(batch, InfrastructureError.unavailable(str(error)))
        except Exception as error:
            self._observer.failed("turn", error)
            self._fail(batch, error)
        finally:
            self._in_turn.difference_update(pending.job_id for pending in batch)

    def _answer_late(self, batch: Sequence[Pending]) -> None:
        behind = [pending for pending in self._queue if self._late.keeps_waiting(pending.job_id)]
        self._queue = deque(pending for pending in self._queue if pending not in behind)
        self._fail([*batch, *behind], _unanswered())

    async def until_idle(self) -> None:
        while self._queue or self._running:
            await asyncio.wait({*self._running, asyncio.create_task(asyncio.sleep(IDLE_LOOK_SECONDS))})

    def stop(self) -> None:
        self._stopping = True
        self._arrived.set()

    @staticmethod
    def _fail(batch: Sequence[Pending], error: Exception) -> None:
        for pending in batch:
            if not pending.future.done():
                pending.future.set_exception(error)
                pending.future.exception()  # Its caller may have gone away; asyncio need not log that.

    # --- One turn ----------------------------------------------------------------------------------------------------

    async def _turn(self, batch: list[Pending]) -> None:
        began = perf_counter()
        works = await self._gather(batch)
        now = self._clock.now()
        # Deadlines are hints: the callbacks of the same turn come first.
        for pending in sorted(batch, key=lambda p: type(p.fact) is DeadlinePassed):
            self._apply_input(works.get(pending.job_id), pending, now)
        live = [work for work in works.values() if work.pending]
        changed = [work for work in live if work.job is not work.before]
        if changed:
            settles_inside = self._decider.publishes_inside
            changes = [work.change(settles_inside) for work in changed]
            outcomes = await self._commit(changes, changed)
            self._conclude(changed, changes, outcomes)
            pairs = zip(changes, outcomes, strict=True)
            written = [change for change, outcome in pairs if isinstance(outcome, Committed)]
            self._observer.turn_done(len(batch), perf_counter() - began, written)
        await self._conclude_unchanged([work for work in live if work.job is work.before])

    def _apply_input(self, work: Work | None, pending: Pending, now: int) -> None:
        """Decide one input; a failure affects only that input."""
        if work is None or (pending.tenant_id is not None and not _is_tenants(work, pending.tenant_id)):
            _answer(pending, None)
            return
        if work.job is not None and work.job.engine != OUTBOX:
            detail = f"job {pending.job_id} is driven by the engine {work.job.engine}, which this process does not run"
            self._fail([pending], InfrastructureError.unavailable(f"{detail}: set LUCIUS_ENGINE={work.job.engine}"))
            return
        try:
            self._decider.decide(work, pending, now)
        except Exception as error:
            self._observer.failed(f"deciding {type(pending.fact).__name__} for job {pending.job_id}", error)
            self._fail([pending], error)

    async def _gather(self, batch: Sequence[Pending]) -> dict[str, Work]:
        """The jobs of the batch: from the cache if possible, the rest in one read."""
        works: dict[str, Work] = {}
        missing: list[str] = []
        for pending in batch:
            job_id = pending.job_id
            if job_id in works:
                continue
            if pending.new is not None:
                works[job_id] = Work(None)
                continue
            job = self._cache.get(job_id)
            if job is None:
                missing.append(job_id)
            else:
                works[job_id] = Work(job, is_remembered=True)
        if missing:
            loaded = await self._ledger.load(list(dict.fromkeys(missing)))
            works.update({job_id: Work(job) for job_id, job in loaded.items()})
        return works

    async def _commit(self, changes: list[Change], works: list[Work]) -> list[CommitOutcome | Exception]:
        try:
            return list(await self._ledger.commit(changes))
        except LedgerUnavailable:
            raise
        except Exception as error:
            # One of them cannot be written: find out which, and write the others.
            self._observer.failed("turn, now written item by item", error)
            return [await self._commit_one(change) for change in changes]

    async def _commit_one(self, change: Change) -> CommitOutcome | Exception:
        try:
            return (await self._ledger.commit([change]))[0]
        except LedgerUnavailable as error:
            return InfrastructureError.unavailable(str(error))
        except Exception as error:
            self._observer.failed(f"job {change.after.job_id}", error)
            return error

    def _conclude(
        self, works: Sequence[Work], changes: Sequence[Change], outcomes: Sequence[CommitOutcome | Exception]
    ) -> None:
        effects = Effects()
        settles_inside = self._decider.publishes_inside
        for work, change, outcome in zip(works, changes, outcomes, strict=True):
            job, job_id = change.after, change.after.spec.job_id
            if isinstance(outcome, Committed):
                self._cache.put(replace(job, revision=job.revision + 1))
                self._answer(work)
                effects.publish += [(job, index) for index in work.publish]
                if not settles_inside:
                    effects.settle += work.settled
                self._decider.committed(job)
                self._on_change(job)
                continue
            self._decider.not_committed(job_id)
            if isinstance(outcome, Conflict):
                self._cache.drop(job_id)
                self._decide_again(work)
            elif isinstance(outcome, Exception):
                self._cache.drop(job_id)
                self._fail(work.pending, outcome)
            else:
                for pending in work.pending:
                    pending.answer = outcome
                self._answer(work)
        if effects.publish or effects.settle:
            self._after_commit(effects)

    async def _conclude_unchanged(self, works: Sequence[Work]) -> None:
        """Answer inputs that write nothing.

        No commit compares revisions here, so a decision on a cached job counts only if the job is still the same:
        another process, or drift repair, may have changed it.
        """
        effects = Effects()
        remembered = [work.before.job_id for work in works if work.is_remembered and work.before is not None]
        current = await self._ledger.load(remembered) if remembered else {}
        for work in works:
            if work.is_remembered and work.before is not None:
                job_id = work.before.job_id
                if job_id not in current or current[job_id].revision != work.before.revision:
                    self._cache.drop(job_id)
                    self._decide_again(work)
                    continue
            if not self._decider.publishes_inside:
                # A repeated callback shows that its directive was delivered again: settling it may have failed.
                effects.settle.extend(work.settled)
            self._answer(work)
        if effects.settle:
            self._after_commit(effects)

    def _answer(self, work: Work) -> None:
        for pending in work.pending:
            _answer(pending, pending.answer)

    def _decide_again(self, work: Work) -> None:
        for pending in reversed(work.pending):
            pending.tries += 1
            if pending.tries >= TRIES_MAX:
                self._fail([pending], InfrastructureError.unavailable("the job kept changing; ask again"))
            else:
                self._queue.appendleft(pending)
        self._arrived.set()


def _unanswered() -> InfrastructureError:
    return InfrastructureError.unavailable(
        f"the ledger has not answered for {ANSWER_SECONDS:g} s, and it is not known what it has written; ask again"
    )


def _answer(pending: Pending, answer: Any) -> None:
    if not pending.future.done():
        pending.future.set_result(answer)


def _is_tenants(work: Work, tenant_id: str) -> bool:
    return work.job is not None and work.job.spec.tenant_id == tenant_id
