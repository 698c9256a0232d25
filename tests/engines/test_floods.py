"""A small tenant is not held up by another's flood on its lane, on any bus.

Brokers are processes of their own, also the test server of Service Bus: inside this one it would wait for the same
interpreter lock as the consumers.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.engines.engine_makers import outbox_engine
from tests.engines.stores import BothInPostgres, BothInSqlite, BusInMemory, BusOnNats, LedgerInSqlite
from tests.engines.test_engine_conformance import kill_engine
from tests.long_form import IS_LONG, sized
from tests.servicebus_process import ServiceBusProcess
from tests.servicebus_server import SDK_LEAVES_SOCKETS

from lucius.buses.servicebus import ServiceBus, ServiceBusOptions
from lucius.buses.servicebus.entities import plan
from lucius.buses.servicebus.printing import as_json
from lucius.clocks import SystemClock
from lucius.domain.routing import LANE_TOPICS
from lucius.engines.outbox.engine import EngineSettings
from lucius.kit.settings import CONCURRENCY_DEFAULT
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus, Subscription
from lucius.testing.engine_flood import WORKERS, EngineFlood
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.samples import STEP_IDS

RATIO_MAX = 10.0 if IS_LONG else math.inf
"""The short form shares the machine with other tests: it notices a tenant that waits until another's flood is over, and
not how long others wait."""


def test_there_are_as_many_workers_as_a_service_has_by_default() -> None:
    assert WORKERS == CONCURRENCY_DEFAULT


class Flood(EngineFlood):
    flood_jobs = sized(250, 10_000)
    small_jobs = sized(12, 40)
    pairs = sized(3, 5)
    ratio_max = RATIO_MAX

    @pytest.fixture(params=[4, WORKERS] if IS_LONG else [4])
    def workers(self, request: pytest.FixtureRequest) -> int:
        """A short flood would be over before so many workers have done anything else."""
        return int(request.param)

    @pytest.fixture
    def clock(self) -> SystemClock:
        return SystemClock()

    drains_services: tuple[str, ...] = ()

    @pytest.fixture
    async def harness(self, ledger: SqlLedger, bus: Bus, clock: SystemClock) -> AsyncIterator[EngineHarness]:
        make = outbox_engine(EngineSettings())
        async with EngineHarness(
            ledger, bus, clock, make, kill_engine, drains_services=self.drains_services
        ) as harness:
            yield harness


class TestMemoryBus(BusInMemory, LedgerInSqlite, Flood):
    pass


class TestBusOnNats(BusOnNats, LedgerInSqlite, Flood):
    pass


@SDK_LEAVES_SOCKETS
class TestBusOnServiceBus(LedgerInSqlite, Flood):
    drains_services = ("ocr",)

    @pytest.fixture
    def options(self, tmp_path: Path) -> Iterator[ServiceBusOptions]:
        lanes = [
            Subscription(topic=topic, name=name, where={"service": name}) for topic in LANE_TOPICS for name in STEP_IDS
        ]
        config = tmp_path / "Config.json"
        config.write_text(as_json(plan(lanes)))
        with ServiceBusProcess(tmp_path, config) as process:
            assert isinstance(process, ServiceBusProcess)
            yield ServiceBusOptions(
                connection=process.settings["LUCIUS_SERVICEBUS_CONNECTION"],
                administration=process.settings["LUCIUS_SERVICEBUS_ADMINISTRATION"],
                administration_ca_file=process.settings["LUCIUS_SERVICEBUS_ADMINISTRATION_CA_FILE"],
            )

    @pytest.fixture
    async def bus(self, options: ServiceBusOptions, clock: SystemClock) -> AsyncIterator[ServiceBus]:
        async with ServiceBus(options, clock) as bus:
            yield bus


class TestBusInSqlite(BothInSqlite, Flood):
    pass


class TestBusInPostgres(BothInPostgres, Flood):
    pass
