"""A test harness for engines: the engine over its ledger and bus, a worker's calls, and ways to inspect jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from lucius.domain.attempt import Failure, Verdict
from lucius.domain.effects import Event, Outcome
from lucius.domain.inputs import (
    Acked,
    Callback,
    CancelAsked,
    ForceCancelAsked,
    HeartbeatSeen,
    PauseAsked,
    Resulted,
    ResumeAsked,
)
from lucius.domain.job import Job, JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.routing import LANE_TOPICS
from lucius.domain.step import StepStatus
from lucius.ports.bus import Bus, Delivery, DeliveryRef, Subscription
from lucius.ports.clock import Clock
from lucius.ports.engine import CallbackReply, Engine, NewJob, Started
from lucius.ports.ledger import Ledger
from lucius.testing.faults import FaultyBus, FaultyLedger
from lucius.testing.invariants import check_ledger
from lucius.testing.samples import STEP_IDS, new_job

PATIENCE_SECONDS = 15.0
"""How long a test waits for something that must happen."""
QUIET_SECONDS = 0.15
"""How long a test watches for something that must not happen."""

QUICK = Policy(
    max_attempts=3,
    ack_timeout_seconds=60.0,
    queue_timeout_seconds=120.0,
    lease_seconds=60.0,
    max_step_seconds=120.0,
    dispatch_backoff_seconds=(0.02,),
    ack_backoff_seconds=(0.02,),
    execution_backoff_seconds=(0.02,),
)
"""Retries at once, never times out: a test shortens the times that it is about."""


class Work(Struct, frozen=True):
    """A directive that a worker has."""

    ref: DeliveryRef
    body: dict[str, Any]

    @property
    def job_id(self) -> str:
        return str(self.body["jobId"])

    @property
    def about(self) -> tuple[str, int, str]:
        return self.body["stepId"], self.body["attempt_no"], self.body["lease_id"]


def read_work(delivery: Delivery) -> Work:
    return Work(delivery.ref, msgspec.json.decode(delivery.body))


MakeEngine = Callable[[Ledger, Bus, Clock], Engine]


class EngineHarness:
    def __init__(
        self,
        ledger: Ledger,
        bus: Bus,
        clock: Clock,
        make: MakeEngine,
        kill: Callable[[Engine], Awaitable[None]],
        answers_at_once: bool = True,
        counts_are_exact: bool = True,
        drains_services: Sequence[str] = (),
        withdraws: bool = True,
    ) -> None:
        """`answers_at_once`: whether the engine answers a callback with its outcome, or only that it was received.
        `drains_services`: on a bus that settles a message which nobody has received when it comes up for delivery,
        the services that have to ask for work before the directives of the past are gone. `withdraws`: whether the bus
        takes back a directive that nobody has taken."""
        self.ledger = ledger
        self.bus = bus
        self.clock = clock
        self._make = make
        self._kill = kill
        self.answers_at_once = answers_at_once
        self._counts_are_exact = counts_are_exact
        self._drains_services = drains_services
        self.withdraws = withdraws
        self._engines: list[Engine] = []

    async def __aenter__(self) -> EngineHarness:
        await self.bus.declare(
            [
                Subscription(topic=topic, name=service, where={"service": service})
                for topic in LANE_TOPICS
                for service in STEP_IDS
            ]
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for engine in list(self._engines):
            await self.stop(engine)
        if kind is None:
            await check_ledger(self.ledger, counts_are_exact=self._counts_are_exact)

    # --- Engines -----------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine started last."""
        return self._engines[-1]

    async def start(self, *, bus: Bus | None = None, ledger: Ledger | None = None) -> Engine:
        engine = self._make(ledger or self.ledger, bus or self.bus, self.clock)
        await engine.__aenter__()
        self._engines.append(engine)
        return engine

    async def start_on_faulty_bus(self) -> FaultyBus:
        bus = FaultyBus(self.bus)
        await self.start(bus=bus)
        return bus

    async def start_on_faulty_ledger(self) -> FaultyLedger:
        ledger = FaultyLedger(self.ledger)
        await self.start(ledger=ledger)
        return ledger

    async def stop(self, engine: Engine) -> None:
        self._engines.remove(engine)
        await engine.__aexit__(None, None, None)

    async def kill(self, engine: Engine) -> None:
        """End an engine as `kill -9` would: nothing is finished or answered."""
        self._engines.remove(engine)
        await self._kill(engine)

    @property
    def cancel_policy(self) -> Policy:
        """Of jobs that a test cancels: where nothing can be withdrawn, they end with their ack timeout."""
        return QUICK if self.withdraws else replace(QUICK, ack_timeout_seconds=3.0)

    # --- A client ----------------------------------------------------------------------------------------------------

    def new(self, **wishes: Any) -> NewJob:
        wishes.setdefault("policy", QUICK)
        return new_job(self.clock, **wishes)

    async def submit(self, **wishes: Any) -> str:
        answer = await self.engine.submit(self.new(**wishes))
        assert isinstance(answer, Started), answer
        return answer.job_id

    async def cancel(self, job_id: str) -> CallbackReply:
        return await self._reply(job_id, CancelAsked("operator"))

    async def force_cancel(self, job_id: str) -> CallbackReply:
        return await self._reply(job_id, ForceCancelAsked("operator", "it hangs"))

    async def pause(self, job_id: str) -> CallbackReply:
        return await self._reply(job_id, PauseAsked("operator"))

    async def resume(self, job_id: str) -> CallbackReply:
        return await self._reply(job_id, ResumeAsked("operator"))

    async def _reply(self, job_id: str, fact: Any, engine: Engine | None = None) -> CallbackReply:
        reply = await (engine or self.engine).tell(job_id, None, fact)
        assert reply is not None, f"there is no job {job_id}"
        return reply

    # --- A worker ----------------------------------------------------------------------------------------------------

    async def take(self, service: str = "ocr", lock_seconds: float = 60.0) -> Work:
        """The next directive for a service; fails if there is none."""
        taken = await self.bus.receive(LANE_TOPICS, service, 1, lock_seconds, PATIENCE_SECONDS)
        assert len(taken) == 1, f"no directive for {service}"
        return read_work(taken[0])

    async def receive(self, service: str = "ocr") -> Sequence[Delivery]:
        """Whatever waits for a service, or comes within a moment."""
        return await self.bus.receive(LANE_TOPICS, service, 10, 60.0, QUIET_SECONDS)

    async def finds_nothing(self, service: str = "ocr") -> bool:
        return not await self.bus.receive(LANE_TOPICS, service, 1, 60.0, QUIET_SECONDS)

    async def _call_back(self, work: Work, fact: Callback, engine: Engine | None = None) -> CallbackReply:
        return await self._reply(work.job_id, fact, engine)

    async def ack(self, work: Work, engine: Engine | None = None) -> CallbackReply:
        return await self._call_back(work, Acked(*work.about), engine)

    async def heartbeat(self, work: Work, progress: float | None = None, engine: Engine | None = None) -> CallbackReply:
        return await self._call_back(work, HeartbeatSeen(*work.about, progress=progress), engine)

    async def succeed(self, work: Work, artifacts: Any = None, engine: Engine | None = None) -> CallbackReply:
        raw = Raw(msgspec.json.encode(artifacts))
        return await self._call_back(work, Resulted(*work.about, verdict=Verdict.SUCCEEDED, artifacts=raw), engine)

    async def fail(self, work: Work, **fields: Any) -> CallbackReply:
        fields.setdefault("error", Failure("BROKEN", "it broke"))
        return await self._call_back(work, Resulted(*work.about, verdict=Verdict.FAILED, **fields))

    async def finish(self, job_id: str) -> Job:
        """Complete all remaining steps, one at a time."""
        job = await self.job(job_id)
        for step in job.steps[job.current_index :]:
            work = await self.take(step.spec.service)
            assert work.job_id == job_id
            await self.ack(work)
            await self.succeed(work)
        return await self.until(job_id, JobStatus.SUCCEEDED)

    # --- Inspecting --------------------------------------------------------------------------------------------------

    def expect(self, reply: CallbackReply, outcome: Outcome) -> None:
        assert reply.outcome is outcome or not self.answers_at_once, reply

    async def job(self, job_id: str) -> Job:
        return (await self.ledger.load([job_id]))[job_id]

    async def until(self, job_id: str, wanted: JobStatus | StepStatus | Callable[[Job], bool]) -> Job:
        """Wait until the job or its current step has this status in the ledger, or the condition holds."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            job = await self.job(job_id)
            if isinstance(wanted, JobStatus):
                is_so = job.status is wanted
            elif isinstance(wanted, StepStatus):
                is_so = job.current_step.status is wanted
            else:
                is_so = wanted(job)
            if is_so:
                return job
            assert asyncio.get_running_loop().time() < deadline, f"still {job.status}, {job.current_step}"
            await asyncio.sleep(0.01)

    async def until_attempt(self, job_id: str, attempt_no: int) -> Job:
        return await self.until(job_id, lambda job: job.current_step.attempt_no >= attempt_no)

    async def scopes_in_use(self) -> set[str]:
        """The scopes with jobs in flight. Where counts follow the jobs, it waits a while for none to be left."""
        deadline = asyncio.get_running_loop().time() + (0.0 if self._counts_are_exact else PATIENCE_SECONDS)
        while True:
            scopes = {scope for scope, jobs in (await self.ledger.inflight()).items() if jobs}
            if not scopes or asyncio.get_running_loop().time() >= deadline:
                return scopes
            await asyncio.sleep(0.02)

    async def messages_left(self) -> int:
        """The number of directives on the bus, locked or not."""
        return sum(depth.ready + depth.locked for depth in await self.bus.depths())

    async def until_messages_left(self, count: int, seconds_max: float = PATIENCE_SECONDS) -> None:
        """A bus outside the ledger's database settles a moment after the commit."""
        deadline = asyncio.get_running_loop().time() + seconds_max
        while (left := await self.messages_left()) != count:
            assert asyncio.get_running_loop().time() < deadline, f"{left} messages are left, not {count}"
            if left > count:
                await self._drain()
            await asyncio.sleep(0.01)

    async def _drain(self) -> None:
        """Ask for work as services do, and give back what is still wanted."""
        for service in self._drains_services:
            taken = await self.bus.receive(LANE_TOPICS, service, 16, 60.0, 0.0)
            wanted = await self.engine.drop_past(taken) if self._engines else taken
            await self.bus.abandon([delivery.ref for delivery in wanted])

    async def trail(self, job_id: str) -> list[Event]:
        return await self.ledger.events(job_id, 0, 10_000)

    async def types(self, job_id: str) -> list[str]:
        return [event.type for event in await self.trail(job_id)]
