"""The outbox engine passes the engine suite with its bus on Service Bus, and its ledger in SQLite or PostgreSQL.

In the short form, what of it is about the bus, over SQLite.

Opening the receivers of sixteen lanes takes seconds, so all tests share one bus, and one event loop with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace
from tests.engines.about_the_bus import AboutTheBus
from tests.engines.engine_makers import outbox_engine
from tests.engines.test_engine_conformance import SETTINGS, OutboxFairness, OutboxSuite, kill_engine
from tests.long_form import IS_LONG
from tests.servicebus_server import SDK_LEAVES_SOCKETS, ProvisionedBus, ServerThread

from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus, Deferred, Delivery, Depth, Message, Refused
from lucius.ports.ledger import Ledger
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.engine_harness import EngineHarness
from lucius.testing.samples import STEP_IDS, ShiftedClock

PUBLISH_SECONDS = 5.0


class CountedBus(ProvisionedBus):
    """Its depths come from the server itself: the harness asks for them a hundred times a second."""

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **{"gather_seconds": 0.4, "dead_look_seconds": 0.5, **given})
        self.published: set[str] = set()
        """By the test that runs: what another one left in a receiver is settled."""

    async def depths(self) -> list[Depth]:
        return await asyncio.to_thread(self.thread.depths)

    async def publish(self, messages: Sequence[Message]) -> list[Refused | Deferred | None]:
        self.published |= {message.id for message in messages}
        return await super().publish(messages)

    async def receive(
        self, topics: Sequence[str], subscription: str, limit: int, lock_seconds: float, wait_seconds: float
    ) -> list[Delivery]:
        while True:
            taken = await super().receive(topics, subscription, limit, lock_seconds, wait_seconds)
            own = [delivery for delivery in taken if delivery.ref.message_id in self.published]
            if own or not taken:
                return own
            await self.settle([delivery.ref for delivery in taken])


make_engine = outbox_engine(replace(SETTINGS, publish_timeout_seconds=PUBLISH_SECONDS))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_bus(servicebus_server: ServerThread) -> AsyncIterator[CountedBus]:
    async with CountedBus(servicebus_server, servicebus_server.clock()) as bus:
        yield bus
    await asyncio.to_thread(servicebus_server.forget)


class WholeSuite(OutboxSuite, OutboxFairness):
    pass


class ShortSuite(AboutTheBus):
    """Also what Service Bus does differently: dead letters and directives of the past stay where they are until they
    come up, and nothing is withdrawn."""

    clock = OutboxSuite.clock
    _codes = OutboxSuite._codes
    test_directive_that_the_bus_gave_up_on_is_a_missed_ack_at_once = (
        OutboxSuite.test_directive_that_the_bus_gave_up_on_is_a_missed_ack_at_once
    )
    test_message_that_is_no_directive_is_a_dead_letter_and_stops_nobody = (
        OutboxSuite.test_message_that_is_no_directive_is_a_dead_letter_and_stops_nobody
    )
    test_new_attempt_has_the_only_directive = OutboxSuite.test_new_attempt_has_the_only_directive
    test_directive_delivered_twice_is_done_once = OutboxSuite.test_directive_delivered_twice_is_done_once
    test_cancel_of_a_directive_nobody_has_taken_ends_the_job_at_once = (
        OutboxSuite.test_cancel_of_a_directive_nobody_has_taken_ends_the_job_at_once
    )
    test_message_the_bus_lost_is_sent_under_a_new_attempt = (
        OutboxSuite.test_message_the_bus_lost_is_sent_under_a_new_attempt
    )


class OnServiceBus:
    @pytest_asyncio.fixture(loop_scope="module")
    async def bus(self, shared_bus: CountedBus) -> AsyncIterator[CountedBus]:
        yield shared_bus
        await asyncio.to_thread(shared_bus.thread.empty)
        shared_bus.forget_messages()
        shared_bus.published.clear()

    @pytest_asyncio.fixture(loop_scope="module")
    async def ledger(self, tmp_path: Path) -> AsyncIterator[SqlLedger]:
        async with SqliteDatabase(tmp_path / "lucius.db") as database:
            await upgrade(database)
            async with SqlLedger(database) as ledger:
                yield ledger

    @pytest_asyncio.fixture(loop_scope="module")
    async def harness(self, ledger: Ledger, bus: Bus, clock: ShiftedClock) -> AsyncIterator[EngineHarness]:
        harness = EngineHarness(ledger, bus, clock, make_engine, kill_engine, drains_services=STEP_IDS, withdraws=False)
        async with harness:
            yield harness


@SDK_LEAVES_SOCKETS
@pytest.mark.asyncio(loop_scope="module")
class TestSqliteLedgerAndServiceBus(OnServiceBus, WholeSuite if IS_LONG else ShortSuite):  # type: ignore[misc]
    pass


@SDK_LEAVES_SOCKETS
@pytest.mark.asyncio(loop_scope="module")
class TestPostgresLedgerAndServiceBus(OnServiceBus, WholeSuite):
    __test__ = IS_LONG

    @pytest_asyncio.fixture(loop_scope="module")
    async def ledger(self, postgres_url: str) -> AsyncIterator[SqlLedger]:
        async with PostgresDatabase(postgres_url, pool_max=8) as database, SqlLedger(database) as ledger:
            yield ledger
