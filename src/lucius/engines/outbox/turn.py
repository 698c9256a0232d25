"""Turns: take every input that has gathered, decide them all, write them in one transaction, then answer.

Durability is bought once per turn, not once per request. A turn that finds a job changed by somebody else decides that
job again on its new state; a turn in which one item cannot be written is replayed item by item.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from lucius.domain.decide import decide
from lucius.domain.directive import message_id
from lucius.domain.draft import Fresh
from lucius.domain.effects import CallWebhook, Decision, Event, PublishDirective, SettleDirective
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import Accepted, DeadlinePassed, Input, PublishFailed
from lucius.domain.job import Job, JobStatus
from lucius.engines.outbox.cache import JobCache
from lucius.ports.bus import DeliveryRef, Message, Refused
from lucius.ports.clock import Clock
from lucius.ports.engine import NewJob, Started, Told
from lucius.ports.ledger import (
    Change,
    CommitOutcome,
    Committed,
    Conflict,
    Ledger,
    LedgerUnavailable,
    Webhook,
)
from lucius.ports.observer import Observer

TURNS_AT_ONCE = 2
"""One is decided while the other is written; more would only make turns smaller, and commits more."""
IDLE_LOOK_SECONDS = 0.01
TRIES_MAX = 10
"""How often an input is decided again because its job had changed in between."""


class Pending:
    """An input on its way through a turn, and who waits for what comes of it."""

    __slots__ = ("answer", "fact", "future", "job_id", "new", "tenant_id", "tries")

    def __init__(
        self,
        job_id: str,
        fact: Input,
        future: asyncio.Future[Any],
        tenant_id: str | None = None,
        new: NewJob | None = None,
    ) -> None:
        self.job_id = job_id
        self.fact = fact
        self.future = future
        self.tenant_id = tenant_id
        self.new = new
        self.answer: Any = None
        self.tries = 0


class _Work:
    """One job in a turn: what it was, what it has become, and everything that goes with the change."""

    __slots__ = (
        "before",
        "events",
        "is_remembered",
        "job",
        "messages",
        "new",
        "pending",
        "publish",
        "settled",
        "webhook",
    )

    def __init__(self, before: Job | None, is_remembered: bool = False) -> None:
        self.before = before
        self.is_remembered = is_remembered
        self.job = before
        self.new: NewJob | None = None
        self.pending: list[Pending] = []
        self.events: list[Event] = []
        self.messages: list[Message] = []
        self.publish: list[int] = []
        self.settled: dict[DeliveryRef, None] = {}
        self.webhook: Webhook | None = None

    def change(self) -> Change:
        assert self.job is not None
        return Change(
            before=self.before,
            after=self.job,
            events=tuple(self.events),
            claim=self.new.claim if self.new else None,
            limits=self.new.limits if self.new else (),
            messages=tuple(self.messages),
            settled=tuple(self.settled),
            webhook=self.webhook,
        )


class _MessageRefused(Exception):
    """The enlisted bus will not take a message."""


class Unpublished:
    """Fresh things as they are, but for a bus that does not take part in the commit."""

    publishes_inside = False

    def __init__(self, fresh: Fresh) -> None:
        self.claim_seconds = fresh.claim_seconds
        self.lease_id = fresh.lease_id
        self.jitter = fresh.jitter


class Effects:
    """What a turn leaves to be done after its commit, for a bus outside the ledger's database."""

    __slots__ = ("publish", "settle")

    def __init__(self) -> None:
        self.publish: list[tuple[Job, int]] = []
        self.settle: list[DeliveryRef] = []


