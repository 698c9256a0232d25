"""The outbox engine passes the engine suite over the ledger on Azure Tables, in both layouts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from tests.azurite import Azurite
from tests.engines.about_the_bus import AboutTheBus
from tests.engines.test_engine_conformance import SETTINGS, OutboxFairness, OutboxSuite, kill_engine
from tests.long_form import IS_LONG
from tests.tables_ledger import opened_ledger

from lucius.buses.memory import MemoryBus
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.engines.outbox.engine import OutboxEngine
from lucius.ledgers.tables import TablesLedger
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.samples import ShiftedClock

SETTINGS_ON_TABLES = replace(
    SETTINGS, claim_seconds=3.0, sweep_interval=0.4, outbox_retry_interval=0.4, repair_interval=2.0
)
"""A commit is several requests: the claim of a directive must outlast them. A sweep is eight, and Azurite serves some
hundred a second on a busy machine: with more sweeps than these, two engines ask it for nothing else."""


def make_engine(ledger: Ledger, bus: Bus, clock: Clock) -> OutboxEngine:
    signer = TokenSigner((CallbackKey("k1", b"secret"),))
    urls = CallbackUrls.under("http://127.0.0.1")
    return OutboxEngine(ledger, bus, clock, signer, urls, Observer(), SETTINGS_ON_TABLES)


class WithMemoryBus:
    @pytest.fixture
    def clock(self) -> ShiftedClock:
        return ShiftedClock()

    @pytest.fixture
    async def bus(self, clock: ShiftedClock) -> AsyncIterator[MemoryBus]:
        async with MemoryBus(clock) as bus:
            yield bus

    @pytest.fixture
    async def harness(self, ledger: Ledger, bus: Bus, clock: ShiftedClock) -> AsyncIterator[EngineHarness]:
        async with EngineHarness(ledger, bus, clock, make_engine, kill_engine, counts_are_exact=False) as harness:
            yield harness


if IS_LONG:

    class Suite(WithMemoryBus, OutboxSuite, OutboxFairness):
        """Everything that the engine port guarantees."""

else:

    class Suite(WithMemoryBus, AboutTheBus):  # type: ignore[no-redef]
        """What depends most on the ledger's commits."""


class TestLedgerLayout(Suite):
    """In the short form the ledger suite runs on this layout."""

    __test__ = IS_LONG

    @pytest.fixture
    async def ledger(self, azurite: Azurite) -> AsyncIterator[TablesLedger]:
        async with opened_ledger(azurite, "ledger") as ledger:
            yield ledger


class TestTableLayout(Suite):
    @pytest.fixture
    async def ledger(self, azurite: Azurite) -> AsyncIterator[TablesLedger]:
        async with opened_ledger(azurite, "table") as ledger:
            yield ledger
