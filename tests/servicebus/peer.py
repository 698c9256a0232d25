"""A client of the test server that says exactly what a test wants, in frames."""

from __future__ import annotations

import asyncio

from lucius.testing.servicebus.codec import decode, encode
from lucius.testing.servicebus.frames import AMQP, FRAME_BYTES_MAX, SASL, Frame, FrameReader, ProtocolHeader, frame
from lucius.testing.servicebus.performatives import (
    CLIENT_RECEIVES,
    CLIENT_SENDS,
    Attach,
    Begin,
    Close,
    Composite,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    read,
)
from lucius.testing.servicebus.server import ServiceBusServer
from lucius.testing.servicebus.types import Described, Symbol, ULong

PLAIN = Open(container_id="c", hostname="h", max_frame_size=FRAME_BYTES_MAX)
SECONDS = 5.0
BODY = encode(Described(ULong(0x75), b"hello"))


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._frames = reader, writer, FrameReader()
        self._received: list[ProtocolHeader | Frame] = []

    @classmethod
    async def connect(cls, server: ServiceBusServer) -> Peer:
        return cls(*await asyncio.open_connection(server.host, server.port))

    @classmethod
    async def opened(cls, server: ServiceBusServer) -> Peer:
        """Through SASL PLAIN to a session on channel 0."""
        peer = await cls.connect(server)
        peer.write(ProtocolHeader(3).encoded())
        peer.write(frame(SASL, 0, SaslInit(mechanism=Symbol("PLAIN"), initial_response=b"\0k\0v").encoded()))
        assert await peer.next() == ProtocolHeader(3)
        assert isinstance(await peer.performative(), SaslMechanisms)
        assert await peer.performative() == SaslOutcome(outcome=0)
        peer.write(ProtocolHeader(0).encoded())
        peer.send(PLAIN)
        peer.send(Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100))
        assert await peer.next() == ProtocolHeader(0)
        assert isinstance(await peer.performative(), Open)
        assert isinstance(await peer.performative(), Begin)
        return peer

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, performative: Composite, payload: bytes = b"", channel: int = 0) -> None:
        self.write(frame(AMQP, channel, performative.encoded() + payload))

    async def next(self) -> ProtocolHeader | Frame | None:
        """None: the server closed."""
        async with asyncio.timeout(SECONDS):
            while not self._received:
                try:
                    data = await self._reader.read(65_536)
                except ConnectionError:
                    return None
                if not data:
                    return None
                self._received += self._frames.feed(data)
        return self._received.pop(0)

    async def performative(self) -> Composite | None:
        received = await self.next()
        return read(decode(received.body)[0]) if isinstance(received, Frame) else None

    async def until(self, kind: type[Composite]) -> Composite:
        while not isinstance(found := await self.performative(), kind):
            assert found is not None, f"closed without {kind.__name__}"
        return found

    async def closed(self) -> bool:
        while await self.next() is not None:
            pass
        await self.close()
        return True

    async def close(self) -> None:
        self._writer.close()
        await asyncio.sleep(0)

    def attach_receiver(self, address: str, handle: int = 0, credit: int = 0, drain: bool | None = None) -> None:
        source = Source(address=address)
        target = Target(address="me")
        self.send(Attach(name=f"r{handle}", handle=handle, role=CLIENT_RECEIVES, source=source, target=target))
        self.flow(handle, credit, drain)

    def flow(self, handle: int, credit: int, drain: bool | None = None) -> None:
        window = {"next_incoming_id": 1, "incoming_window": 100, "next_outgoing_id": 0, "outgoing_window": 100}
        self.send(Flow(**window, handle=handle, delivery_count=0, link_credit=credit, drain=drain))  # type: ignore[arg-type]

    def attach_sender(self, address: str, handle: int = 0) -> None:
        source, target = Source(address="me"), Target(address=address)
        self.send(Attach(name="s", handle=handle, role=CLIENT_SENDS, source=source, target=target))


async def still_serves(server: ServiceBusServer) -> bool:
    peer = await Peer.opened(server)
    peer.send(Close())
    return isinstance(await peer.until(Close), Close) and await peer.closed()
