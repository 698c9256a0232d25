"""The contract of runbooks over Service Bus: the same tests, with their messages on a broker outside the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib import import_module

import pytest
from harness import Harness, open_harness
from tests.engines.test_servicebus_conformance import CountedBus
from tests.long_form import IS_LONG
from tests.servicebus_server import ServerThread

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
)


@pytest.fixture
async def harness(servicebus_server: ServerThread) -> AsyncIterator[Harness]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        bus = CountedBus(servicebus_server, servicebus_server.clock(), look_seconds=0.3)
        async with open_harness(database, broker=bus) as made:
            yield made
    await asyncio.to_thread(servicebus_server.forget)


for _part in EVERY_PART if IS_LONG else PARTS:
    _module = import_module(f"tests.runbooks.contract.test_contract_{_part}")
    globals().update({name: test for name, test in vars(_module).items() if name.startswith("test_")})
