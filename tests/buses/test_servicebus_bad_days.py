"""Bad days of the bus on Service Bus: a broker that is away, refuses, forgets or hangs; messages of others."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage
from tests.refused_messages import refused
from tests.servicebus_server import SDK_LEAVES_SOCKETS, ProvisionedBus, ServerThread, close_broken_sockets

from lucius.buses.servicebus.sending import SILENT_SECONDS, TopicSender
from lucius.clocks import SystemClock
from lucius.ports.bus import Bus, BusUnavailable, Deferred, Subscription
from lucius.telemetry.metrics import MetricsObserver
from lucius.testing.bus_publishing import ids, message, ref
from lucius.testing.servicebus.tokens import SharedKey

pytestmark = SDK_LEAVES_SOCKETS

PATIENCE_SECONDS = 40.0
OCR = Subscription(topic="lane", name="ocr")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for here fails again and again: the SDK need not find that out for ten seconds."""
    retries = {"retry_total": 1, "retry_backoff_factor": 0.05, "retry_backoff_max": 0.5}
    monkeypatch.setattr("lucius.buses.servicebus.identity.RETRIES", retries)
    monkeypatch.setattr("lucius.buses.servicebus.sending.CALL_SECONDS", 2.0)


@pytest.fixture
async def own_server() -> AsyncIterator[ServerThread]:
    """One that a test may stop."""
    thread = ServerThread(SharedKey("tests", "the right key"))
    yield thread
    await close_broken_sockets(thread.server.port)
    thread.end()


@pytest.fixture
def metrics() -> MetricsObserver:
    return MetricsObserver(SystemClock())


@pytest.fixture
async def bus(servicebus_server: ServerThread, metrics: MetricsObserver) -> AsyncIterator[ProvisionedBus]:
    bus = ProvisionedBus(
        servicebus_server, servicebus_server.clock(), busy_seconds=0.3, silence_seconds=1.5, observer=metrics
    )
    async with bus:
        await bus.declare([OCR])
        yield bus
    await close_broken_sockets(servicebus_server.server.port)
    await asyncio.to_thread(servicebus_server.forget)


async def until_healthy(bus: Bus) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            await bus.health()
            return
        except BusUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


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


