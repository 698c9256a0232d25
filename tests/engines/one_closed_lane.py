"""One lane takes no directives, for whatever reason: the others go on, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from lucius.domain.job import JobStatus
from lucius.domain.step import StepStatus
from lucius.engines.outbox.engine import EngineSettings
from lucius.ports.observer import Observer
from lucius.testing.engine_fairness import lane_of
from lucius.testing.engine_harness import EngineHarness

CLOSED = "acme"
"""Its lane takes nothing."""
TOPIC = f"global-bus-p{lane_of(CLOSED)}"
OTHERS = [name for name in (f"t{place}" for place in range(40)) if lane_of(name) != lane_of(CLOSED)][:4]
SETTINGS = EngineSettings(
    outbox_retry_interval=0.05, sweep_interval=0.05, claim_seconds=60.0, publish_timeout_seconds=30.0,
    circuit_open_seconds=0.5, upkeep_interval=3_600.0,
)  # fmt: skip


class CircuitWatch(Observer):
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def circuit_changed(self, is_open: bool, reason: str) -> None:
        self.reasons.append(reason)


async def others_go_on(
    harness: EngineHarness,
    watch: CircuitWatch,
    close: Callable[[], Awaitable[None]],
    open_again: Callable[[], Awaitable[None]],
) -> None:
    """The harness makes engines with these settings, and with `watch` as their observer."""
    await harness.start()
    await harness.finish(await harness.submit(steps=["ocr"], tenant_id=CLOSED))
    await harness.until_messages_left(0)
    await close()
    waiting = [await harness.submit(steps=["ocr"], tenant_id=CLOSED) for _ in range(3)]
    await until_deferred(harness, waiting)
    for tenant in OTHERS:
        await harness.finish(await harness.submit(steps=["ocr"], tenant_id=tenant))
    assert watch.reasons == [], "the bus answers"
    for job_id in waiting:
        await harness.until(job_id, StepStatus.DISPATCHING)
    await open_again()
    for _ in waiting:
        work = await harness.take()
        await harness.ack(work)
        await harness.succeed(work)
    for job_id in waiting:
        assert (await harness.until(job_id, JobStatus.SUCCEEDED)).attempts_total == 1
    assert watch.reasons == []


async def until_deferred(harness: EngineHarness, job_ids: Sequence[str]) -> None:
    """Until each was tried and its claim given up."""
    async with asyncio.timeout(30):
        while not set(job_ids) <= set(await harness.ledger.undispatched(harness.clock.now(), 100)):
            await asyncio.sleep(0.01)
