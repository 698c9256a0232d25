"""Many receivers of one process wait for the same lanes on a broker: a message costs the work of a few of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.servicebus_server import ProvisionedBus, ServerThread

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.buses.nats.jetstream import JetStream
from lucius.buses.servicebus.receiving import Receiving
from lucius.clocks import SystemClock
from lucius.domain.routing import LANE_COUNT, LANE_TOPICS
from lucius.ports.bus import Bus, Delivery, Subscription
from lucius.testing.bus_publishing import message

LANES = [Subscription(topic=topic, name="ocr") for topic in LANE_TOPICS]
CROWD = 40
MESSAGES = 10
WAIT_SECONDS = 30.0
QUIET_SECONDS = 0.3
"""Until everybody is asleep."""


def counted(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a method is called."""
    calls = [0]
    method = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        return method(*given, **named)

    monkeypatch.setattr(owner, name, call)
    return calls


async def calls_per_message(bus: Bus, calls: list[int], settled: Callable[[], Awaitable[None]]) -> float:
    """While a crowd waits for one message each, some get one."""
    await bus.declare(LANES)
    crowd = [asyncio.create_task(bus.receive(LANE_TOPICS, "ocr", 1, 60.0, WAIT_SECONDS)) for _ in range(CROWD)]
    await settled()
    before = calls[0]
    taken: list[Delivery] = []
    try:
        for number in range(MESSAGES):
            assert await bus.publish([message(f"m{number}", topic=LANE_TOPICS[number])]) == [None]
            done, _ = await asyncio.wait(crowd, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1, "each message is one receiver's"
            receiver = done.pop()
            crowd.remove(receiver)
            taken += receiver.result()
        spent = calls[0] - before
    finally:
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
    assert sorted(one.ref.message_id for one in taken) == [f"m{number}" for number in range(MESSAGES)]
    await bus.settle([one.ref for one in taken])
    return spent / MESSAGES


async def test_on_nats(nats_options: NatsOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look of a receiver that is woken without need would be a request for each lane."""
    pulls = counted(JetStream, "pull", monkeypatch)

    async def settled() -> None:
        await asyncio.sleep(QUIET_SECONDS)

    async with NatsBus(nats_options, SystemClock()) as bus:
        assert await calls_per_message(bus, pulls, settled) < LANE_COUNT


async def test_on_service_bus(servicebus_server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each caller that is woken looks at every lane."""
    looks = counted(Receiving, "_take_for", monkeypatch)
    async with ProvisionedBus(servicebus_server, servicebus_server.clock()) as bus:

        async def settled() -> None:
            async with asyncio.timeout(WAIT_SECONDS):
                while not all(lane.is_answered(QUIET_SECONDS) for lane in bus._receiving.lanes.values()):
                    await asyncio.sleep(0.05)

        assert await calls_per_message(bus, looks, settled) < CROWD / 4
    await asyncio.to_thread(servicebus_server.forget)
