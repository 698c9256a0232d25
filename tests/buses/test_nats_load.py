"""Many messages through NATS."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from tests.buses.many_messages import SERVICES, TOPICS, check_that_each_arrives_once
from tests.long_form import sized

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.clocks import SystemClock
from lucius.ports.bus import DeliveryRef


@pytest.mark.timeout(sized(180, 1_800))
async def test_every_message_arrives_once(nats_options: NatsOptions) -> None:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(NatsBus(nats_options, clock)) for _ in range(2)]
        await check_that_each_arrives_once(clients, 60.0, settled_by_another=True)
        assert await clients[0].still_queued([DeliveryRef(TOPICS[0], SERVICES[0], "m0")]) == set()
