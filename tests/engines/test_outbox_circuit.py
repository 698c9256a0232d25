"""The circuit of the outbox engine: it opens once, tries now and then, closes once, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from tests.engines import one_closed_lane
from tests.engines.engine_makers import outbox_engine
from tests.engines.test_engine_conformance import kill_engine

from lucius.buses.memory import MemoryBus
from lucius.clocks import SystemClock
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.job import JobStatus
from lucius.domain.step import StepStatus
from lucius.engines.outbox.engine import EngineSettings, OutboxEngine
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.bus import Bus, Deferred, Message, Refused
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine, OutboxRetry
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.ports.readiness import NotReady
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.faults import FaultyBus

SETTINGS = EngineSettings(outbox_retry_interval=0.02, sweep_interval=0.02, claim_seconds=5.0, circuit_open_seconds=0.5)


class Watch(Observer):
    def __init__(self) -> None:
        self.changes: list[bool] = []

    def circuit_changed(self, is_open: bool, reason: str) -> None:
        assert reason
        self.changes.append(is_open)


class CountingBus(FaultyBus):
    tries = 0

    async def publish(self, messages: Sequence[Message]) -> list[Refused | Deferred | None]:
        self.tries += 1
        return await super().publish(messages)


async def dispatcher(engine: Engine) -> str:
    """What its readiness check says."""
    return await next(check.look for check in engine.checks() if check.name == "dispatcher")()


async def test_circuit_opens_and_closes_once_for_one_outage() -> None:
    watch = Watch()

    def make(ledger: Ledger, bus: Bus, clock: Clock) -> OutboxEngine:
        signer = TokenSigner((CallbackKey("k1", b"secret"),))
        return OutboxEngine(ledger, bus, clock, signer, CallbackUrls.under("http://127.0.0.1"), watch, SETTINGS)

    async def kill(engine: Engine) -> None:
        raise NotImplementedError

    clock = SystemClock()
    async with MemoryBus(clock) as inside, EngineHarness(MemoryLedger(), inside, clock, make, kill) as harness:
        bus = CountingBus(inside)
        bus.is_down = True
        engine = await harness.start(bus=bus)
        job_ids = [await harness.submit(steps=["ocr"], key=f"job {place}") for place in range(5)]
        while not watch.changes:
            await asyncio.sleep(0.01)
        with pytest.raises(NotReady, match="a test has made the bus unavailable"):
            await dispatcher(engine)
        tries = bus.tries
        later = [await harness.submit(steps=["ocr"], key=f"later {place}") for place in range(20)]
        assert bus.tries == tries, "while the circuit is open nothing is published"
        await asyncio.sleep(0.7)
        bus.is_down = False
        for _ in range(25):
            await harness.succeed(await harness.take())
        for job_id in (*job_ids, *later):
            job = await harness.until(job_id, JobStatus.SUCCEEDED)
            assert job.attempts_total == 1
        assert watch.changes == [True, False]
        assert await dispatcher(engine) == "publishes"


async def test_closed_topic_leaves_the_circuit_closed_and_is_tried_as_seldom() -> None:
    """Its directives are claimed and given up again each time: that costs the others something."""
    settings = replace(SETTINGS, circuit_open_seconds=60.0)
    watch, clock = one_closed_lane.CircuitWatch(), SystemClock()
    make = outbox_engine(settings, watch)
    async with MemoryBus(clock) as inside, EngineHarness(MemoryLedger(), inside, clock, make, kill_engine) as harness:
        bus = CountingBus(inside)
        await harness.start(bus=bus)
        bus.closed_topics = {one_closed_lane.TOPIC}
        waiting = [await harness.submit(steps=["ocr"], tenant_id=one_closed_lane.CLOSED) for _ in range(3)]
        await until_deferred(harness, waiting)
        for tenant in one_closed_lane.OTHERS:
            await harness.finish(await harness.submit(steps=["ocr"], tenant_id=tenant))
        assert watch.reasons == []
        assert await dispatcher(harness.engine) == "publishes"
        tries = bus.tries
        await asyncio.sleep(20 * settings.outbox_retry_interval)
        assert bus.tries == tries
        bus.closed_topics = set()
        assert await harness.engine.retry_outbox() == OutboxRetry(3)
        for _ in waiting:
            await harness.succeed(await harness.take())
        for job_id in waiting:
            assert (await harness.until(job_id, JobStatus.SUCCEEDED)).attempts_total == 1


async def test_closed_topic_is_tried_again_after_a_while() -> None:
    make = outbox_engine(SETTINGS)
    clock = SystemClock()
    async with MemoryBus(clock) as inside, EngineHarness(MemoryLedger(), inside, clock, make, kill_engine) as harness:
        bus = await harness.start_on_faulty_bus()
        bus.closed_topics = {one_closed_lane.TOPIC}
        waiting = await harness.submit(steps=["ocr"], tenant_id=one_closed_lane.CLOSED)
        await until_deferred(harness, [waiting])
        bus.closed_topics = set()
        assert (await harness.finish(waiting)).attempts_total == 1


@asynccontextmanager
async def engine_on(settings: EngineSettings) -> AsyncIterator[tuple[EngineHarness, FaultyBus]]:
    def make(ledger: Ledger, bus: Bus, clock: Clock) -> OutboxEngine:
        signer = TokenSigner((CallbackKey("k1", b"secret"),))
        return OutboxEngine(ledger, bus, clock, signer, CallbackUrls.under("http://127.0.0.1"), Observer(), settings)

    async def kill(engine: Engine) -> None:
        raise NotImplementedError

    clock = SystemClock()
    async with MemoryBus(clock) as inside, EngineHarness(MemoryLedger(), inside, clock, make, kill) as harness:
        yield harness, await harness.start_on_faulty_bus()


async def until_deferred(harness: EngineHarness, job_ids: list[str]) -> None:
    """Until each was tried and its claim given up."""
    async with asyncio.timeout(20):
        while len(await harness.ledger.undispatched(harness.clock.now(), len(job_ids) + 1)) < len(job_ids):
            await asyncio.sleep(0.01)


async def test_retry_of_the_outbox_takes_every_row_and_counts_exactly() -> None:
    settings = EngineSettings(outbox_retry_interval=3_600.0, circuit_open_seconds=0.01)
    async with engine_on(settings) as (harness, bus):
        bus.is_down = True
        job_ids = [await harness.submit(steps=["ocr"], key=f"job {place}") for place in range(700)]
        await until_deferred(harness, job_ids)
        bus.is_down = False
        await asyncio.sleep(0.02)
        assert await harness.engine.retry_outbox() == OutboxRetry(700)
        for job_id in job_ids:
            await harness.until(job_id, StepStatus.INITIATED)
        assert bus.published == 700
        assert await harness.engine.retry_outbox() == OutboxRetry(0)


async def test_retry_of_the_outbox_says_plainly_that_the_circuit_is_open() -> None:
    async with engine_on(EngineSettings(outbox_retry_interval=3_600.0, circuit_open_seconds=60.0)) as (harness, bus):
        bus.is_down = True
        job_ids = [await harness.submit(steps=["ocr"], key=f"job {place}") for place in range(3)]
        await until_deferred(harness, job_ids)
        bus.is_down = False
        done = await harness.engine.retry_outbox()
        assert (done.retried, done.waiting) == (0, 3)
        assert done.problem is not None
        assert "the circuit is open" in done.problem
        assert "a test has made the bus unavailable" in done.problem
        assert bus.published == 0
