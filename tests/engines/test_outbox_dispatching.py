"""What a turn leaves to do on a bus: directives do not wait for settlements, and settlements wait for directives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.engines.engine_makers import outbox_engine
from tests.engines.test_engine_conformance import kill_engine

from lucius.buses.memory import MemoryBus
from lucius.clocks import SystemClock
from lucius.domain.step import StepStatus
from lucius.engines.outbox.engine import EngineSettings, OutboxEngine
from lucius.engines.outbox.turn import Effects
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.bus import Deferred, DeliveryRef, Message, Refused
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.faults import FaultyBus

MOMENT_SECONDS = 0.1
LONG_SECONDS = 600.0
"""The bus is never given up here."""


class HeldBus(FaultyBus):
    """Publishes, and settles, only while that is allowed."""

    def __init__(self, inside: MemoryBus) -> None:
        super().__init__(inside)
        self.may_publish, self.may_settle = asyncio.Event(), asyncio.Event()
        self.done: list[str] = []

    async def publish(self, messages: Sequence[Message]) -> list[Refused | Deferred | None]:
        await self.may_publish.wait()
        self.done += ["published"] * len(messages)
        return await super().publish(messages)

    async def settle(self, refs: Sequence[DeliveryRef]) -> None:
        await self.may_settle.wait()
        self.done += ["settled"] * len(refs)
        await super().settle(refs)


@pytest.fixture
async def harness() -> AsyncIterator[EngineHarness]:
    clock = SystemClock()
    make = outbox_engine(EngineSettings(publish_timeout_seconds=LONG_SECONDS))
    async with MemoryBus(clock) as bus, EngineHarness(MemoryLedger(), bus, clock, make, kill_engine) as harness:
        yield harness


@pytest.fixture
async def bus(harness: EngineHarness) -> AsyncIterator[HeldBus]:
    assert isinstance(harness.bus, MemoryBus)
    bus = HeldBus(harness.bus)
    await harness.start(bus=bus)
    yield bus
    bus.may_publish.set()
    bus.may_settle.set()


async def test_directive_is_published_while_the_bus_settles_others(harness: EngineHarness, bus: HeldBus) -> None:
    bus.may_publish.set()
    await harness.submit(steps=["ocr"])
    await harness.ack(await harness.take())
    await asyncio.sleep(MOMENT_SECONDS)
    second = await harness.submit(steps=["ocr"])
    assert (await harness.take()).job_id == second
    assert bus.done == ["published", "published"]


async def test_settlement_waits_for_what_was_to_be_published_before_it(harness: EngineHarness, bus: HeldBus) -> None:
    """Its own directive may be among that: settled first, it would be delivered although its job is over."""
    bus.may_settle.set()
    job_id = await harness.submit(steps=["ocr"])
    await harness.until(job_id, StepStatus.DISPATCHING)
    effects = Effects()
    effects.settle.append(DeliveryRef("global-bus-p0", "ocr", "of a job that is over"))
    assert isinstance(harness.engine, OutboxEngine)
    harness.engine._dispatcher.add(effects)
    await asyncio.sleep(MOMENT_SECONDS)
    assert bus.done == []
    bus.may_publish.set()
    await harness.take()
    await asyncio.sleep(MOMENT_SECONDS)
    assert bus.done == ["published", "settled"]
