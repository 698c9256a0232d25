"""The outbox engine: turns on a ledger, a dispatcher if the bus is not in its database, and one sweeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from msgspec import Struct

from lucius.clocks import SetBack
from lucius.domain.callbacks import TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.effects import Outcome
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import Callback, CancelAsked, DirectiveDied, DispatchDue, Input, Operation
from lucius.domain.job import OUTBOX, Job, JobSpec
from lucius.domain.step import StepSpec
from lucius.engines.dead_directives import DeadDirectives
from lucius.engines.directives import Trace, composer, drop_past, undelivered
from lucius.engines.job_watchers import JobWatchers
from lucius.engines.loops import every
from lucius.engines.outbox.cache import JobCache
from lucius.engines.outbox.dispatcher import Circuit, Dispatcher
from lucius.engines.outbox.sweeper import SWEEP_MAX, Sweeper
from lucius.engines.outbox.turn import Turns
from lucius.engines.outbox.withdrawal import Withdrawal
from lucius.engines.outbox.work import Decider, raise_first, tell_all
from lucius.engines.tenant_cap import LOOP, TenantCap
from lucius.ports.bus import Bus, Delivery
from lucius.ports.clock import Clock
from lucius.ports.engine import CallbackReply, NewJob, OutboxRetry, Started
from lucius.ports.ledger import Duplicate, Ledger, LedgerUnavailable, Saturated
from lucius.ports.observer import Observer
from lucius.ports.readiness import Check, NotReady
from lucius.sql.wakeups import Wakeups


class EngineSettings(Struct, frozen=True, kw_only=True):
    outbox_retry_interval: float = 1.0
    sweep_interval: float = 0.25
    repair_interval: float = 60.0
    upkeep_interval: float = 5.0
    turn_inputs_max: int = 512
    queue_inputs_max: int = 20_000
    claim_seconds: float = 30.0
    publish_timeout_seconds: float = 10.0
    circuit_open_seconds: float = 5.0
    cache_bytes_max: int = 67_108_864
    stop_seconds: float = 10.0
    tenant_unacknowledged_max: int = 16
    """Unacknowledged directives of one tenant for one service on one lane; only on a bus on which tenants do not take
    turns."""
    reconciles: bool = True
    """Whether this process sweeps, takes up unsent rows and repairs drift, besides running turns."""


class _Fresh:
    """New ids from the clock; claims only while something can be published."""

    def __init__(
        self, clock: Clock, claim_seconds: Callable[[], float], publishes_inside: bool, cap: TenantCap | None
    ) -> None:
        self.publishes_inside = publishes_inside
        self.holds_back = _never if cap is None else cap.holds_back
        self.lease_id = clock.lease_id
        self.jitter = clock.jitter
        self._claim_seconds = claim_seconds

    @property
    def claim_seconds(self) -> float:
        return self._claim_seconds()


def _never(spec: JobSpec, step: StepSpec) -> bool:
    return False


CHANGES_ELSEWHERE_SECONDS = 0.5
"""How often whoever waits for a job looks for changes by other processes, if these cannot wake it."""


class OutboxEngine:
    def __init__(
        self,
        ledger: Ledger,
        bus: Bus,
        clock: Clock,
        signer: TokenSigner,
        urls: CallbackUrls,
        observer: Observer,
        settings: EngineSettings,
        trace: Trace = lambda job, index: None,
        wakeups: Wakeups | None = None,
    ) -> None:
        self._ledger = ledger
        self._bus = bus
        self._clock = clock
        self._observer = observer
        self._settings = settings
        self._compose = composer(clock, signer, urls, trace)
        self._watchers = JobWatchers(wakeups)
        self._tasks: list[asyncio.Task[None]] = []
        self._loops: list[asyncio.Task[None]] = []
        self._set_back = SetBack(at_first=False)  # Repair runs at the start anyway.
        self._circuit = Circuit(clock, settings.circuit_open_seconds, observer)
        self._withdrawal = Withdrawal(ledger, bus, observer, self._tell, settings.publish_timeout_seconds)
        self._cancels: set[asyncio.Task[CallbackReply | None]] = set()
        self._dispatcher = Dispatcher(
            ledger, bus, clock, observer, self._circuit, self._compose, self._tell, self._withdrawal,
            settings.publish_timeout_seconds,
        )  # fmt: skip
        self._sweeper = Sweeper(ledger, bus, clock, observer, self._tell)
        self._dead = DeadDirectives(bus, self._died, observer)
        self._cap: TenantCap | None = None
        if not bus.takes_turns:
            maximum, look_seconds = settings.tenant_unacknowledged_max, settings.outbox_retry_interval
            self._cap = TenantCap(ledger, OUTBOX, maximum, look_seconds)
        id_source = _Fresh(clock, self._claim_seconds, ledger.enlists(bus), self._cap)
        self._turns = Turns(
            ledger,
            clock,
            Decider(id_source, self._compose, bus.refusal, self._cap),
            observer,
            JobCache(settings.cache_bytes_max),
            self._dispatcher.add,
            self._watchers.notify,
            settings.turn_inputs_max,
            settings.queue_inputs_max,
        )

    async def __aenter__(self) -> OutboxEngine:
        settings = self._settings
        self._watchers.listen()
        self._tasks = [
            asyncio.create_task(self._turns.run(), name="turns"),
            asyncio.create_task(self._dispatcher.run(), name="dispatcher"),
        ]
        if self._cap is not None:
            await self._cap.open(self._observer)
            releasing = self._cap.run(self._release, self._observer, lambda: self._circuit.may_try)
            self._loops.append(asyncio.create_task(releasing, name=LOOP))
        if settings.reconciles:
            self._loops += [
                every(settings.sweep_interval, "sweep", self._sweep, self._observer),
                every(settings.outbox_retry_interval, "outbox", self._dispatcher.take_up, self._observer),
                every(settings.outbox_retry_interval, "dead directives", self._dead.look, self._observer),
                every(settings.upkeep_interval, "bus upkeep", self._bus.upkeep, self._observer),
                every(settings.repair_interval, "repair", self._repair, self._observer),
            ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop gracefully: finish accepted inputs, answer waiting callers, publish what was committed."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        turns, dispatcher = self._tasks
        try:
            async with asyncio.timeout(self._settings.stop_seconds):
                await asyncio.gather(*self._cancels, return_exceptions=True)
                await self._turns.until_idle()
                self._dispatcher.stop()
                await dispatcher
                self._turns.stop()
                await turns
        except TimeoutError:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._watchers.release_all()

    # --- The port ----------------------------------------------------------------------------------------------------

    def submit(self, new: NewJob) -> Awaitable[Started | Duplicate | Saturated]:
        return self._turns.enqueue(new.fact.spec.job_id, new.fact, new=new)

    def tell(self, job_id: str, tenant_id: str | None, fact: Callback | Operation) -> Awaitable[CallbackReply | None]:
        answer = self._turns.enqueue(job_id, fact, tenant_id)
        return self._cancelled(job_id, answer) if isinstance(fact, CancelAsked) else answer

    async def newest(self, job: Job) -> Job:
        return job  # This engine decides in the ledger.

    async def drop_past(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        try:
            return await drop_past(self._ledger, self._bus, deliveries, self._observer)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error

    async def retry_outbox(self) -> OutboxRetry:
        is_away = not self._circuit.may_try
        retried = waiting = 0
        try:
            async for job_ids in undelivered(self._ledger, OUTBOX):
                if is_away:
                    waiting += len(job_ids)
                    continue
                replies = await tell_all(self._tell, ((job_id, DispatchDue(force=True)) for job_id in job_ids))
                raise_first(replies)
                retried += sum(isinstance(one, CallbackReply) and one.outcome is Outcome.APPLIED for one in replies)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        if not is_away:
            return OutboxRetry(retried)
        seconds = self._settings.circuit_open_seconds
        return OutboxRetry(
            0,
            waiting,
            f"the circuit is open, so nothing was published: {self._circuit.reason}. The bus is tried again every"
            f" {seconds:g} s, and everything that waits is published as soon as it takes messages",
        )

    def wait_for_change(self, job_id: str, timeout_seconds: float, until_ended: bool = False) -> asyncio.Future[bool]:
        return self._watchers.wait(job_id, timeout_seconds, until_ended)

    @property
    def changes_elsewhere_seconds(self) -> float:
        return self._watchers.look_seconds(CHANGES_ELSEWHERE_SECONDS)

    def checks(self) -> list[Check]:
        return [
            Check(name="outbox", look=self._look_at_tasks),
            Check(name="dispatcher", look=self._look_at_circuit, is_vital=False),
        ]

    # --- Inside ------------------------------------------------------------------------------------------------------

    async def _look_at_tasks(self) -> str:
        stopped = [task.get_name() for task in self._tasks if task.done()]
        if stopped:
            raise NotReady(f"stopped: {', '.join(stopped)}")
        return "takes turns"

    async def _look_at_circuit(self) -> str:
        if self._circuit.is_open:
            raise NotReady(f"the circuit is open, and the bus is tried again soon: {self._circuit.reason}")
        return "publishes"

    def _cancelled(self, job_id: str, answer: asyncio.Future[CallbackReply | None]) -> Awaitable[CallbackReply | None]:
        """The answer once the directive is withdrawn; this continues even if the caller goes away."""

        async def follow_up() -> CallbackReply | None:
            return await self._withdrawal.follow_up(job_id, await answer)

        task = asyncio.create_task(follow_up(), name=f"cancel {job_id}")
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)
        return asyncio.shield(task)

    def _tell(self, job_id: str, fact: Input) -> asyncio.Future[CallbackReply | None]:
        return self._turns.enqueue(job_id, fact)

    async def _died(self, job_id: str, fact: DirectiveDied) -> None:
        job = (await self._ledger.load([job_id])).get(job_id)
        if job is not None and job.engine == OUTBOX:
            await self._tell(job_id, fact)

    async def _release(self, job_ids: list[str]) -> None:
        raise_first(await tell_all(self._tell, ((job_id, DispatchDue()) for job_id in job_ids)))

    def _claim_seconds(self) -> float:
        return self._settings.claim_seconds if self._circuit.may_try else 0.0

    async def _sweep(self) -> None:
        if self._set_back.noticed(self._clock.now()):
            await self._repair()
        while await self._sweeper.sweep() == SWEEP_MAX:
            pass

    async def _repair(self) -> None:
        repairs = await self._ledger.repair(self._clock.now(), self._settings.claim_seconds)
        self._observer.repaired(repairs)
