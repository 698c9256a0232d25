"""Jobs over NATS when the server is killed, or when no consumer is there: nothing is lost, no attempt is used up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from msgspec.structs import replace
from tests.engines import one_closed_lane
from tests.engines.broker_bad_days import leave_directives_queued, lose_broker_under_load
from tests.engines.engine_makers import outbox_engine
from tests.engines.test_engine_conformance import SETTINGS, kill_engine
from tests.long_form import sized
from tests.nats_server import NatsServer, delete_topic

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.clocks import SystemClock
from lucius.ledgers.sql import SqlLedger
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.engine_harness import EngineHarness

QUEUED = sized(500, 2_000)
PATIENCE_SECONDS = sized(60, 240)
# The cap of tenants would hold most of them back.
MAKE = outbox_engine(replace(SETTINGS, publish_timeout_seconds=10.0, tenant_unacknowledged_max=QUEUED))


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


async def test_broker_killed_under_load_loses_no_job_and_uses_up_no_attempt(
    own_server: NatsServer, ledger: SqlLedger
) -> None:
    options, clock = NatsOptions(servers=(own_server.url,)), SystemClock()
    async with (
        NatsBus(options, clock) as bus,
        NatsBus(options, clock) as workers_bus,
        EngineHarness(ledger, bus, clock, MAKE, kill_engine) as harness,
    ):
        await lose_broker_under_load(
            harness, workers_bus, own_server.kill, own_server.start, jobs=sized(60, 2_000),
            outage_seconds=sized(2, 20), ack_timeout_seconds=9.0, lock_seconds=3.0, seconds_max=PATIENCE_SECONDS,
        )  # fmt: skip


async def test_consumer_stopped_for_three_ack_timeouts_uses_up_no_attempt(
    nats_options: NatsOptions, ledger: SqlLedger
) -> None:
    clock = SystemClock()
    async with (
        NatsBus(nats_options, clock) as bus,
        NatsBus(nats_options, clock) as workers_bus,
        EngineHarness(ledger, bus, clock, MAKE, kill_engine) as harness,
    ):
        await leave_directives_queued(
            harness,
            workers_bus,
            queued=QUEUED,
            ack_timeout_seconds=sized(5, 3),
            lock_seconds=sized(2, 1),
            seconds_max=PATIENCE_SECONDS,
        )


async def test_one_lane_that_takes_nothing_holds_up_no_other(nats_options: NatsOptions, ledger: SqlLedger) -> None:
    clock, watch, topic = SystemClock(), one_closed_lane.CircuitWatch(), one_closed_lane.TOPIC
    make = outbox_engine(one_closed_lane.SETTINGS, watch)
    async with (
        NatsBus(nats_options, clock) as bus,
        EngineHarness(ledger, bus, clock, make, kill_engine) as harness,
    ):
        await one_closed_lane.others_go_on(harness, watch, lambda: delete_topic(bus, topic), bus.upkeep)