class Turns:
    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        fresh: Fresh,
        observer: Observer,
        cache: JobCache,
        compose: Callable[[Job, int], Message],
        refusal: Callable[[Message], Refused | None],
        after_commit: Callable[[Effects], None],
        on_change: Callable[[Job], None],
        inputs_max: int,
        queue_max: int,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._fresh = fresh
        self._observer = observer
        self._cache = cache
        self._compose = compose
        self._refusal = refusal
        self._after_commit = after_commit
        self._on_change = on_change
        self._inputs_max = inputs_max
        self._queue_max = queue_max
        self._queue: deque[Pending] = deque()
        self._arrived = asyncio.Event()
        self._stopping = False
        self._in_turn: set[str] = set()
        self._running: set[asyncio.Task[None]] = set()

    # --- The way in --------------------------------------------------------------------------------------------------

    def enqueue(
        self, job_id: str, fact: Input, tenant_id: str | None = None, new: NewJob | None = None
    ) -> asyncio.Future[Any]:
        if self._stopping:
            raise InfrastructureError.unavailable("this process is stopping; ask again")
        if len(self._queue) >= self._queue_max:
            raise InfrastructureError.unavailable(f"{self._queue_max} inputs are waiting already; ask again")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(Pending(job_id, fact, future, tenant_id, new))
        self._arrived.set()
        return future

    async def run(self) -> None:
        """Take turns until told to stop, and then until nothing waits any more.

        A turn may begin while the one before it is being written: its jobs are others, for inputs about a job that is
        in a turn wait until that has ended.
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
        """Inputs for the next turn, in order, but for those whose job is in a turn already."""
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
            await self._turn(batch)
        except LedgerUnavailable as error:
            self._fail(batch, InfrastructureError.unavailable(str(error)))
        except Exception as error:
            self._observer.failed("turn", error)
            self._fail(batch, error)
        finally:
            self._in_turn.difference_update(pending.job_id for pending in batch)

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

    # --- One turn ----------------------------------------------------------------------------------------------------

    async def _turn(self, batch: list[Pending]) -> None:
        began = perf_counter()
        works = await self._gather(batch)
        now = self._clock.now()
        # Deadlines are hints: the callbacks of the same turn come first.
        for pending in sorted(batch, key=lambda p: type(p.fact) is DeadlinePassed):
            self._hear(works.get(pending.job_id), pending, now)
        live = [work for work in works.values() if work.pending]
        changed = [work for work in live if work.job is not work.before]
        if changed:
            changes = [work.change() for work in changed]
            outcomes = await self._commit(changes, changed)
            self._conclude(changed, changes, outcomes)
            pairs = zip(changes, outcomes, strict=True)
            written = [change for change, outcome in pairs if isinstance(outcome, Committed)]
            self._observer.turn_done(len(batch), perf_counter() - began, written)
        await self._conclude_unchanged([work for work in live if work.job is work.before])

    def _hear(self, work: _Work | None, pending: Pending, now: int) -> None:
        """Decide one input; what goes wrong with it is its own affair."""
        if work is None or (pending.tenant_id is not None and not _is_tenants(work, pending.tenant_id)):
            _answer(pending, None)
            return
        try:
            self._decide(work, pending, now)
        except Exception as error:
            self._observer.failed(f"deciding {type(pending.fact).__name__} for job {pending.job_id}", error)
            self._fail([pending], error)

    async def _gather(self, batch: Sequence[Pending]) -> dict[str, _Work]:
        """The jobs that the batch is about: from memory where possible, the rest in one read."""
        works: dict[str, _Work] = {}
        missing: list[str] = []
        for pending in batch:
            job_id = pending.job_id
            if job_id in works:
                continue
            if pending.new is not None:
                works[job_id] = _Work(None)
                continue
            job = self._cache.get(job_id)
            if job is None:
                missing.append(job_id)
            else:
                works[job_id] = _Work(job, is_remembered=True)
        if missing:
            loaded = await self._ledger.load(list(dict.fromkeys(missing)))
            works.update({job_id: _Work(job) for job_id, job in loaded.items()})
        return works

    def _decide(self, work: _Work, pending: Pending, now: int) -> None:
        work.new = pending.new or work.new
        decision = decide(work.job, pending.fact, now, self._fresh)
        try:
            self._absorb(work, decision, now)
        except _MessageRefused as refused:
            # The bus will not have the message: make the attempt anew, unpublished, and let its publish fail.
            decision = decide(work.job, pending.fact, now, Unpublished(self._fresh))
            self._absorb(work, decision, now)
            assert work.job is not None
            work.publish.clear()
            step = work.job.current_step
            failed = PublishFailed(step.spec.step_id, step.attempt_no, str(refused))
            self._absorb(work, decide(work.job, failed, now, self._fresh), now)
        job = work.job
        assert job is not None
        if isinstance(pending.fact, Accepted):
            pending.answer = Started(job.job_id, job.status)
        else:
            pending.answer = Told(decision.outcome, job.status, job.status is JobStatus.CANCELLING)
        work.pending.append(pending)

    def _absorb(self, work: _Work, decision: Decision, now: int) -> None:
        job = decision.job
        messages: list[Message] = []
        for effect in decision.effects:
            match effect:
                case PublishDirective(step_index=index):
                    if self._fresh.publishes_inside and job.steps[index].attempt_was_sent:
                        messages.append(self._composed(job, index))
                    else:
                        work.publish.append(index)
                case SettleDirective(step_index=index, attempt_no=attempt_no):
                    work.settled[_delivery_ref(job, index, attempt_no)] = None
                case CallWebhook(url=url):
                    spec = job.spec
                    work.webhook = Webhook(job_id=spec.job_id, url=url, tenant_id=spec.tenant_id, next_at=now)
        work.job = job
        work.events.extend(decision.events)
        work.messages.extend(messages)

    def _composed(self, job: Job, index: int) -> Message:
        """The bus shares the transaction: message, `Published` and the new state are one commit."""
        message = self._compose(job, index)
        refused = self._refusal(message)
        if refused is not None:
            raise _MessageRefused(refused.reason)
        return message

    async def _commit(self, changes: list[Change], works: list[_Work]) -> list[CommitOutcome | Exception]:
        try:
            return list(await self._ledger.commit(changes))
        except LedgerUnavailable:
            raise
        except Exception as error:
            # One of them cannot be written: find out which, and let the others stand.
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
        self, works: Sequence[_Work], changes: Sequence[Change], outcomes: Sequence[CommitOutcome | Exception]
    ) -> None:
        effects = Effects()
        for work, change, outcome in zip(works, changes, outcomes, strict=True):
            job_id = change.after.job_id
            if isinstance(outcome, Committed):
                self._cache.put(replace(change.after, revision=change.after.revision + 1))
                self._answer(work)
                effects.publish.extend((change.after, index) for index in work.publish)
                if not self._fresh.publishes_inside:
                    effects.settle.extend(work.settled)
                self._on_change(change.after)
            elif isinstance(outcome, Conflict):
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

    async def _conclude_unchanged(self, works: Sequence[_Work]) -> None:
        """Answer where nothing is to be written.

        No commit compares revisions there, so what was decided on a remembered job is answered only if the job is still
        that: somebody else, drift repair included, may have moved it on.
        """
        remembered = [work.before.job_id for work in works if work.is_remembered and work.before is not None]
        current = await self._ledger.load(remembered) if remembered else {}
        for work in works:
            if work.is_remembered and work.before is not None:
                job_id = work.before.job_id
                if job_id not in current or current[job_id].revision != work.before.revision:
                    self._cache.drop(job_id)
                    self._decide_again(work)
                    continue
            self._answer(work)

    def _answer(self, work: _Work) -> None:
        for pending in work.pending:
            _answer(pending, pending.answer)

    def _decide_again(self, work: _Work) -> None:
        for pending in reversed(work.pending):
            pending.tries += 1
            if pending.tries >= TRIES_MAX:
                self._fail([pending], InfrastructureError.unavailable("the job kept changing; ask again"))
            else:
                self._queue.appendleft(pending)
        self._arrived.set()


def _answer(pending: Pending, answer: Any) -> None:
    if not pending.future.done():
        pending.future.set_result(answer)


def _is_tenants(work: _Work, tenant_id: str) -> bool:
    return work.job is not None and work.job.spec.tenant_id == tenant_id


def _delivery_ref(job: Job, step_index: int, attempt_no: int) -> DeliveryRef:
    step = job.steps[step_index].spec
    return DeliveryRef(job.spec.routing.topic, step.service, message_id(job.job_id, step.step_id, attempt_no))
