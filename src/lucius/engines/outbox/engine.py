"""The outbox engine: turns on a ledger, a dispatcher where the bus is elsewhere, and one sweeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from msgspec import Struct

from lucius.domain.callbacks import TokenSigner
from lucius.domain.directive import CallbackUrls, build_directive, message_id
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import Callback, Input, Operation
from lucius.domain.job import Job
from lucius.engines.outbox.cache import JobCache
from lucius.engines.outbox.dispatcher import Circuit, Dispatcher
from lucius.engines.outbox.sweeper import SWEEP_MAX, Sweeper
from lucius.engines.outbox.turn import Turns
from lucius.engines.outbox.work import Decider
from lucius.ports.bus import Bus, Message
from lucius.ports.clock import Clock
from lucius.ports.engine import NewJob, Started, Told
from lucius.ports.ledger import Duplicate, Ledger, LedgerUnavailable, Saturated
from lucius.ports.observer import Observer


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
    reconciles: bool = True
    """Whether this process sweeps, takes up unsent rows and repairs drift, beside taking turns."""


class _Fresh:
    """Fresh ids from the clock; claims only while something can be published."""

    def __init__(self, clock: Clock, claim_seconds: Callable[[], float], publishes_inside: bool) -> None:
        self.publishes_inside = publishes_inside
        self.lease_id = clock.lease_id
        self.jitter = clock.jitter
        self._claim_seconds = claim_seconds

    @property
    def claim_seconds(self) -> float:
        return self._claim_seconds()


class OutboxEngine:
    changes_elsewhere_seconds = 0.5

    def __init__(
        self,
        ledger: Ledger,
        bus: Bus,
        clock: Clock,
        signer: TokenSigner,
        urls: CallbackUrls,
        observer: Observer,
        settings: EngineSettings,
        trace: Callable[[Job, int], str | None] = lambda job, index: None,
    ) -> None:
        self._ledger = ledger
        self._bus = bus
        self._clock = clock
        self._signer = signer
        self._urls = urls
        self._observer = observer
        self._settings = settings
        self._trace = trace
        self._watchers: dict[str, dict[asyncio.Event, bool]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._loops: list[asyncio.Task[None]] = []
        self._circuit = Circuit(clock, settings.circuit_open_seconds, observer)
        self._dispatcher = Dispatcher(
            ledger, bus, clock, observer, self._circuit, self._compose, self._tell, settings.publish_timeout_seconds
        )
        self._sweeper = Sweeper(ledger, bus, clock, observer, self._tell)
        fresh = _Fresh(clock, self._claim_seconds, ledger.enlists(bus))
        self._turns = Turns(
            ledger,
            clock,
            Decider(fresh, self._compose, bus.refusal),
            observer,
            JobCache(settings.cache_bytes_max),
            self._dispatcher.add,
            self._changed,
            settings.turn_inputs_max,
            settings.queue_inputs_max,
        )

    async def __aenter__(self) -> OutboxEngine:
        settings = self._settings
        self._tasks = [
            asyncio.create_task(self._turns.run(), name="turns"),
            asyncio.create_task(self._dispatcher.run(), name="dispatcher"),
        ]
        if settings.reconciles:
            self._loops = [
                self._every(settings.sweep_interval, "sweep", self._sweep),
                self._every(settings.outbox_retry_interval, "outbox", self._dispatcher.take_up),
                self._every(settings.upkeep_interval, "bus upkeep", self._bus.upkeep),
                self._every(settings.repair_interval, "repair", self._repair),
            ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop gracefully: finish what was taken, answer who waits, publish what was committed."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        turns, dispatcher = self._tasks
        try:
            async with asyncio.timeout(self._settings.stop_seconds):
                await self._turns.until_idle()
                self._dispatcher.stop()
                await dispatcher
                self._turns.stop()
                await turns
        except TimeoutError:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for events in self._watchers.values():
            for event in events:
                event.set()

    # --- The port ----------------------------------------------------------------------------------------------------

    def submit(self, new: NewJob) -> Awaitable[Started | Duplicate | Saturated]:
        return self._turns.enqueue(new.fact.spec.job_id, new.fact, new=new)

    def tell(self, job_id: str, tenant_id: str | None, fact: Callback | Operation) -> Awaitable[Told | None]:
        return self._turns.enqueue(job_id, fact, tenant_id)

    async def retry_outbox(self) -> int:
        try:
            rows = await self._ledger.undispatched(self._clock.now(), 100_000, ignore_claims=True)
            await self._dispatcher.take_up(ignore_claims=True)
        except LedgerUnavailable as error:
            raise InfrastructureError.unavailable(str(error)) from error
        return len(rows)

    async def wait_for_change(self, job_id: str, timeout_seconds: float, until_ended: bool = False) -> bool:
        event = asyncio.Event()
        watchers = self._watchers.setdefault(job_id, {})
        watchers[event] = until_ended
        try:
            await asyncio.wait_for(event.wait(), timeout_seconds)
            return True
        except TimeoutError:
            return False
        finally:
            del watchers[event]
            if not watchers:
                self._watchers.pop(job_id, None)

    async def health(self) -> dict[str, Any]:
        if any(task.done() for task in self._tasks):
            raise InfrastructureError.unavailable("the engine has stopped")
        ledger = await self._ledger.health()
        return {**ledger, "bus": "out of reach" if self._circuit.is_open else "ok", "engine": "ok"}

    # --- Inside ------------------------------------------------------------------------------------------------------

    def _tell(self, job_id: str, fact: Input) -> asyncio.Future[object]:
        return self._turns.enqueue(job_id, fact)

    def _changed(self, job: Job) -> None:
        for event, until_ended in self._watchers.get(job.spec.job_id, {}).items():
            if job.is_terminal or not until_ended:
                event.set()

    def _claim_seconds(self) -> float:
        return self._settings.claim_seconds if self._circuit.may_try else 0.0

    def _compose(self, job: Job, step_index: int) -> Message:
        body, properties = build_directive(
            job, step_index, self._clock.now(), self._signer, self._urls, self._trace(job, step_index)
        )
        step = job.steps[step_index]
        name = message_id(job.job_id, step.spec.step_id, step.attempt_no)
        return Message(id=name, topic=job.spec.routing.topic, body=body, properties=properties)

    async def _sweep(self) -> None:
        while await self._sweeper.sweep() == SWEEP_MAX:
            pass

    async def _repair(self) -> None:
        repairs = await self._ledger.repair(self._clock.now())
        self._observer.repaired(repairs)

    def _every(self, seconds: float, name: str, act: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
        async def loop() -> None:
            while True:
                try:
                    await act()
                except Exception as error:
                    self._observer.failed(name, error)
                await asyncio.sleep(seconds)

        return asyncio.create_task(loop(), name=name)
