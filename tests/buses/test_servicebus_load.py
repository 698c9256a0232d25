"""Many messages through Service Bus, with several processes' worth of clients: none is lost, none comes twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from tests.long_form import sized
from tests.servicebus_server import ProvisionedBus, ServerThread

from lucius.ports.bus import Message, Subscription

MESSAGES = sized(5_000, 100_000)
BATCH = 250
TOPICS = [f"lane-{number}" for number in range(4)]
SERVICES = ["ocr", "sis"]
CLIENTS = 2
SILENCE_SECONDS_MAX = 30.0
"""A worker that was given nothing for so long has been given all: a server that shares this process, and both cores,
with its clients may take longer than one look."""


@pytest.mark.timeout(sized(180, 1_800))
async def test_every_message_arrives_once(servicebus_server: ServerThread) -> None:
    clock = servicebus_server.clock()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(ProvisionedBus(servicebus_server, clock, queue_lock_seconds=300.0))
            for _ in range(CLIENTS)
        ]
        wanted = [
            Subscription(topic=topic, name=name, where={"service": name}) for topic in TOPICS for name in SERVICES
        ]
        for client in clients:
            await client.declare(wanted)
        arrived: Counter[str] = Counter()
        is_published = asyncio.Event()

        async def publish() -> None:
            for start in range(0, MESSAGES, BATCH):
                batch = [_message(number) for number in range(start, start + BATCH)]
                assert await clients[0].publish(batch) == [None] * BATCH
            is_published.set()

        async def work(client: ProvisionedBus, service: str) -> None:
            loop = asyncio.get_running_loop()
            last_at = loop.time()
            while True:
                taken = await client.receive(TOPICS, service, 100, 250.0, 0.5)
                for delivery in taken:
                    assert delivery.delivery_count == 1
                    assert delivery.body == delivery.ref.message_id.encode() * 20
                    arrived[delivery.ref.message_id] += 1
                await client.settle([delivery.ref for delivery in taken])
                if taken:
                    last_at = loop.time()
                elif is_published.is_set() and (
                    len(arrived) == MESSAGES or loop.time() > last_at + SILENCE_SECONDS_MAX
                ):
                    return

        workers = [work(client, name) for client in clients for name in SERVICES]
        async with asyncio.timeout(sized(150, 1_700)):
            await asyncio.gather(publish(), *workers)
        assert len(arrived) == MESSAGES
        assert set(arrived.values()) == {1}
        assert sum(depth.ready + depth.locked + depth.dead for depth in await clients[0].depths()) == 0
    await asyncio.to_thread(servicebus_server.forget)


def _message(number: int) -> Message:
    name = f"m{number}"
    service = SERVICES[number % len(SERVICES)]
    topic = TOPICS[number // len(SERVICES) % len(TOPICS)]
    return Message(id=name, topic=topic, body=name.encode() * 20, properties={"service": service})
