"""Azure's own SDK against the test server: one client, and senders and receivers that tests share.

Opening a link costs the SDK half a second and closing up to one, so each entity has one sender and one receiver.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from lucius.testing.servicebus.server import ServiceBusServer

WAIT = 5.0
NOTHING = 0.3
"""How long to wait for what must not come."""


@dataclass
class Sdk:
    server: ServiceBusServer
    client: ServiceBusClient
    senders: dict[str, ServiceBusSender]
    receivers: dict[str, ServiceBusReceiver]
    held: list[asyncio.StreamWriter] = field(default_factory=list)

    def hold_connections(self) -> None:
        """To be called before connections are broken: the SDK never closes the sockets of such."""
        everything = [one for one in gc.get_objects() if isinstance(one, asyncio.StreamWriter)]
        self.held += [one for one in everything if (one.get_extra_info("peername") or (0, 0))[1] == self.server.port]

    async def send(self, entity: str, *messages: Any) -> None:
        await self.senders[entity].send_messages(list(messages) if len(messages) > 1 else messages[0], timeout=WAIT)

    async def receive(self, name: str, count: int = 1, wait: float = WAIT) -> list[ServiceBusReceivedMessage]:
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < count:
            got = await self.receivers[name].receive_messages(count - len(found), max_wait_time=wait)
            if not got:
                break
            found += got
        return found

    async def one(self, name: str) -> ServiceBusReceivedMessage:
        found = await self.receive(name)
        assert len(found) == 1, f"nothing arrived from {name}"
        return found[0]

    async def nothing(self, name: str) -> bool:
        return not await self.receive(name, wait=NOTHING)


@asynccontextmanager
async def sdk(server: ServiceBusServer, senders: dict[str, Any], receivers: dict[str, Any]) -> AsyncIterator[Sdk]:
    """`senders` and `receivers` are made from the client, all at once."""
    async with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client:
        opened = Sdk(
            server,
            client,
            {name: make(client) for name, make in senders.items()},
            {name: make(client) for name, make in receivers.items()},
        )
        handlers = [*opened.senders.values(), *opened.receivers.values()]
        await asyncio.gather(*(handler.__aenter__() for handler in handlers))
        try:
            yield opened
        finally:
            await asyncio.gather(*(handler.close() for handler in handlers))
            for writer in opened.held:
                writer.close()
            await asyncio.sleep(0)
