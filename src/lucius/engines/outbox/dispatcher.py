"""The dispatcher: publishes committed attempts to a bus outside the ledger's database, and watches its availability.

While the bus is unreachable the circuit is open: nothing is published and no attempt is used up. If the process dies
between a commit and its publish, the row is still unsent; once its claim expires, any process takes it up.

A topic that takes nothing, while others do, is no reason to open the circuit: its attempts stay unsent, and are tried
again as seldom as an unreachable bus.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from lucius.domain.inputs import DispatchDue, Input, PublishDeferred, Published, PublishFailed
from lucius.domain.job import Job
from lucius.domain.time import Instant
from lucius.engines.outbox.turn import Effects
from lucius.engines.outbox.withdrawal import Withdrawal
from lucius.engines.outbox.work import Tell, raise_first, tell_all
from lucius.ports.bus import Bus, BusUnavailable, Deferred, DeliveryRef, Message, Refused
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer

BATCH_MAX = 256
"""Directives in one publish."""
TAKE_UP_MAX = 500
"""Unsent rows taken up in one round."""


class Circuit:
    """Open while the bus as a whole is unreachable; after a while one batch may try again."""

    def __init__(self, clock: Clock, open_seconds: float, observer: Observer) -> None:
        self._clock = clock
        self._open_seconds = open_seconds
        self._observer = observer
        self._opened_at: Instant | None = None
        self.reason = ""
        """What the bus said last, while it is open."""

    @property
    def is_open(self) -> bool:
        return self._opened_at is not None

    @property
    def may_try(self) -> bool:
        if self._opened_at is None:
            return True
        return self.has_waited_since(self._opened_at)

    def has_waited_since(self, moment: Instant) -> bool:
        """Whether what did not work then may be tried again."""
        passed = self._clock.now() - moment
        return passed >= self._open_seconds * 1000 or passed < 0

    def failed(self, reason: str) -> None:
        if not self.is_open:
            self._observer.circuit_changed(True, reason)
        self._opened_at = self._clock.now()
        self.reason = reason

    def worked(self) -> None:
        if self.is_open:
            self._opened_at = None
            self._observer.circuit_changed(False, "the bus answers again")


class Dispatcher:
    def __init__(
        self,
        ledger: Ledger,
        bus: Bus,
        clock: Clock,
        observer: Observer,
        circuit: Circuit,
        compose: Callable[[Job, int], Message],
        tell: Tell,
        withdrawal: Withdrawal,
        publish_timeout_seconds: float,
    ) -> None:
        self._ledger = ledger
        self._bus = bus
        self._clock = clock
        self._observer = observer
        self._circuit = circuit
        self._compose = compose
        self._tell = tell
        self._withdrawal = withdrawal
        self._timeout = publish_timeout_seconds
        self._publish: deque[tuple[Job, int]] = deque()
        self._added = self._published = 0
        """How many attempts were ever added, and how many of them were published, or could not be."""
        self._settle: deque[tuple[DeliveryRef, int]] = deque()
        """Each with the number of attempts that were added before it, which are published first: its own may be among
        them."""
        self._may_publish = asyncio.Event()
        self._may_settle = asyncio.Event()
        self._stopping = False
        self._all_published = False
        self._taken_up_at = clock.now()
        self._has_deferred = False
        """Whether a topic took nothing since then."""

    def add(self, effects: Effects) -> None:
        self._publish.extend(effects.publish)
        self._added += len(effects.publish)
        self._settle.extend((ref, self._added) for ref in effects.settle)
        self._may_publish.set()
        self._may_settle.set()

    async def run(self) -> None:
        """Publish and settle what turns have left to do, until stopped and done. Nothing that is to be published waits
        for a settlement: on a broker that takes as long as a publish, and with a flood there is always one."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._settle_all(), name="dispatcher: settling")
            await self._publish_all()
            self._all_published = True
            self._may_settle.set()

    async def _publish_all(self) -> None:
        while self._publish or not self._stopping:
            if not self._publish:
                self._may_publish.clear()
                await self._may_publish.wait()
                continue
            try:
                await self._publish_batch()
            except Exception as error:
                self._observer.failed("dispatch", error)

    async def _settle_all(self) -> None:
        while self._settle or not self._all_published:
            if not self._settle or self._settle[0][1] > self._published:
                self._may_settle.clear()
                await self._may_settle.wait()
                continue
            try:
                await self._settle_batch()
            except Exception as error:
                self._observer.failed("dispatch", error)

    def stop(self) -> None:
        self._stopping = True
        self._may_publish.set()

    async def take_up(self) -> int:
        """Find unsent rows that no process is publishing, and have them published."""
        if not self._circuit.may_try or (self._has_deferred and not self._circuit.has_waited_since(self._taken_up_at)):
            return 0
        self._taken_up_at, self._has_deferred = self._clock.now(), False
        job_ids = await self._ledger.undispatched(self._clock.now(), TAKE_UP_MAX)
        inputs = ((job_id, DispatchDue()) for job_id in dict.fromkeys(job_ids))
        raise_first(await tell_all(self._tell, inputs))
        if job_ids:
            self._observer.swept("undispatched", len(job_ids))
        return len(job_ids)

    async def _publish_batch(self) -> None:
        batch = [self._publish.popleft() for _ in range(min(len(self._publish), BATCH_MAX))]
        facts: list[tuple[str, Input]] = []
        try:
            if not self._circuit.may_try:
                raise BusUnavailable("the circuit is open")
            messages = [self._compose(job, index) for job, index in batch]
            async with asyncio.timeout(self._timeout):
                answers = await self._bus.publish(messages)
        except (BusUnavailable, TimeoutError) as error:
            if self._circuit.may_try:
                self._circuit.failed(str(error) or "the bus did not answer in time")
            facts = [_fact(job, index, Deferred(str(error))) for job, index in batch]
        else:
            self._circuit.worked()
            facts = [_fact(job, index, answer) for (job, index), answer in zip(batch, answers, strict=True)]
            self._dispatched([one for one, answer in zip(batch, answers, strict=True) if answer is None])
            self._has_deferred |= any(isinstance(answer, Deferred) for answer in answers)
        finally:
            self._published += len(batch)
            self._may_settle.set()
        told = await tell_all(self._tell, facts)
        for (job_id, _), answer in zip(facts, told, strict=False):
            if not isinstance(answer, BaseException):
                # Some may have been cancelled while their directive was on its way to the bus.
                await self._withdrawal.follow_up(job_id, answer)
        raise_first(told)

    def _dispatched(self, taken: Sequence[tuple[Job, int]]) -> None:
        if taken:
            oldest = min(job.steps[index].updated_at for job, index in taken)
            self._observer.dispatched(len(taken), max(0, self._clock.now() - oldest) / 1000)

    async def _settle_batch(self) -> None:
        refs: list[DeliveryRef] = []
        while self._settle and self._settle[0][1] <= self._published and len(refs) < BATCH_MAX:
            refs.append(self._settle.popleft()[0])
        try:
            async with asyncio.timeout(self._timeout):
                await self._bus.settle(refs)
        except (BusUnavailable, TimeoutError) as error:
            # Harmless: the message is delivered once more, and its callbacks are answered as duplicates.
            self._circuit.failed(str(error) or "the bus did not answer in time")


def _fact(job: Job, index: int, answer: Refused | Deferred | None) -> tuple[str, Input]:
    """What the bus's answer means for a job."""
    step = job.steps[index]
    about = step.spec.step_id, step.attempt_no
    match answer:
        case None:
            return job.job_id, Published(*about)
        case Deferred():
            return job.job_id, PublishDeferred(*about)
        case Refused(reason):
            return job.job_id, PublishFailed(*about, reason)
