"""Jobs over Service Bus when the broker is away, or when no consumer is there: nothing is lost, no attempt is used
up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from tests.engines import one_closed_lane
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
from lucius.testing.servicebus.settings import SIZE_BYTES_DEFAULT

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
async def clean_server(servicebus_server: ServerThread) -> AsyncIterator[ServerThread]:
    yield servicebus_server
    await asyncio.to_thread(servicebus_server.forget)


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
    clean_server: ServerThread, ledger: SqlLedger
) -> None:
    clock = SystemClock()
    async with (
        CountedBus(clean_server, clock) as bus,
        EngineHarness(ledger, bus, clock, MAKE, kill_engine) as harness,
    ):
        # The ack timeout is also longer than the worker takes from pull to ACK: two thousand at once are slow.
        await leave_directives_queued(
            harness, bus, queued=QUEUED, ack_timeout_seconds=sized(3, 10), lock_seconds=60.0,
            seconds_max=PATIENCE_SECONDS,
        )  # fmt: skip


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "busy"])
async def test_one_lane_that_takes_nothing_holds_up_no_other(
    clean_server: ServerThread, ledger: SqlLedger, is_full: bool
) -> None:
    clock, server, watch = SystemClock(), clean_server.server, one_closed_lane.CircuitWatch()
    topic = one_closed_lane.TOPIC

    async def fill(bytes_max: int) -> None:
        settings = server.namespace.topic(topic).settings
        await asyncio.to_thread(clean_server.run, lambda: setattr(settings, "size_bytes_max", bytes_max))

    async def close() -> None:
        if is_full:
            await fill(1)
        else:
            await asyncio.to_thread(clean_server.run, lambda: server.faults.busy(topic, times=10_000))

    async def open_again() -> None:
        if is_full:
            await fill(SIZE_BYTES_DEFAULT)
        else:
            await asyncio.to_thread(clean_server.run, server.faults.clear)

    make = outbox_engine(one_closed_lane.SETTINGS, watch)
    async with (
        CountedBus(clean_server, clock, busy_seconds=0.5) as bus,
        EngineHarness(ledger, bus, clock, make, kill_engine) as harness,
    ):
        await one_closed_lane.others_go_on(harness, watch, close, open_again)
