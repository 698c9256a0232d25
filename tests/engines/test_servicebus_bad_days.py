"""Jobs over Service Bus when the broker is away, or when no consumer is there: nothing is lost, no attempt is used
up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from tests.engines.broker_bad_days import SERVICES, leave_directives_queued, lose_broker_under_load
from tests.engines.engine_makers import outbox_engine
from tests.engines.test_engine_conformance import SETTINGS, kill_engine
from tests.engines.test_servicebus_conformance import CountedBus
from tests.long_form import sized
from tests.servicebus_server import SDK_LEAVES_SOCKETS, ServerThread, close_broken_sockets

from lucius.clocks import SystemClock
from lucius.ledgers.sql import SqlLedger
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.engine_harness import EngineHarness

pytestmark = SDK_LEAVES_SOCKETS

QUEUED = sized(200, 2_000)
PATIENCE_SECONDS = sized(90, 300)
# The cap of tenants would hold most of them back.
MAKE = outbox_engine(
    replace(SETTINGS, publish_timeout_seconds=10.0, outbox_retry_interval=0.5, tenant_unacknowledged_max=QUEUED)
)


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


async def test_broker_away_under_load_loses_no_job_and_uses_up_no_attempt(
    own_server: ServerThread, ledger: SqlLedger
) -> None:
    clock = SystemClock()
    async with (
        CountedBus(own_server, clock, queue_lock_seconds=5.0) as bus,
        EngineHarness(ledger, bus, clock, MAKE, kill_engine, drains_services=SERVICES) as harness,
    ):
        await lose_broker_under_load(
            harness, bus, own_server.stop, own_server.start, jobs=sized(30, 1_000), outage_seconds=sized(2, 20),
            ack_timeout_seconds=60.0, lock_seconds=5.0, seconds_max=PATIENCE_SECONDS,
        )  # fmt: skip


async def test_consumer_stopped_for_three_ack_timeouts_uses_up_no_attempt(
    servicebus_server: ServerThread, ledger: SqlLedger
) -> None:
    clock = SystemClock()
    async with (
        CountedBus(servicebus_server, clock) as bus,
        EngineHarness(ledger, bus, clock, MAKE, kill_engine) as harness,
    ):
        # The ack timeout is also longer than the worker takes from pull to ACK: two thousand at once are slow.
        await leave_directives_queued(
            harness, bus, queued=QUEUED, ack_timeout_seconds=sized(3, 10), lock_seconds=60.0,
            seconds_max=PATIENCE_SECONDS,
        )  # fmt: skip
    await asyncio.to_thread(servicebus_server.forget)
