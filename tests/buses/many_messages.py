"""Many messages through a bus, with several processes' worth of clients: none is lost, none comes twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from tests.long_form import sized

from lucius.ports.bus import Bus, Message, Subscription

MESSAGES = sized(5_000, 100_000)
BATCH = 250
TOPICS = [f"lane-{number}" for number in range(4)]
SERVICES = ["ocr", "sis"]
SILENCE_SECONDS_MAX = 30.0
"""A worker that was given nothing for so long has been given all: a server that shares this process, and both cores,
with its clients may take longer than one look."""


async def check_that_each_arrives_once(
    clients: Sequence[Bus], lock_seconds: float, *, settled_by_another: bool = False
) -> None:
    wanted = [Subscription(topic=topic, name=name, where={"service": name}) for topic in TOPICS for name in SERVICES]
    for client in clients:
        await client.declare(wanted)
    arrived: Counter[str] = Counter()
    is_published = asyncio.Event()

    async def publish() -> None:
        for start in range(0, MESSAGES, BATCH):
            batch = [_message(number) for number in range(start, start + BATCH)]
            assert await clients[0].publish(batch) == [None] * BATCH
        is_published.set()

    async def work(client: Bus, settler: Bus, service: str) -> None:
        loop = asyncio.get_running_loop()
        last_at = loop.time()
        while True:
            taken = await client.receive(TOPICS, service, 100, lock_seconds, 0.5)
            for delivery in taken:
                assert delivery.delivery_count == 1
                assert delivery.body == delivery.ref.message_id.encode() * 20
                arrived[delivery.ref.message_id] += 1
            await settler.settle([delivery.ref for delivery in taken])
            if taken:
                last_at = loop.time()
            elif is_published.is_set() and (len(arrived) == MESSAGES or loop.time() > last_at + SILENCE_SECONDS_MAX):
                return

    settlers = [clients[place - settled_by_another] for place in range(len(clients))]
    workers = [
        work(client, settler, name) for client, settler in zip(clients, settlers, strict=True) for name in SERVICES
    ]
    async with asyncio.timeout(sized(150, 1_700)):
        await asyncio.gather(publish(), *workers)
    assert len(arrived) == MESSAGES
    assert set(arrived.values()) == {1}
    assert sum(depth.ready + depth.locked + depth.dead for depth in await clients[0].depths()) == 0


def _message(number: int) -> Message:
    name = f"m{number}"
    service = SERVICES[number % len(SERVICES)]
    topic = TOPICS[number // len(SERVICES) % len(TOPICS)]
    return Message(id=name, topic=topic, body=name.encode() * 20, properties={"service": service})
