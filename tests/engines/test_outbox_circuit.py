"""The circuit of the outbox engine: it opens once, tries now and then, closes once, and says so."""

from __future__ import annotations

import asyncio

import pytest

from lucius.buses.memory import MemoryBus
from lucius.clocks import SystemClock
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.job import JobStatus
from lucius.engines.outbox.engine import EngineSettings, OutboxEngine
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.bus import Bus, Message, Refused
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
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

    async def publish(self, messages: list[Message]) -> list[Refused | None]:  # type: ignore[override]
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
        with pytest.raises(NotReady, match="the bus was out of reach"):
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
