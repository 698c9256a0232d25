"""The contract of runbooks over Service Bus: the same tests, with their messages on a broker outside the database.

Of the tables, only what is sent: columns and statuses are the database's. How long a message is locked, and when it
becomes a dead letter, is read there from the clock of a bus in the database; of Service Bus, the bus suite tests it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

import pytest
from harness import Harness, open_harness
from tests.engines.test_servicebus_conformance import CountedBus
from tests.long_form import IS_LONG
from tests.runbooks.contract import test_contract_tables
from tests.runbooks.contract.test_contract_scheduler import ContractScheduler
from tests.servicebus_server import ServerThread

from lucius.sql.database import Database
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase

PARTS = ("catch_up_protocol",)
EVERY_PART = (
    "batch_init",
    "phase_due",
    "member_added",
    "member_removed",
    "poll_check",
    "polling_protocol",
    "rollback_protocol",
    "catch_up_protocol",
    "scheduler",
)


@asynccontextmanager
async def on_servicebus(server: ServerThread, database: Database) -> AsyncIterator[Harness]:
    bus = CountedBus(server, server.clock(), look_seconds=0.3)
    async with open_harness(database, broker=bus) as made:
        yield made
    await asyncio.to_thread(server.forget)


@pytest.fixture
async def harness(servicebus_server: ServerThread) -> AsyncIterator[Harness]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        async with on_servicebus(servicebus_server, database) as made:
            yield made


@pytest.fixture
def real_harness(harness: Harness) -> Harness:
    return harness


@pytest.fixture
async def scheduler(
    servicebus_server: ServerThread, postgres_database: PostgresDatabase
) -> AsyncIterator[ContractScheduler]:
    """One that knows nothing but the contract: it needs a database that it can reach itself."""
    async with on_servicebus(servicebus_server, postgres_database) as made:
        yield ContractScheduler(made)


if IS_LONG:
    test_messages_have_the_fields_and_properties_of_the_contract = (
        test_contract_tables.test_messages_have_the_fields_and_properties_of_the_contract
    )
for _part in EVERY_PART if IS_LONG else PARTS:
    _module = import_module(f"tests.runbooks.contract.test_contract_{_part}")
    globals().update({name: test for name, test in vars(_module).items() if name.startswith("test_")})
