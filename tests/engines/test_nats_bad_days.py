"""Jobs over NATS when the broker is killed, or when no consumer is there: nothing is lost, no attempt is used up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.engines.test_engine_conformance import SETTINGS, kill_engine
from tests.long_form import sized
from tests.nats_server import NatsServer

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.clocks import SystemClock
from lucius.domain.attempt import Verdict
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.inputs import Acked, Resulted
from lucius.domain.job import Job, JobStatus
from lucius.domain.routing import LANE_TOPICS
from lucius.engines.outbox.engine import OutboxEngine
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus, BusUnavailable, Delivery
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.engine_harness import QUICK, EngineHarness, Work

OUTAGE_SECONDS = sized(2, 20)
JOBS = sized(60, 2_000)
QUEUED = 2_000
PATIENCE_SECONDS = sized(60, 900)
DAY_SECONDS = 86_400.0


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    """One that a test may kill."""
    server = NatsServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def ledger(sqlite_database: SqliteDatabase) -> AsyncIterator[SqlLedger]:
    async with SqlLedger(sqlite_database) as ledger:
        yield ledger


def make_engine(ledger: Ledger, bus: Bus, clock: Clock) -> OutboxEngine:
    signer = TokenSigner((CallbackKey("k1", b"secret"),))
    urls = CallbackUrls.under("http://127.0.0.1")
    # The cap of tenants would hold most of them back.
    settings = replace(SETTINGS, publish_timeout_seconds=10.0, tenant_unacknowledged_max=QUEUED)
    return OutboxEngine(ledger, bus, clock, signer, urls, Observer(), settings)


class Worker:
    """A service that takes directives in batches, and answers each to the engine."""

    def __init__(self, harness: EngineHarness, bus: NatsBus, service: str, lock_seconds: float) -> None:
        self._harness = harness
        self._bus = bus
        self._service = service
        self._lock_seconds = lock_seconds

    async def run(self) -> None:
        while True:
            try:
                taken = await self._bus.receive(LANE_TOPICS, self._service, 25, self._lock_seconds, 0.5)
                taken = await self._harness.engine.drop_past(taken)
            except BusUnavailable:
                await asyncio.sleep(0.1)
                continue
            await asyncio.gather(*(self._answer(delivery) for delivery in taken))

    async def _answer(self, delivery: Delivery) -> None:
        work = Work(delivery.ref, msgspec.json.decode(delivery.body))
        result = Resulted(*work.about, verdict=Verdict.SUCCEEDED, artifacts=Raw(b"null"))
        for fact in (Acked(*work.about), result):
            assert await self._harness.engine.tell(work.job_id, None, fact) is not None


async def _finished(harness: EngineHarness, job_ids: list[str]) -> list[Job]:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        jobs = list((await harness.ledger.load(job_ids)).values())
        if all(job.is_terminal for job in jobs):
            return jobs
        assert asyncio.get_running_loop().time() < deadline, sum(not job.is_terminal for job in jobs)
        await asyncio.sleep(0.5)


async def test_broker_killed_under_load_loses_no_job_and_uses_up_no_attempt(
    own_server: NatsServer, ledger: SqlLedger
) -> None:
    policy = replace(QUICK, ack_timeout_seconds=9.0, queue_timeout_seconds=DAY_SECONDS)
    clock = SystemClock()
    options = NatsOptions(servers=(own_server.url,))
    async with (
        NatsBus(options, clock) as bus,
        NatsBus(options, clock) as workers_bus,
        EngineHarness(ledger, bus, clock, make_engine, kill_engine) as harness,
    ):
        await harness.start()
        workers = [
            asyncio.create_task(Worker(harness, workers_bus, service, 3.0).run()) for service in ("ocr", "embedding")
        ]
        job_ids = []
        killed_at, back_at = JOBS // 3, 2 * JOBS // 3
        for number in range(JOBS):
            job_ids.append(await harness.submit(steps=["ocr", "embedding"], policy=policy, tenant_id=f"t{number % 8}"))
            if number == killed_at:
                own_server.kill()
            elif killed_at < number <= back_at:
                await asyncio.sleep(OUTAGE_SECONDS / (back_at - killed_at))
                if number == back_at:
                    await asyncio.to_thread(own_server.start)
        jobs = await _finished(harness, job_ids)
        # What could not be settled during the outage is delivered once more, and dropped.
        await harness.until_messages_left(0, PATIENCE_SECONDS)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert {job.status for job in jobs} == {JobStatus.SUCCEEDED}
        assert {step.attempt_no for job in jobs for step in job.steps} == {1}


async def test_consumer_stopped_for_three_ack_timeouts_uses_up_no_attempt(
    nats_options: NatsOptions, ledger: SqlLedger
) -> None:
    ack_timeout_seconds = 3.0
    policy = replace(QUICK, ack_timeout_seconds=ack_timeout_seconds, queue_timeout_seconds=DAY_SECONDS)
    clock = SystemClock()
    async with (
        NatsBus(nats_options, clock) as bus,
        NatsBus(nats_options, clock) as workers_bus,
        EngineHarness(ledger, bus, clock, make_engine, kill_engine) as harness,
    ):
        await harness.start()
        worker = Worker(harness, workers_bus, "ocr", ack_timeout_seconds / 3)
        working = asyncio.create_task(worker.run())
        first = await harness.submit(steps=["ocr"], policy=policy)
        await harness.until(first, JobStatus.SUCCEEDED)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

        submitted = await asyncio.gather(
            *(harness.submit(steps=["ocr"], policy=policy, tenant_id=f"t{number % 16}") for number in range(QUEUED))
        )
        await harness.until_messages_left(QUEUED, PATIENCE_SECONDS)
        await asyncio.sleep(3 * ack_timeout_seconds + 0.5)
        assert await harness.messages_left() == QUEUED
        jobs = await harness.ledger.load(submitted)
        assert {job.current_step.attempt_no for job in jobs.values()} == {1}
        assert "STILL_QUEUED" in await harness.types(submitted[0])

        working = asyncio.create_task(worker.run())
        ended = await _finished(harness, submitted)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert {job.status for job in ended} == {JobStatus.SUCCEEDED}
        assert {job.current_step.attempt_no for job in ended} == {1}