async def still_said(bus: Bus, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """However often somebody looks: looking is not sending."""
    for _ in range(2):
        with pytest.raises(BusUnavailable, match=words):
            await bus.health()
    assert works_again(caplog) == ""


def works_again(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(one.getMessage() for one in caplog.records if "works again" in one.getMessage())


async def deferred(bus: Bus, name: str) -> str:
    """Why this message is not taken now."""
    [answer] = await bus.publish([message(name)])
    assert isinstance(answer, Deferred)
    return answer.reason


async def published(bus: Bus, name: str) -> None:
    """Again until it is taken, as the outbox does."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                [answer] = await bus.publish([message(name)])
                if answer is None:
                    return
                assert isinstance(answer, Deferred)
            except BusUnavailable:
                pass
            await asyncio.sleep(0.1)


async def test_broker_that_is_away_is_said_and_found_again(
    own_server: ServerThread, caplog: pytest.LogCaptureFixture
) -> None:
    async with ProvisionedBus(own_server, own_server.clock()) as bus:
        await bus.declare([OCR])
        await published(bus, "m1")
        await asyncio.to_thread(own_server.stop)
        await until_unavailable(bus, "out of reach")
        with pytest.raises(BusUnavailable):
            await bus.publish([message("m2")])
        assert f"127.0.0.1:{own_server.server.port}" in caplog.text
        await asyncio.to_thread(own_server.start)
        await published(bus, "m1")
        await published(bus, "m2")
        await until_healthy(bus)
        taken = await bus.receive(["lane"], "ocr", 10, 5.0, PATIENCE_SECONDS)
        taken += await bus.receive(["lane"], "ocr", 10, 5.0, 2.0) if len(taken) < 2 else []
        assert ids(taken) == ["m1", "m2"]
        assert "again" in caplog.text


async def test_wrong_key_is_said(own_server: ServerThread) -> None:
    from lucius.buses.servicebus import ServiceBusOptions

    wrong = ServiceBusOptions(connection=own_server.options.connection.replace("the right key", "a wrong one"))
    async with ProvisionedBus(own_server, own_server.clock(), options=wrong) as bus:
        await bus.declare([OCR])
        with pytest.raises(BusUnavailable, match="LUCIUS_SERVICEBUS_CONNECTION"):
            await bus.publish([message("m1")])
        await until_unavailable(bus, "refuses this process")


async def test_expired_tokens_and_dropped_links_are_survived(bus: ProvisionedBus) -> None:
    thread = bus.thread
    for number, hurt in enumerate((thread.server.expire_tokens, thread.server.drop_links, thread.server.drop_links)):
        await published(bus, f"before {number}")
        waiting = asyncio.create_task(bus.receive(["lane"], "ocr", 1, 30.0, PATIENCE_SECONDS))
        assert ids(await waiting) == [f"before {number}"]
        thread.run(hurt)
        await published(bus, f"after {number}")
        taken = await bus.receive(["lane"], "ocr", 1, 30.0, PATIENCE_SECONDS)
        assert ids(taken) == [f"after {number}"]
        await bus.settle([ref(f"before {number}"), ref(f"after {number}")])
    await until_healthy(bus)


async def test_lost_lock_is_an_expected_duplicate(bus: ProvisionedBus) -> None:
    await published(bus, "m1")
    assert ids(await bus.receive(["lane"], "ocr", 1, 30.0, 5.0)) == ["m1"]
    bus.thread.run(lambda: bus.thread.server.lose_locks("lane/Subscriptions/ocr"))
    await bus.settle([ref("m1")])
    await published(bus, "m2")
    assert ids(await bus.receive(["lane"], "ocr", 1, 30.0, 5.0)) == ["m2"]
    await bus.settle([ref("m2")])
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await asyncio.to_thread(bus.thread.bodies):
            await asyncio.sleep(0.05)


async def test_lock_whose_renewal_waits_behind_the_settlement_is_no_error(
    bus: ProvisionedBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As among hundreds of messages: so many calls may be made at once, and the rest waits."""
    await published(bus, "m1")
    assert ids(await bus.receive(["lane"], "ocr", 1, 30.0, 5.0)) == ["m1"]
    monkeypatch.setattr(bus._held, "_slots", asyncio.Semaphore(1))
    _, renewed = await asyncio.gather(bus.settle([ref("m1")]), bus.renew([ref("m1")], 3_600.0))
    assert renewed == [False]
    assert await asyncio.to_thread(bus.thread.bodies) == []


async def test_busy_is_said_until_a_message_is_taken(bus: ProvisionedBus, caplog: pytest.LogCaptureFixture) -> None:
    await published(bus, "m0")
    bus.thread.run(lambda: bus.thread.server.faults.busy("lane", times=1_000))
    assert "busy" in await deferred(bus, "m1")
    await still_said(bus, "is busy at topic lane", caplog)
    bus.thread.run(bus.thread.server.faults.clear)
    await published(bus, "m1")
    await until_healthy(bus)
    assert "topic lane" in works_again(caplog)


async def test_full_topic_is_said_until_there_is_room(bus: ProvisionedBus, caplog: pytest.LogCaptureFixture) -> None:
    await published(bus, "m0")
    settings = bus.thread.server.namespace.topic("lane").settings
    bytes_max = settings.size_bytes_max
    bus.thread.run(lambda: setattr(settings, "size_bytes_max", 1))
    assert "is full" in await deferred(bus, "m1")
    await still_said(bus, "topic lane on Service Bus at .* is full", caplog)
    bus.thread.run(lambda: setattr(settings, "size_bytes_max", bytes_max))
    await published(bus, "m1")
    await until_healthy(bus)
    assert "topic lane" in works_again(caplog)


async def test_missing_topic_and_subscription_are_said(bus: ProvisionedBus) -> None:
    await published(bus, "m0")
    await asyncio.to_thread(bus.thread.forget)
    await until_unavailable(bus, "lane/ocr is missing")
    assert re.search(r"topic lane is missing.*lucius bus provision", await deferred(bus, "m1"))
    await bus.declare([OCR])
    await published(bus, "m1")
    assert ids(await bus.receive(["lane"], "ocr", 1, 30.0, PATIENCE_SECONDS)) == ["m1"]
    await until_healthy(bus)


async def test_send_that_is_not_answered_is_unknown_and_repeated_without_a_duplicate(bus: ProvisionedBus) -> None:
    bus.thread.run(lambda: bus.thread.server.faults.forget_sends("lane", times=1))
    await published(bus, "m1")
    assert ids(await bus.receive(["lane"], "ocr", 10, 30.0, 5.0)) == ["m1"]
    assert await bus.receive(["lane"], "ocr", 10, 30.0, 0.5) == []


async def test_busy_topic_does_not_hold_up_the_others_while_the_sdk_tries_again(
    bus: ProvisionedBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.declare([Subscription(topic="other", name="ocr")])
    await published(bus, "m0")
    bus.thread.run(lambda: bus.thread.server.faults.busy("lane", times=1_000))
    assert "busy" in await deferred(bus, "m1")
    sender = bus._senders["lane"]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while asyncio.get_running_loop().time() < sender._held_up[0]:
            await asyncio.sleep(0.05)
    assert sender._sender is not None
    sender._sender._config.retry_backoff_factor = sender._sender._config.retry_backoff_max = 100
    for name in ("CALL_SECONDS", "HARD_SECONDS"):
        monkeypatch.setattr(f"lucius.buses.servicebus.sending.{name}", 600.0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        answers = await bus.publish([message("m2"), message("m3", "other")])
    assert isinstance(answers[0], Deferred)
    assert "busy" in answers[0].reason
    assert answers[1] is None


async def test_topic_that_does_not_answer_holds_up_the_others_for_a_moment(
    bus: ProvisionedBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK waits for ten seconds, and what was published with it waited as long, again and again."""
    monkeypatch.setattr("lucius.buses.servicebus.sending.CALL_SECONDS", 10.0)
    await bus.declare([Subscription(topic="other", name="ocr")])
    assert await bus.publish([message("m0"), message("other", "other")]) == [None, None], "both are open"
    bus.thread.run(lambda: bus.thread.server.faults.forget_sends("lane", times=1_000))
    seconds = []
    for number in range(2):
        began = asyncio.get_running_loop().time()
        answers = await bus.publish([message("m1"), message(f"other{number}", "other")])
        seconds.append(asyncio.get_running_loop().time() - began)
        assert isinstance(answers[0], Deferred)
        assert "topic lane on Service Bus" in answers[0].reason
        assert "does not answer, and others do" in answers[0].reason
        assert answers[1] is None
        await asyncio.sleep(0.2)
    assert seconds[1] < SILENT_SECONDS <= seconds[0], "later ones hardly wait for it"
    assert "does not answer" in await deferred(bus, "m1"), "the bus as a whole takes messages"
    bus.thread.run(bus.thread.server.faults.clear)
    await published(bus, "m1")
    assert ids(await bus.receive(["lane"], "ocr", 10, 30.0, PATIENCE_SECONDS)) == ["m0", "m1"], "and only once"


async def test_only_topic_that_does_not_answer_is_the_whole_bus(
    bus: ProvisionedBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("SILENT_SECONDS", 0.2), ("CALL_SECONDS", 1.0)):
        monkeypatch.setattr(f"lucius.buses.servicebus.sending.{name}", seconds)
    await published(bus, "m0")
    bus.thread.run(lambda: bus.thread.server.faults.forget_sends("lane", times=1_000))
    with pytest.raises(BusUnavailable, match="does not answer about topic lane"):
        await bus.publish([message("m1")])
    bus.thread.run(bus.thread.server.faults.clear)
    await published(bus, "m1")


async def test_idle_sender_is_replaced_before_a_message_needs_it(bus: ProvisionedBus) -> None:
    """The service detaches idle links, and the send that finds out takes seconds."""
    made: list[ServiceBusSender] = []

    def make() -> ServiceBusSender:
        made.append(bus._client.get_topic_sender("lane"))
        return made[-1]

    sender = TopicSender("lane", make, bus.problems, idle_seconds=0.2)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(made) < 3:
                await asyncio.sleep(0.05)
        assert made[0]._shutdown.is_set(), "closed"
        assert await sender.send([ServiceBusMessage(b"after the pause", message_id="m1")]) == [None]
    finally:
        await sender.close()
    assert ids(await bus.receive(["lane"], "ocr", 1, 30.0, PATIENCE_SECONDS)) == ["m1"]


async def test_receiver_that_hangs_is_replaced(bus: ProvisionedBus) -> None:
    await published(bus, "m0")
    assert ids(await bus.receive(["lane"], "ocr", 1, 30.0, 5.0)) == ["m0"]
    await bus.settle([ref("m0")])
    bus.thread.run(lambda: bus.thread.server.faults.stall("lane"))
    await published(bus, "m1")
    waiting = asyncio.create_task(bus.receive(["lane"], "ocr", 1, 30.0, PATIENCE_SECONDS))
    lane = bus._receiving.lanes["lane", "ocr"]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not lane.replaced:
            await asyncio.sleep(0.05)
    bus.thread.run(bus.thread.server.faults.clear)
    assert ids(await waiting) == ["m1"]


async def test_message_of_somebody_else_is_a_dead_letter_and_stops_nobody(
    bus: ProvisionedBus, metrics: MetricsObserver
) -> None:
    async with (
        ServiceBusClient.from_connection_string(bus.options.connection) as client,
        client.get_topic_sender("lane") as sender,
    ):
        await sender.send_messages(AmqpAnnotatedMessage(value_body={"not": "data"}))
        await sender.send_messages(ServiceBusMessage(b"stray", application_properties={"service": "ocr"}))
    await published(bus, "m1")
    taken = await bus.receive(["lane"], "ocr", 10, 30.0, 10.0)
    while len(taken) < 2:
        taken += await bus.receive(["lane"], "ocr", 10, 30.0, 10.0)
    assert ids(taken)[-1] == "m1"
    async with asyncio.timeout(10):
        while not (letters := await bus.dead_letters(10)):
            await asyncio.sleep(0.05)
    assert letters[0].reason.startswith("FOREIGN")
    async with asyncio.timeout(10):
        while refused(metrics) != {("lane", "FOREIGN"): 1.0}:
            await asyncio.sleep(0.05)


async def test_messages_that_nobody_asked_for_are_released_and_not_counted(bus: ProvisionedBus) -> None:
    """A caller that stops to ask leaves no message locked, and no delivery counted."""
    waiting = asyncio.create_task(bus.receive(["lane"], "ocr", 5, 30.0, PATIENCE_SECONDS))
    await asyncio.sleep(1.0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await published(bus, "at once")
    async with ProvisionedBus(bus.thread, bus.thread.clock()) as other, asyncio.timeout(PATIENCE_SECONDS):
        for name in ("at once", "later"):
            [delivery] = await other.receive(["lane"], "ocr", 1, 30.0, PATIENCE_SECONDS)
            assert (delivery.ref, delivery.delivery_count) == (ref(name), 1)
            await other.settle([delivery.ref])
            if name == "at once":
                await asyncio.sleep(2.0)  # The first client rests by now.
                await published(bus, "later")


async def test_larger_demand_is_met_by_the_same_receiver(bus: ProvisionedBus) -> None:
    names = [f"m{number:02d}" for number in range(21)]
    assert await bus.publish([message(name) for name in names]) == [None] * len(names)
    taken = await bus.receive(["lane"], "ocr", 1, 30.0, 10.0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(taken) < len(names):
            taken += await bus.receive(["lane"], "ocr", 50, 30.0, 5.0)
    assert ids(taken) == names
    await bus.settle([delivery.ref for delivery in taken])
    assert await asyncio.to_thread(bus.thread.bodies) == []
