"""Errors of the SDK are the bus's; the same errors from code of LUCIUS are defects, and are told as such."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from tests.servicebus_server import ProvisionedBus, ServerThread

from lucius.buses.servicebus.faults import SdkFault, sdk_call
from lucius.buses.servicebus.lane import release
from lucius.ports.bus import BusUnavailable, Subscription
from lucius.testing.bus_publishing import ids, message

OCR = Subscription(topic="lane", name="ocr")
PATIENCE_SECONDS = 20.0


@pytest.fixture
async def bus(servicebus_server: ServerThread) -> AsyncIterator[ProvisionedBus]:
    async with ProvisionedBus(servicebus_server, servicebus_server.clock()) as bus:
        await bus.declare([OCR])
        yield bus
    await asyncio.to_thread(servicebus_server.forget)


async def test_error_from_inside_the_sdk_is_the_bus_s(servicebus_server: ServerThread) -> None:
    async with ServiceBusClient.from_connection_string(servicebus_server.options.connection) as client:
        sender = client.get_topic_sender("lane")
        await sender.close()
        with pytest.raises(
            SdkFault, match="ValueError in the SDK"
        ) as raised:  # "The handler has already been shutdown"
            async with sdk_call(5.0):
                await sender.send_messages(ServiceBusMessage(b"x"))
        assert isinstance(raised.value.__cause__, ValueError)


async def test_error_that_asyncio_raises_for_the_sdk_is_the_bus_s() -> None:
    """As when two calls read from one connection: the innermost frames are asyncio's."""
    from azure.servicebus._pyamqp.aio._transport_async import AsyncTransport

    transport = AsyncTransport("localhost")
    transport.connected = True
    transport.reader = reader = asyncio.StreamReader()
    waiting = asyncio.create_task(reader.readexactly(1))
    await asyncio.sleep(0)
    with pytest.raises(SdkFault, match="RuntimeError in the SDK: readexactly"):
        async with sdk_call(5.0):
            await transport._read(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("kind", [TypeError, AttributeError, RuntimeError, ValueError])
async def test_error_of_lucius_passes_as_it_is(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise kind("a defect")

    monkeypatch.setattr("lucius.buses.servicebus.messages.instant_of", fail)
    from lucius.buses.servicebus import messages

    with pytest.raises(kind, match="a defect"):
        async with sdk_call(5.0):
            messages.instant_of(None)  # type: ignore[arg-type]


async def test_errors_of_the_sdk_s_inner_layers_are_the_bus_s() -> None:
    from azure.servicebus._pyamqp._decode import decode_payload

    with pytest.raises(SdkFault, match="in the SDK"):
        async with sdk_call(5.0):
            decode_payload(memoryview(b"\x00\x53"))


async def test_public_errors_of_the_sdk_pass_as_they_are() -> None:
    from azure.servicebus import ServiceBusMessageBatch
    from azure.servicebus.exceptions import MessageSizeExceededError

    with pytest.raises(MessageSizeExceededError):  # A ValueError too.
        async with sdk_call(5.0):
            ServiceBusMessageBatch(max_size_in_bytes=10).add_message(ServiceBusMessage(b"x" * 100))


async def test_call_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        async with sdk_call(0.01):
            await asyncio.Event().wait()


async def test_message_of_a_closed_receiver_needs_no_release() -> None:
    await release(SimpleNamespace(_handler=None), SimpleNamespace())  # type: ignore[arg-type]


async def test_defect_while_sending_is_told_as_one_and_sending_goes_on(
    bus: ProvisionedBus, caplog: pytest.LogCaptureFixture
) -> None:
    sender = bus._sender("lane")
    make = sender._make
    await sender.check()
    await sender._drop()

    def broken() -> Any:
        sender._make = make
        raise TypeError("a defect")

    sender._make = broken
    with pytest.raises(BusUnavailable, match=r"topic lane: LUCIUS itself failed.*Report this defect"):
        await bus.publish([message("m1")])
    assert "Traceback" in caplog.text
    assert await bus.publish([message("m1")]) == [None]


async def test_defect_while_receiving_is_told_as_one_and_receiving_goes_on(
    bus: ProvisionedBus, caplog: pytest.LogCaptureFixture
) -> None:
    make, failures = bus._receiving._make, [TypeError("a defect")]

    def broken(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return make(*given)

    bus._receiving._make = broken
    assert await bus.publish([message("m1")]) == [None]
    assert ids(await bus.receive(["lane"], "ocr", 1, 30.0, PATIENCE_SECONDS)) == ["m1"]
    assert "subscription lane/ocr: LUCIUS itself failed, and tries again: TypeError: a defect" in caplog.text
    assert "out of reach" not in caplog.text


async def test_sdk_that_fails_is_told_as_such(bus: ProvisionedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucius.buses.servicebus.bus.to_wire", lambda *_: SimpleNamespace(broken=True))
    with pytest.raises(BusUnavailable, match=r"Azure's SDK failed with topic lane.*TypeError in the SDK"):
        await bus.publish([message("m1")])
