"""The engines pass the engine suite with a worker that answers over the bus.

The part about callbacks on one bus in `make test`; all of it, the other buses, and Temporal, in `make test-long`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from tests.engines import test_nats_conformance, test_temporal_conformance
from tests.engines.test_engine_conformance import TestMemoryLedgerAndMemoryBus as OnMemory
from tests.engines.test_engine_conformance import TestPostgresLedgerAndItsBus as OnPostgres
from tests.engines.test_engine_conformance import TestSqliteLedgerAndItsBus as OnSqlite
from tests.engines.test_engine_conformance import kill_engine, make_engine
from tests.engines.test_servicebus_conformance import OnServiceBus, WholeSuite, shared_bus
from tests.engines.test_servicebus_conformance import make_engine as make_servicebus_engine
from tests.engines.test_temporal_conformance import kill_engine as kill_temporal_engine
from tests.engines.test_temporal_conformance import make_engine as make_temporal_engine
from tests.engines.test_temporal_conformance import temporal
from tests.long_form import IS_LONG
from tests.servicebus_server import SDK_LEAVES_SOCKETS

from lucius.clocks import SystemClock
from lucius.domain.routing import REPLY_TOPICS
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.testing.engine_failures import EngineFailures
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.engine_past_directives import EnginePastDirectives
from lucius.testing.engine_running import EngineRunning
from lucius.testing.reply_harness import ReplyHarness
from lucius.testing.samples import STEP_IDS, ShiftedClock
from lucius.usecases.replies import SUBSCRIPTION

__all__ = ["make_temporal_engine", "shared_bus", "temporal"]  # Fixtures.


class OverReplies:
    @pytest.fixture
    async def harness(self, ledger: Ledger, bus: Bus, clock: ShiftedClock) -> AsyncIterator[EngineHarness]:
        async with ReplyHarness(ledger, bus, clock, make_engine, kill_engine) as harness:
            yield harness


class ShortSuite(EngineRunning, EngineFailures, EnginePastDirectives):
    """What in the suite is most about callbacks."""

    clock = OnMemory.clock
    bus = OnMemory.bus
    ledger = OnMemory.ledger


class TestRepliesOverTheMemoryBus(OverReplies, OnMemory if IS_LONG else ShortSuite):  # type: ignore[misc]
    pass


class TestRepliesOverTheBusOfSqlite(OverReplies, OnSqlite):
    __test__ = IS_LONG


class TestRepliesOverNats(OverReplies, test_nats_conformance.TestSqliteLedgerAndNatsBus):
    __test__ = IS_LONG


class OneByOne(ReplyHarness):
    """Opening receivers, and gathering a batch, take longer than the shortest ack timeouts of the suite."""

    taken_at_once = 1

    async def __aenter__(self) -> ReplyHarness:
        await super().__aenter__()
        assert await self.bus.receive(REPLY_TOPICS, SUBSCRIPTION, 1, 60.0, 0.0) == []
        return self


@SDK_LEAVES_SOCKETS
@pytest.mark.asyncio(loop_scope="module")
class TestRepliesOverServiceBus(OnServiceBus, WholeSuite):
    __test__ = IS_LONG

    @pytest_asyncio.fixture(loop_scope="module")
    async def harness(self, ledger: Ledger, bus: Bus, clock: ShiftedClock) -> AsyncIterator[EngineHarness]:
        make = make_servicebus_engine
        harness = OneByOne(ledger, bus, clock, make, kill_engine, drains_services=STEP_IDS, withdraws=False)
        async with harness:
            yield harness


class TestRepliesOverTheBusOfPostgres(OverReplies, OnPostgres):
    __test__ = IS_LONG


class TestRepliesToTemporal(test_temporal_conformance.TestTemporalOnSqlite):
    __test__ = IS_LONG

    @pytest.fixture
    async def harness(
        self, ledger: Ledger, bus: Bus, make_temporal_engine: Callable[[Ledger, Bus, Clock], Engine]
    ) -> AsyncIterator[EngineHarness]:
        clock, make = SystemClock(), make_temporal_engine
        async with ReplyHarness(ledger, bus, clock, make, kill_temporal_engine, answers_at_once=False) as harness:
            yield harness
