"""Replies that come in one batch from the bus are one turn of the engine, like a batch of callbacks over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.engines.engine_makers import outbox_engine
from tests.engines.test_engine_conformance import kill_engine

from lucius.buses.memory import MemoryBus
from lucius.clocks import SystemClock
from lucius.domain.inputs import Acked
from lucius.domain.step import StepStatus
from lucius.engines.outbox.engine import EngineSettings
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.ledger import Change
from lucius.ports.observer import Observer
from lucius.testing.engine_harness import PATIENCE_SECONDS, EngineHarness
from lucius.testing.reply_harness import ARTIFACTS_BYTES_MAX, SIGNER, reply
from lucius.usecases.complete import Completion
from lucius.usecases.replies import Replies, reply_subscriptions

COUNT = 40


class Turns(Observer):
    def __init__(self) -> None:
        self.inputs: list[int] = []

    def turn_done(self, inputs: int, seconds: float, changes: Sequence[Change]) -> None:
        self.inputs.append(inputs)


def no_terms(tenant_id: str) -> None:
    raise AssertionError(f"nobody names an output of {tenant_id}")


async def test_replies_of_one_batch_are_one_turn() -> None:
    clock, turns = SystemClock(), Turns()
    make = outbox_engine(EngineSettings(), turns)
    async with MemoryBus(clock) as bus, EngineHarness(MemoryLedger(), bus, clock, make, kill_engine) as harness:
        engine = await harness.start()
        await bus.declare(reply_subscriptions())
        tenants = [f"tenant-{place}" for place in range(COUNT)]
        job_ids = [await harness.submit(steps=["ocr"], tenant_id=tenant) for tenant in tenants]
        works = [await harness.take() for _ in tenants]
        for job_id in job_ids:
            await harness.until(job_id, StepStatus.INITIATED)
        sent = [reply(work.body, Acked(*work.about)) for work in works]
        assert len({message.topic for message in sent}) > 1
        assert await bus.publish(sent) == [None] * COUNT
        turns.inputs.clear()
        completion = Completion(engine, SIGNER, clock, Observer(), no_terms, ARTIFACTS_BYTES_MAX)
        async with Replies(bus, harness.ledger, completion, Observer(), ARTIFACTS_BYTES_MAX):
            for job_id in job_ids:
                await harness.until(job_id, StepStatus.PROCESSING)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while any(depth.ready + depth.locked for depth in await bus.depths()):
                    await asyncio.sleep(0.01)
        assert turns.inputs == [COUNT]
