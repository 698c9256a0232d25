"""The running orchestrator: consumes messages and results, and sweeps for due work. Several may run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import msgspec

from lucius.ports.bus import Bus, BusUnavailable, Delivery, DeliveryRef
from lucius.ports.database import DatabaseUnavailable, Script
from lucius.ports.observer import Observer
from lucius.ports.readiness import NotReady
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.messages import (
    EVENTS_TOPIC,
    ORCHESTRATOR,
    RESULTS_TOPIC,
    SUBSCRIPTIONS,
    Event,
    MessageInvalid,
    WorkerResult,
    parse_job_id,
    read_event,
    read_result,
    worker_subscription,
)
from lucius.runbooks.engine import facts
from lucius.runbooks.engine.consequences import apply_consequences
from lucius.runbooks.engine.events import take_event
from lucius.runbooks.engine.facts import Outcome
from lucius.runbooks.engine.turn import Turn, Turns
from lucius.runbooks.loops.settings import OrchestratorSettings
from lucius.runbooks.loops.sweeper import Sweeper
from lucius.runbooks.store import batches, executions
from lucius.runbooks.store.definitions import RunbookMissing


class Orchestrator(Sweeper):
    def __init__(
        self, turns: Turns, bus: Bus, observer: Observer, settings: OrchestratorSettings, consumes: bool = True
    ) -> None:
        """`consumes`: whether it also consumes messages and sweeps, beyond serving direct calls."""
        super().__init__(turns, observer, settings)
        self._bus = bus
        self._consumes = consumes
        self._loops: list[asyncio.Task[None]] = []
        self._failures: dict[str, str] = {}
        """Error of each loop whose last round failed."""
        self._declared: set[tuple[str, int]] = set()
        """Runbooks and versions whose workers have queues."""
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Orchestrator:
        await self._bus.declare(SUBSCRIPTIONS)
        wanted = {"runbook dispatch": self._send_more}
        if self._consumes:
            wanted |= {
                "runbook messages": self._take_events,
                "runbook results": self._take_bus_results,
                "runbook sweep": self._sweep_and_sleep,
                "runbook repair": self._repair_and_sleep,
            }
        self._loops = [asyncio.create_task(self._forever(name, act), name=name) for name, act in wanted.items()]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._more.set()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        try:
            await asyncio.wait_for(self.turns.until_idle(), self._settings.stop_seconds)
        except TimeoutError as late:
            self._observer.failed("runbook orchestrator shutdown", late)

    async def health(self) -> str:
        """The names of the running loops; raises `NotReady` if a loop has stopped or its last round failed."""
        stopped = {loop.get_name(): "the loop has stopped" for loop in self._loops if loop.done()}
        failed = self._failures | stopped
        if failed:
            raise NotReady("; ".join(f"{name}: {reason}" for name, reason in failed.items()))
        return ", ".join(loop.get_name() for loop in self._loops)

    # --- Inputs ------------------------------------------------------------------------------------------------------

    async def handle(self, deliveries: Sequence[Delivery]) -> None:
        """Handle event messages: in one turn, or one by one if one of them fails."""
        events: list[tuple[Event, DeliveryRef]] = []
        for delivery in deliveries:
            try:
                events.append((read_event(delivery.body), delivery.ref))
            except MessageInvalid as error:
                self._observer.failed("runbook message", error)
                await self._refuse(delivery.ref, error)
        await self._declare_workers([event for event, _ in events])
        await self._each_or_all(events, self._events_turn)

    async def _declare_workers(self, events: Sequence[Event]) -> None:
        """Create the queues of runbooks that another scheduler has published; LUCIUS's own declares them itself."""
        if not self.turns.database.is_shared:
            return
        unnamed = [event.batch_id for event in events if event.runbook is None or event.version is None]
        found = await self.turns.database.read(lambda: batches.by_ids(unnamed)) if unnamed else {}
        wanted = {(batch.runbook_name, batch.version) for batch in found.values()}
        wanted |= {(event.runbook, event.version) for event in events if event.runbook and event.version}
        for name, version in sorted(wanted - self._declared):
            try:
                runbook = await self.turns.database.read(partial(self.turns.definitions.get, name, version))
            except RunbookMissing:
                continue  # Handling the message says so.
            await self._bus.declare([worker_subscription(one) for one in sorted({s.worker_id for s in runbook.steps})])
            self._declared.add((name, version))

    async def _events_turn(self, events: Sequence[tuple[Event, DeliveryRef]]) -> None:
        def work(turn: Turn) -> Script[None]:
            yield from turn.lock([event.batch_id for event, _ in events])
            for event, ref in events:
                yield from take_event(turn, event)
                turn.settled.append(ref)
            yield from apply_consequences(turn)

        await self.turns.take(work)

    async def take_results(
        self, results: Sequence[WorkerResult], refs: Sequence[DeliveryRef] = (), *, needs_token: bool
    ) -> list[Outcome]:
        """Apply results from workers and return the outcome of each. `refs` are the messages this settles.
        `needs_token`: whether a result without its job's token is refused; a wrong token always is."""

        def work(turn: Turn) -> Script[list[Outcome]]:
            named = [name for result in results if (name := parse_job_id(result.jobId)) is not None]
            yield from turn.lock(sorted((yield from executions.batches_of(named))))
            outcomes = yield from facts.take_results(turn, results, needs_token)
            turn.settled.extend(refs)
            yield from apply_consequences(turn)
            return outcomes

        outcomes = await self.turns.take(work)
        for outcome in outcomes:
            self._observer.worker_answered(outcome)
        return outcomes

    async def executions_of(self, job_ids: Sequence[str]) -> dict[str, Execution]:
        """The execution of each of these jobs; unknown jobs are left out."""
        return await self.turns.database.read(lambda: facts.executions_of(job_ids))

    # --- Loops -------------------------------------------------------------------------------------------------------

    async def _take_events(self) -> None:
        settings = self._settings
        deliveries = await self._bus.receive(
            [EVENTS_TOPIC], ORCHESTRATOR, settings.events_max, settings.lock_seconds, settings.wait_seconds
        )
        if deliveries:
            await self.handle(deliveries)

    async def _take_bus_results(self) -> None:
        settings = self._settings
        deliveries = await self._bus.receive(
            [RESULTS_TOPIC], ORCHESTRATOR, settings.results_max, settings.lock_seconds, settings.wait_seconds
        )
        taken: list[tuple[WorkerResult, DeliveryRef]] = []
        for delivery in deliveries:
            try:
                taken.append((read_result(msgspec.json.decode(delivery.body)), delivery.ref))
            except (MessageInvalid, msgspec.DecodeError) as error:
                self._observer.failed("runbook result", error)
                await self._refuse(delivery.ref, error)
        await self._each_or_all(taken, self._results_turn)

    async def _results_turn(self, taken: Sequence[tuple[WorkerResult, DeliveryRef]]) -> None:
        # The bus controls who may publish on it, and workers on the bus need not send tokens.
        await self.take_results([result for result, _ in taken], [ref for _, ref in taken], needs_token=False)

    async def _each_or_all(
        self, taken: Sequence[tuple[Any, DeliveryRef]], act: Callable[[Any], Coroutine[Any, Any, None]]
    ) -> None:
        """Handle all in one turn. If that fails and the infrastructure is available, handle each in its own turn."""
        if not taken:
            return
        try:
            await act(taken)
            return
        except (DatabaseUnavailable, BusUnavailable):
            raise
        except Exception as error:
            if len(taken) == 1:
                self._observer.failed("runbook message", error)
                if isinstance(error, MessageInvalid):  # Handling it again would not help.
                    await self._refuse(taken[0][1], error)
                    return
                await self._bus.abandon([taken[0][1]], self._settings.retry_seconds)
                return
        for one in taken:
            await self._each_or_all([one], act)

    async def _refuse(self, ref: DeliveryRef, error: Exception) -> None:
        await self._bus.dead_letter([ref], str(error))
        self._observer.message_refused(ref.topic, "MALFORMED")

    async def _sweep_and_sleep(self) -> None:
        while await self.sweep() >= facts.SWEEP_MAX:
            pass
        await self.resume()
        await asyncio.sleep(self._settings.sweep_interval)

    async def _repair_and_sleep(self) -> None:
        await self.recover_lost_messages()
        await self.count_anew()
        await asyncio.sleep(self._settings.repair_interval)

    async def _forever(self, name: str, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self._stopping.is_set():
            try:
                await act()
                self._failures.pop(name, None)
                self._observer.loop_worked(name)
            except Exception as error:
                self._failures[name] = str(error) or type(error).__name__
                self._observer.loop_failed(name, error)
                await asyncio.sleep(self._settings.retry_seconds)
