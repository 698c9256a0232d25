"""What peeking proves, and what it costs: each waiting message is read once, then one message for all of them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.servicebus_server import ProvisionedBus, ServerThread

from lucius.ports.bus import Subscription
from lucius.testing.bus_publishing import message, ref

COUNT = 600


async def test_long_queue_is_proved_by_one_peek(servicebus_server: ServerThread) -> None:
    async with ProvisionedBus(servicebus_server, servicebus_server.clock()) as bus:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        names = [f"m{number}" for number in range(COUNT)]
        assert await bus.publish([message(name) for name in names]) == [None] * COUNT
        read: list[int] = []
        page = bus._browsing.page

        async def counted(*arguments: Any) -> Any:
            found = await page(*arguments)
            read.append(len(found))
            return found

        bus._browsing.page = counted  # type: ignore[method-assign]
        refs = {ref(name) for name in names}
        assert await bus.still_queued(list(refs)) == refs
        assert sum(read) == COUNT + 1, "each is read once, and the first again as the proof"
        read.clear()
        for _ in range(3):
            assert await bus.still_queued(list(refs)) == refs
        assert read == [1, 1, 1]

        taken = await bus.receive(["lane"], "ocr", 2, 60.0, 10.0)
        held = {delivery.ref for delivery in taken}
        read.clear()
        assert await bus.still_queued(list(refs)) == refs - held
        assert read == [1]
        await bus.abandon(list(held))
        read.clear()
        assert await bus.still_queued([*refs, ref("nothing")]) == refs, "they came back to this process's knowledge"

    async with ProvisionedBus(servicebus_server, servicebus_server.clock()) as other:
        assert await other.still_queued(list(refs)) == refs - held, "what another process had, it may have again"
    await asyncio.to_thread(servicebus_server.forget)
