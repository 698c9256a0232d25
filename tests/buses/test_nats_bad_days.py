"""Bad days of the bus on NATS: a broker that is away, refuses, or has lost its streams; messages of others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.nats_server import NatsServer
from tests.refused_messages import refused

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.clocks import SystemClock
from lucius.ports.bus import Bus, BusUnavailable, Deferred, DeliveryRef, Subscription
from lucius.telemetry.metrics import MetricsObserver
from lucius.testing.bus_publishing import ids, message, ref

PATIENCE_SECONDS = 20.0
OCR = Subscription(topic="lane", name="ocr")


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    server = NatsServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def bus(nats_options: NatsOptions) -> AsyncIterator[NatsBus]:
    async with NatsBus(nats_options, SystemClock()) as bus:
        yield bus


async def until_healthy(bus: Bus) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            await bus.health()
            return
        except BusUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def until_unavailable(bus: Bus, words: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    said = "it is healthy"
    while words not in said:
        assert time.monotonic() < deadline, said
        await asyncio.sleep(0.05)
        try:
            await bus.health()
        except BusUnavailable as error:
            said = str(error)


async def test_broker_that_is_away_is_said_at_once_and_found_again(
    own_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with NatsBus(NatsOptions(servers=(own_server.url,)), SystemClock()) as bus:
        await bus.declare([OCR])
        assert await bus.publish([message("m1")]) == [None]
        waiting = asyncio.create_task(bus.receive(["lane"], "nobody's", 1, 1.0, 0.0))
        await waiting
        own_server.kill()
        await until_unavailable(bus, own_server.url)
        began = time.monotonic()
        for call in (bus.publish([message("m2")]), bus.settle([ref("m1")]), bus.still_queued([ref("m1")])):
            with pytest.raises(BusUnavailable, match=r"out of reach"):
                await call
        assert time.monotonic() - began < 2.0
        assert "the connection to NATS" in caplog.text
        own_server.start()
        await until_healthy(bus)
        assert await bus.publish([message("m1"), message("m2")]) == [None, None]
        assert ids(await bus.receive(["lane"], "ocr", 10, 5.0, 2.0)) == ["m1", "m2"]
        assert "again" in caplog.text


async def test_credentials_that_no_longer_hold_are_said_and_tried_again(own_server: NatsServer) -> None:
    own_server.configure('authorization { token: "old" }')
    own_server.kill()
    own_server.start()
    async with NatsBus(NatsOptions(servers=(own_server.url,), token="old"), SystemClock()) as bus:
        await bus.declare([OCR])
        own_server.kill()
        own_server.configure('authorization { token: "new" }')
        own_server.start()
        await until_unavailable(bus, "Authorization")
        own_server.kill()
        own_server.configure('authorization { token: "old" }')
        own_server.start()
        await until_healthy(bus)
        assert await bus.publish([message("m1")]) == [None]
        assert ids(await bus.receive(["lane"], "ocr", 10, 5.0, 2.0)) == ["m1"]


async def test_full_store_is_said_until_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    """Only the answer to a publish tells."""
    server = NatsServer(store_max="200KB")
    server.start()
    try:
        async with NatsBus(NatsOptions(servers=(server.url,)), SystemClock()) as bus:
            await bus.declare([OCR, Subscription(topic="other", name="ocr")])
            await bus.publish([message(f"large {number}", body=b"x" * 40_000) for number in range(9)])
            for topic in ("lane", "other"):
                with pytest.raises(BusUnavailable, match=rf"topic {topic} .*insufficient resources"):
                    await bus.publish([message("m1", topic, body=b"x" * 40_000)])
            for _ in range(2):
                with pytest.raises(BusUnavailable, match=r"topic lane .*insufficient resources; and 1 more"):
                    await bus.health()
            assert "takes messages again" not in caplog.text
            await bus.settle([each.ref for each in await bus.receive(["lane"], "ocr", 10, 5.0, 1.0)])
            assert await bus.publish([message("m1"), message("m1", "other")]) == [None, None]
            assert await bus.health()
            assert caplog.text.count("takes messages again") == 2
    finally:
        server.stop()


async def test_missing_stream_is_said_and_made_again(bus: NatsBus, caplog: pytest.LogCaptureFixture) -> None:
    await bus.declare([OCR])
    stream = f"{bus.options.prefix}-topic-lane"
    await bus.jetstream.call(f"STREAM.DELETE.{stream}")
    with pytest.raises(BusUnavailable, match=stream):
        await bus.health()
    [deferred] = await bus.publish([message("m1")])
    assert isinstance(deferred, Deferred)
    assert stream in deferred.reason
    assert await bus.receive(["lane"], "ocr", 10, 5.0, 0.0) == []
    await bus.upkeep()
    assert stream in caplog.text
    assert await bus.health()
    assert await bus.publish([message("m1")]) == [None]
    assert ids(await bus.receive(["lane"], "ocr", 10, 5.0, 2.0)) == ["m1"]


async def test_subscription_of_another_process_gets_all_that_is_published_after_it(
    bus: NatsBus, nats_options: NatsOptions
) -> None:
    await bus.declare([OCR])
    async with NatsBus(nats_options, SystemClock()) as other:
        await other.declare([Subscription(topic="lane", name="sis")])
        names = [f"m{number}" for number in range(20)]
        await asyncio.gather(*(bus.publish([message(name)]) for name in names))
        found = await other.receive(["lane"], "sis", 50, 5.0, 2.0)
        assert sorted(ids(found)) == sorted(names)
        # And nothing that it no longer wants.
        await other.declare([Subscription(topic="lane", name="sis", where={"service": "sis"})])
        await bus.publish([message("unwanted")])
        assert await bus.still_queued([DeliveryRef("lane", "sis", "unwanted")]) == set()
        assert ids(await bus.receive(["lane"], "ocr", 50, 5.0, 2.0))[-1] == "unwanted"


async def test_streams_that_are_all_gone_are_made_again(bus: NatsBus) -> None:
    await bus.declare([OCR])
    for stream in await bus.jetstream.stream_names(f"{bus.options.prefix}.>"):
        await bus.jetstream.call(f"STREAM.DELETE.{stream}")
    await bus.upkeep()
    assert await bus.publish([message("m1")]) == [None]
    assert ids(await bus.receive(["lane"], "ocr", 10, 5.0, 2.0)) == ["m1"]


async def test_message_of_somebody_else_is_a_dead_letter_and_stops_nobody(
    nats_options: NatsOptions, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = MetricsObserver(SystemClock())
    async with NatsBus(nats_options, SystemClock(), observer=metrics) as bus:
        await bus.declare([OCR])
        await bus.jetstream.publish(f"{bus.options.prefix}.queue.lane.ocr.stray", b"not ours", {})
        assert await bus.publish([message("m1")]) == [None]
        assert ids(await bus.receive(["lane"], "ocr", 10, 5.0, 1.0)) == ["m1"]
        [letter] = await bus.dead_letters(10)
    assert letter.ref == DeliveryRef("lane", "ocr", "stray")
    assert letter.reason.startswith("FOREIGN")
    assert refused(metrics) == {("lane", "FOREIGN"): 1.0}
    assert letter.reason in caplog.text


async def test_message_is_renewed_and_released_by_another_process(bus: NatsBus) -> None:
    """The process that hears of a message is not always the one that received it."""
    await bus.declare([OCR])
    assert await bus.publish([message("m1")]) == [None]
    assert ids(await bus.receive(["lane"], "ocr", 10, 1.0, 1.0)) == ["m1"]
    async with NatsBus(bus.options, SystemClock()) as other:
        assert await other.still_queued([ref("m1")]) == set()
        assert await other.withdraw([ref("m1")]) == set()
        assert await other.renew([ref("m1")], 30.0) == [True]
        assert await bus.renew([ref("m1")], 30.0) == [False], "its lock is the other's by now"
        await asyncio.sleep(1.2)
        assert await bus.receive(["lane"], "ocr", 10, 1.0, 0.0) == []
        await other.abandon([ref("m1")])
        assert await other.still_queued([ref("m1")]) == {ref("m1")}
        [delivery] = await bus.receive(["lane"], "ocr", 10, 1.0, 1.0)
        assert (delivery.ref, delivery.delivery_count) == (ref("m1"), 2)


async def test_id_that_still_waits_is_no_second_message_after_the_duplicate_window(nats_options: NatsOptions) -> None:
    async with NatsBus(nats_options, SystemClock(), duplicate_seconds=0.2) as bus:
        await bus.declare([OCR])
        assert await bus.publish([message("m1")]) == [None]
        await asyncio.sleep(0.4)
        assert await bus.publish([message("m1")]) == [None]
        assert ids(await bus.receive(["lane"], "ocr", 10, 5.0, 1.0)) == ["m1"]
