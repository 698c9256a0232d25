"""Many messages through Service Bus."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.buses.many_messages import check_that_each_arrives_once
from tests.long_form import sized
from tests.servicebus_server import ProvisionedBus, ServerThread


@pytest.mark.timeout(sized(180, 1_800))
async def test_every_message_arrives_once(servicebus_server: ServerThread) -> None:
    clock = servicebus_server.clock()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(ProvisionedBus(servicebus_server, clock, queue_lock_seconds=300.0))
            for _ in range(2)
        ]
        await check_that_each_arrives_once(clients, 250.0)
    await asyncio.to_thread(servicebus_server.forget)
