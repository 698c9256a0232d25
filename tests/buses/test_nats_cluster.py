"""A cluster of three NATS servers, of which one is killed under load: every message arrives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.long_form import sized
from tests.nats_cluster import NODES, NatsCluster

from lucius.buses.nats import NatsBus
from lucius.clocks import SystemClock
from lucius.ports.bus import BusUnavailable, Message, Subscription

MESSAGES = sized(1_000, 100_000)
BATCH = 50
LOCK_SECONDS = 5.0
PATIENCE_SECONDS = sized(90, 2_400)
TOPICS = ["lane-0", "lane-1"]
OCR = [Subscription(topic=topic, name="ocr") for topic in TOPICS]


@pytest.fixture
def nats_cluster() -> Iterator[NatsCluster]:
    with NatsCluster() as cluster:
        yield cluster


class Load:
    """Publishes everything in batches, each until it is taken, and receives until it has everything."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus
        self.published = 0
        self.arrived: Counter[str] = Counter()

    async def publish(self) -> None:
        for start in range(0, MESSAGES, BATCH):
            batch = [_message(number) for number in range(start, start + BATCH)]
            while not await self._is_taken(batch):
                await asyncio.sleep(0.1)
            self.published += BATCH

    async def _is_taken(self, batch: list[Message]) -> bool:
        try:
            return await self._bus.publish(batch) == [None] * len(batch)
        except BusUnavailable:
            return False

    async def receive(self) -> None:
        while len(self.arrived) < MESSAGES:
            try:
                taken = await self._bus.receive(TOPICS, "ocr", 100, LOCK_SECONDS, 0.5)
                self.arrived.update(delivery.ref.message_id for delivery in taken)
                await self._bus.settle([delivery.ref for delivery in taken])
            except BusUnavailable:
                await asyncio.sleep(0.1)


async def test_node_of_three_killed_under_load_loses_no_message(nats_cluster: NatsCluster) -> None:
    clock = SystemClock()
    options = nats_cluster.options()
    async with NatsBus(options, clock) as bus, NatsBus(options, clock) as other:
        await bus.declare(OCR)
        config = (await bus.jetstream.stream("lucius-topic-lane-0"))["config"]
        assert config["num_replicas"] == NODES
        load, received = Load(bus), Load(other)
        async with asyncio.timeout(PATIENCE_SECONDS):
            victim = await asyncio.to_thread(nats_cluster.leader_of, "lucius-topic-lane-0")
            publishing = asyncio.create_task(load.publish())
            receiving = asyncio.create_task(received.receive())
            while load.published < MESSAGES // 3:
                await asyncio.sleep(0.01)
            killed_at = load.published
            victim.kill()
            await publishing
            assert killed_at < MESSAGES, "it was killed under load"
            await asyncio.to_thread(victim.start)
            await receiving
            # What could not be settled while the cluster chose other leaders comes back once its lock has run out.
            while await _left(bus):
                again = await _received_again(other)
                assert again <= set(received.arrived)
        assert set(received.arrived) == {f"m{number}" for number in range(MESSAGES)}
        assert await bus.dead_letters(10) == []


async def _received_again(bus: NatsBus) -> set[str]:
    try:
        taken = await bus.receive(TOPICS, "ocr", 100, LOCK_SECONDS, 1.0)
        await bus.settle([delivery.ref for delivery in taken])
    except BusUnavailable:
        return set()
    return {delivery.ref.message_id for delivery in taken}


async def _left(bus: NatsBus) -> int:
    try:
        return sum(depth.ready + depth.locked for depth in await bus.depths())
    except BusUnavailable:
        return 1


def _message(number: int) -> Message:
    name = f"m{number}"
    return Message(id=name, topic=TOPICS[number % len(TOPICS)], body=name.encode() * 20, properties={})
