"""The server's port under whatever bytes arrive: it answers or closes, never hangs, and goes on serving others."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from peer import BODY, PLAIN, Peer, still_serves

from lucius.testing.servicebus.frames import AMQP, SASL, ProtocolHeader, frame
from lucius.testing.servicebus.message import BATCH_FORMAT
from lucius.testing.servicebus.performatives import (
    CLIENT_SENDS,
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    Flow,
    Rejected,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
    Transfer,
    read,
)
from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.settings import NamespaceSettings, QueueSettings
from lucius.testing.servicebus.types import Described, Symbol, ULong

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[ServiceBusServer]:
    queues = {name: QueueSettings() for name in ("work", "drain", "window", "batch")}
    async with ServiceBusServer(NamespaceSettings(queues)) as started:
        yield started


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\x02\x01\x00\x00",
        b"AMQP\x00\x00\x09\x01",
        struct.pack(">IBBH", 2**31, 2, 0, 0),
        frame(AMQP, 0, b"\xff\xff"),
        frame(AMQP, 0, PLAIN.encoded()) * 2,
        frame(AMQP, 0, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1).encoded()),
        frame(SASL, 0, SaslOutcome(outcome=0).encoded()),
        frame(SASL, 0, SaslInit(mechanism=Symbol("ODD")).encoded()),
    ],
    ids=["HTTP", "TLS", "version", "huge", "garbage", "two opens", "no open", "server's frame", "mechanism"],
)
async def test_a_client_that_breaks_the_rules_is_disconnected(server: ServiceBusServer, data: bytes) -> None:
    peer = await Peer.connect(server)
    peer.write(data)
    assert await peer.closed()
    assert await still_serves(server)


@pytest.mark.parametrize(
    "sent",
    [
        Attach(name="x", handle=9_999, role=True),
        Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1),
        SaslInit(mechanism=Symbol("PLAIN")),
    ],
    ids=["handle", "second begin", "SASL on a session"],
)
async def test_a_broken_rule_on_a_session_closes_with_the_reason(server: ServiceBusServer, sent: Composite) -> None:
    peer = await Peer.opened(server)
    peer.send(sent)
    closing = await peer.until(Close)
    assert isinstance(closing, Close)
    assert read(closing.error).condition == "amqp:decode-error"  # type: ignore[attr-defined]
    assert await peer.closed()


async def test_credit_and_drain_are_kept_exactly(server: ServiceBusServer) -> None:
    peer = await Peer.opened(server)
    peer.attach_sender("drain", handle=5)
    for number in range(3):
        tag = bytes([number])
        peer.send(Transfer(handle=5, delivery_id=number, delivery_tag=tag, settled=True), BODY)
    peer.attach_receiver("drain", credit=2)
    for _ in range(2):
        await peer.until(Transfer)
    peer.flow(0, 10, drain=True)
    transfer, flow = await peer.until(Transfer), await peer.until(Flow)
    assert isinstance(transfer, Transfer)
    assert isinstance(flow, Flow)
    assert (flow.drain, flow.link_credit, flow.delivery_count) == (True, 0, 10)
    peer.send(Detach(handle=0, closed=True))
    await peer.until(Detach)
    await peer.close()


async def test_no_more_is_sent_than_the_session_window_allows(server: ServiceBusServer) -> None:
    peer = await Peer.opened(server)
    server.broker.publish("window", [])
    peer.attach_sender("window", handle=5)
    for number in range(5):
        peer.send(Transfer(handle=5, delivery_id=number, delivery_tag=b"t", settled=True), BODY)
    peer.attach_receiver("window")
    await peer.until(Flow)
    peer.send(
        Flow(next_incoming_id=1, incoming_window=2, next_outgoing_id=5, outgoing_window=9, handle=0, link_credit=5)
    )
    for _ in range(2):
        await peer.until(Transfer)
    peer.send(Flow(next_incoming_id=3, incoming_window=0, next_outgoing_id=5, outgoing_window=9, echo=True))
    assert isinstance(await peer.until(Flow), Flow)
    peer.send(Flow(next_incoming_id=3, incoming_window=9, next_outgoing_id=5, outgoing_window=9))
    for _ in range(3):
        await peer.until(Transfer)
    await peer.close()


async def test_a_malformed_message_is_rejected_and_the_link_stays(server: ServiceBusServer) -> None:
    peer = await Peer.opened(server)
    peer.attach_sender("batch")
    for number, (kind, payload) in enumerate([(0, b"\xff"), (BATCH_FORMAT, BODY), (0, BODY)]):
        tag = bytes([number])
        peer.send(Transfer(handle=0, delivery_id=number, delivery_tag=tag, message_format=kind), payload)
    states = [read((await peer.until(Disposition)).state) for _ in range(3)]  # type: ignore[attr-defined]
    assert [type(state) for state in states] == [Rejected, Rejected, Accepted]
    await peer.close()


async def test_attaching_needs_a_token_an_address_and_no_transaction(server: ServiceBusServer) -> None:
    peer = await Peer.connect(server)
    peer.write(ProtocolHeader(0).encoded())
    peer.send(PLAIN)
    peer.send(Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100))
    peer.attach_sender("work")
    assert await peer.next() == ProtocolHeader(0)
    refused = await peer.until(Detach)
    assert read(refused.error).condition == "amqp:unauthorized-access"  # type: ignore[attr-defined]
    await peer.close()
    peer = await Peer.opened(server)
    coordinator = Described(ULong(0x30), [])
    for target in (None, Target(), coordinator):
        peer.send(Attach(name="t", handle=1, role=CLIENT_SENDS, source=Source(), target=target))
        refused = await peer.until(Detach)
        assert read(refused.error).condition == "amqp:not-implemented"  # type: ignore[attr-defined]
    await peer.close()
