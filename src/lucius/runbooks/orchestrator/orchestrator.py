"""The orchestrator as it runs: takes messages and results, and looks after what is due. Several may run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct

from lucius.ports.bus import Bus, BusUnavailable, Delivery, DeliveryRef
from lucius.ports.observer import Observer
from lucius.runbooks.execution import KINDS, Kind
from lucius.runbooks.messages import (
    BATCH_INIT,
    EVENTS_TOPIC,
    MEMBER_ADDED,
    MEMBER_REMOVED,
    MESSAGE_TYPES,
    ORCHESTRATOR,
    PHASE_DUE,
    POLL_CHECK,
    RESULTS_TOPIC,
    SUBSCRIPTIONS,
    MessageInvalid,
    WorkerResult,
    read_result,
)
from lucius.runbooks.orchestrator import facts, members
from lucius.runbooks.orchestrator.consequences import follow
from lucius.runbooks.orchestrator.facts import Outcome, parse_job_id
from lucius.runbooks.orchestrator.turn import Turn, Turns
from lucius.runbooks.tables.executions import ALL_TABLES
from lucius.sql.database import DatabaseUnavailable, Fetch, Script

_READY_BATCHES = tuple(f"SELECT DISTINCT batch_id FROM {table} WHERE ready = TRUE" for table in ALL_TABLES)


class OrchestratorSettings(Struct, frozen=True, kw_only=True):
    events_max: int = 64
    results_max: int = 256
    lock_seconds: float = 60.0
    wait_seconds: float = 1.0
    sweep_interval: float = 0.5
    retry_seconds: float = 2.0
    """How long a message that could not be handled waits before it is delivered again."""
    stop_seconds: float = 10.0


class Event(Struct, frozen=True):
    """One of the five messages, as far as handlers need it."""

    type: str
    batch_id: int
    subject_id: int = 0
    """The phase, the member or the execution that it is about."""
    kind: Kind = "step"
    poll_count: int = 0


def read_event(content: bytes) -> Event:
    """Raises `MessageInvalid`."""
    try:
        fields = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise MessageInvalid(f"not JSON: {error}") from error
    if not isinstance(fields, dict) or fields.get("messageType") not in MESSAGE_TYPES:
        raise MessageInvalid(f"messageType is one of {', '.join(MESSAGE_TYPES)}")
    subject = {PHASE_DUE: "phaseExecutionId", POLL_CHECK: "stepExecutionId"}.get(fields["messageType"], "batchMemberId")
    numbers = [fields.get("batchId"), fields.get(subject, 0), fields.get("pollCount", 0)]
    kind = fields.get("kind", "step")
    if not all(isinstance(number, int) and 0 <= number < 2**63 for number in numbers) or kind not in KINDS:
        raise MessageInvalid(f"batchId, {subject} and pollCount are whole numbers, kind is one of {', '.join(KINDS)}")
    return Event(fields["messageType"], numbers[0], numbers[1], kind, numbers[2])


def take_event(turn: Turn, event: Event) -> Script[None]:
    """Apply one message to a batch that is locked."""
    batch = turn.batches.get(event.batch_id)
    if batch is None:
        return
    if event.type == BATCH_INIT:
        turn.touch(batch.id).is_init = True
    elif event.type == PHASE_DUE:
        turn.touch(batch.id).phases.add(event.subject_id)
    elif event.type == MEMBER_ADDED:
        yield from members.add_member(turn, batch, event.subject_id)
    elif event.type == MEMBER_REMOVED:
        yield from members.remove_member(turn, batch, event.subject_id)
    else:
        yield from facts.take_poll_check(turn, event.kind, event.subject_id, event.poll_count)


class Orchestrator:
    def __init__(
        self, turns: Turns, bus: Bus, observer: Observer, settings: OrchestratorSettings, consumes: bool = True
    ) -> None:
        """`consumes`: whether it takes messages and looks after what is due, beside what it is handed here."""
        self.turns = turns
        self._bus = bus
        self._observer = observer
        self._settings = settings
        self._consumes = consumes
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._unfinished: set[int] = set()
        self._more = asyncio.Event()
        turns.after = self._committed

    async def __aenter__(self) -> Orchestrator:
        await self._bus.declare(SUBSCRIPTIONS)
        wanted = {"runbook dispatch": self._send_more}
        if self._consumes:
            wanted |= {
                "runbook messages": self._take_events,
                "runbook results": self._take_bus_results,
                "runbook sweep": self._sweep_and_rest,
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
            self._observer.failed("runbook orchestrator's stop", late)

    # --- Facts in ----------------------------------------------------------------------------------------------------

    async def handle(self, deliveries: Sequence[Delivery]) -> None:
        """The five messages: in one turn, or one by one if one of them cannot be handled."""
        events: list[tuple[Event, DeliveryRef]] = []
        for delivery in deliveries:
            try:
                events.append((read_event(delivery.body), delivery.ref))
            except MessageInvalid as error:
                self._observer.failed("runbook message", error)
                await self._bus.dead_letter([delivery.ref], str(error))
        await self._each_or_all(events, self._events_turn)

    async def _events_turn(self, events: Sequence[tuple[Event, DeliveryRef]]) -> None:
        def work(turn: Turn) -> Script[None]:
            yield from turn.lock([event.batch_id for event, _ in events])
            for event, ref in events:
                yield from take_event(turn, event)
                turn.settled.append(ref)
            yield from follow(turn)

        await self.turns.take(work)

    async def take_results(self, results: Sequence[WorkerResult], refs: Sequence[DeliveryRef] = ()) -> list[Outcome]:
        """Results from workers; what came of each. `refs` are messages that are dealt with by this."""

        def work(turn: Turn) -> Script[list[Outcome]]:
            named = [name for result in results if (name := parse_job_id(result.jobId)) is not None]
            yield from turn.lock(sorted((yield from facts.batches_of(named))))
            outcomes = yield from facts.take_results(turn, results)
            turn.settled.extend(refs)
            yield from follow(turn)
            return outcomes

        outcomes = await self.turns.take(work)
        for outcome in outcomes:
            self._observer.worker_answered(outcome)
        return outcomes

    async def workers_of(self, job_ids: Sequence[str]) -> dict[str, str]:
        """The worker that each of these jobs is for; one that no step ever had is left out."""
        return await self.turns.database.read(lambda: facts.workers_of(job_ids))

    async def sweep(self) -> int:
        """Let time pass for whatever is due; how many executions that were."""
        now = self.turns.clock.now()
        due = await self.turns.database.read(lambda: facts.due(now))
        if due:

            def work(turn: Turn) -> Script[None]:
                yield from turn.lock([batch_id for _, _, batch_id in due])
                yield from facts.take_time(turn, [(table, number) for table, number, _ in due])
                yield from follow(turn)

            await self.turns.take(work)
        await self.turns.outbox.empty(now)
        return len(due)

    async def send_ready(self, batch_ids: Sequence[int]) -> None:
        """Send what is ready in these batches, as far as one turn goes."""

        def work(turn: Turn) -> Script[None]:
            yield from turn.lock(batch_ids)
            for batch_id in batch_ids:
                turn.touch(batch_id)
            yield from follow(turn)

        if batch_ids:
            await self.turns.take(work)

    async def resume(self) -> None:
        """Find batches that have something ready which nobody is sending: after a crash, or when a slot is free."""

        def script() -> Script[set[int]]:
            found: set[int] = set()
            for statement in _READY_BATCHES:
                found.update(row[0] for row in (yield Fetch(statement)))
            return found

        self._unfinished |= await self.turns.database.read(script)
        if self._unfinished:
            self._more.set()

    # --- Loops -------------------------------------------------------------------------------------------------------

    def _committed(self, turn: Turn) -> None:
        if turn.unfinished:
            self._unfinished |= turn.unfinished
            self._more.set()
        for status, count in turn.counts.items():
            self._observer.steps_moved(status, count)

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
                await self._bus.dead_letter([delivery.ref], str(error))
        await self._each_or_all(taken, self._results_turn)

    async def _results_turn(self, taken: Sequence[tuple[WorkerResult, DeliveryRef]]) -> None:
        await self.take_results([result for result, _ in taken], [ref for _, ref in taken])

    async def _each_or_all(
        self, taken: Sequence[tuple[Any, DeliveryRef]], act: Callable[[Any], Coroutine[Any, Any, None]]
    ) -> None:
        """All in one turn. If that fails for another reason than the database, each alone: one must not stop others."""
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
                await self._bus.abandon([taken[0][1]], self._settings.retry_seconds)
                return
        for one in taken:
            await self._each_or_all([one], act)

    async def _sweep_and_rest(self) -> None:
        while await self.sweep() >= facts.SWEEP_MAX:
            pass
        await self.resume()
        await asyncio.sleep(self._settings.sweep_interval)

    async def _send_more(self) -> None:
        await self._more.wait()
        self._more.clear()
        batch_ids, self._unfinished = sorted(self._unfinished), set()
        await self.send_ready(batch_ids)

    async def _forever(self, name: str, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self._stopping.is_set():
            try:
                await act()
            except Exception as error:
                self._observer.failed(name, error)
                await asyncio.sleep(self._settings.retry_seconds)
