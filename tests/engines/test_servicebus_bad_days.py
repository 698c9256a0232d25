"""Jobs over Service Bus when the broker is killed, or when no consumer is there: nothing is lost, no attempt is used
up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from tests.engines.test_engine_conformance import kill_engine
from tests.engines.test_nats_bad_days import Worker, _finished, make_engine
from tests.engines.test_servicebus_conformance import CountedBus
from tests.long_form import sized
from tests.servicebus_server import SDK_LEAVES_SOCKETS, ServerThread, close_broken_sockets

from lucius.clocks import SystemClock
from lucius.domain.job import JobStatus
from lucius.ledgers.sql import SqlLedger
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.engine_harness import QUICK, EngineHarness

pytestmark = SDK_LEAVES_SOCKETS

OUTAGE_SECONDS = sized(2, 20)
JOBS = sized(30, 1_000)
QUEUED = sized(200, 2_000)
PATIENCE_SECONDS = sized(90, 900)
DAY_SECONDS = 86_400.0
SERVICES = ("ocr", "embedding")


@pytest.fixture
async def own_server() -> AsyncIterator[ServerThread]:
    """One that a test may stop."""
    thread = ServerThread()
    yield thread
    await close_broken_sockets(thread.server.port)
    thread.end()


@pytest.fixture
async def ledger(sqlite_database: SqliteDatabase) -> AsyncIterator[SqlLedger]:
    async with SqlLedger(sqlite_database) as ledger:
        yield ledger


async def test_broker_killed_under_load_loses_no_job_and_uses_up_no_attempt(
    own_server: ServerThread, ledger: SqlLedger
) -> None:
    policy = replace(QUICK, ack_timeout_seconds=60.0, queue_timeout_seconds=DAY_SECONDS)
    clock = SystemClock()
    async with (
        CountedBus(own_server, clock, queue_lock_seconds=5.0) as bus,
        EngineHarness(ledger, bus, clock, make_engine, kill_engine, drains_services=SERVICES) as harness,
    ):
        await harness.start()
        workers = [asyncio.create_task(Worker(harness, bus, service, 5.0).run()) for service in SERVICES]  # type: ignore[arg-type]
        job_ids = []
        killed_at, back_at = JOBS // 3, 2 * JOBS // 3
        for number in range(JOBS):
            job_ids.append(await harness.submit(steps=list(SERVICES), policy=policy, tenant_id=f"t{number % 8}"))
            if number == killed_at:
                await asyncio.to_thread(own_server.stop)
            elif killed_at < number <= back_at:
                await asyncio.sleep(OUTAGE_SECONDS / (back_at - killed_at))
                if number == back_at:
                    await asyncio.to_thread(own_server.start)
        jobs = await _finished(harness, job_ids)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        # What could not be settled during the outage is delivered once more, and dropped.
        await harness.until_messages_left(0, PATIENCE_SECONDS)
        assert {job.status for job in jobs} == {JobStatus.SUCCEEDED}
        assert {step.attempt_no for job in jobs for step in job.steps} == {1}


async def test_consumer_stopped_for_three_ack_timeouts_uses_up_no_attempt(
    servicebus_server: ServerThread, ledger: SqlLedger
) -> None:
    ack_timeout_seconds = 3.0
    policy = replace(QUICK, ack_timeout_seconds=ack_timeout_seconds, queue_timeout_seconds=DAY_SECONDS)
    clock = SystemClock()
    async with (
        CountedBus(servicebus_server, clock) as bus,
        EngineHarness(ledger, bus, clock, make_engine, kill_engine) as harness,
    ):
        await harness.start()
        submitted = await asyncio.gather(
            *(harness.submit(steps=["ocr"], policy=policy, tenant_id=f"t{number % 16}") for number in range(QUEUED))
        )
        await harness.until_messages_left(QUEUED, PATIENCE_SECONDS)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "STILL_QUEUED" not in await harness.types(submitted[0]):
                await asyncio.sleep(0.1)
        await asyncio.sleep(2 * ack_timeout_seconds + 0.5)
        assert await harness.messages_left() == QUEUED
        jobs = await harness.ledger.load(submitted)
        assert {job.current_step.attempt_no for job in jobs.values()} == {1}

        working = asyncio.create_task(Worker(harness, bus, "ocr", 60.0).run())  # type: ignore[arg-type]
        ended = await _finished(harness, submitted)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert {job.status for job in ended} == {JobStatus.SUCCEEDED}
        assert {job.current_step.attempt_no for job in ended} == {1}
    await asyncio.to_thread(servicebus_server.forget)
