"""One client's connection: SASL, open, sessions, heartbeats, and an end for whatever is malformed or silent."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from lucius.testing.servicebus.amqp_session import AmqpSession
from lucius.testing.servicebus.attaching import Attacher
from lucius.testing.servicebus.codec import DecodeError, decode
from lucius.testing.servicebus.frames import (
    AMQP,
    FRAME_BYTES_MAX,
    PROTOCOL_AMQP,
    PROTOCOL_SASL,
    SASL,
    Frame,
    FrameReader,
    ProtocolHeader,
    frame,
)
from lucius.testing.servicebus.link import ReceiverLink
from lucius.testing.servicebus.performatives import (
    AmqpError,
    Begin,
    Close,
    Composite,
    End,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    read,
)
from lucius.testing.servicebus.requests import Requests
from lucius.testing.servicebus.tokens import Authorization
from lucius.testing.servicebus.types import Array, Symbol

if TYPE_CHECKING:
    from lucius.testing.servicebus.server import ServiceBusServer

SESSIONS_MAX = 256
FRAME_BYTES_MIN = 512
OPEN_SECONDS_MAX = 30.0
"""How long a client may take until its open."""
IDLE_SECONDS_MAX = 240.0
"""A client that sends nothing for so long, heartbeats included, is gone."""
BUFFER_BYTES_MAX = 1024 * 1024
"""What waits for a client to read before deliveries to it pause."""
READ_BYTES = 65_536
SASL_OK, SASL_AUTH_FAILED = 0, 1
MECHANISMS = ("ANONYMOUS", "PLAIN", "EXTERNAL", "MSSBCBS")

_log = logging.getLogger(__name__)


class Connection:
    def __init__(self, server: ServiceBusServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.faults = server.faults
        self.authorization = Authorization()
        requests = Requests(server.broker, self.authorization, server.tokens)
        self.attacher = Attacher(server.broker, self.authorization, requests, server.message_bytes_max)
        self.sessions: dict[int, AmqpSession] = {}
        self.frame_bytes_max = FRAME_BYTES_MIN
        self._broker = server.broker
        self._tokens = server.tokens
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._is_open = False
        self._is_closed = False
        self._heartbeat: asyncio.Task[None] | None = None
        self._drain: asyncio.Task[None] | None = None
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX)

    async def run(self) -> None:
        """Until the client closes, breaks a rule, falls silent or is dropped."""
        try:
            while not self._is_closed:
                seconds = IDLE_SECONDS_MAX if self._is_open else OPEN_SECONDS_MAX
                async with asyncio.timeout(seconds):
                    data = await self._reader.read(READ_BYTES)
                if not data:
                    break
                self._receive(data)
                async with asyncio.timeout(seconds):
                    await self._writer.drain()
        except TimeoutError:
            _log.info("A client was silent for too long and is disconnected.")
        except ConnectionError as error:
            _log.debug("A client is gone: %s", error)
        finally:
            await self._end()

    def drop(self) -> None:
        """Ends the connection as a broken network does."""
        self._writer.transport.abort()

    # --- Out ---------------------------------------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        """The client does not read what was sent: deliveries wait until it does."""
        if self._writer.transport.get_write_buffer_size() <= BUFFER_BYTES_MAX:
            return False
        if self._drain is None or self._drain.done():
            self._drain = asyncio.ensure_future(self._resume_when_drained())
        return True

    def send(self, channel: int, body: bytes) -> None:
        if not self._is_closed:
            self._writer.write(frame(AMQP, channel, body))

    def resume(self, session: AmqpSession) -> None:
        """Delivers what waited for the session's window, or for the client to read."""
        for queue in {link.queue for link in session.links.values() if isinstance(link, ReceiverLink)}:
            self._broker.pump(queue)

    async def _resume_when_drained(self) -> None:
        try:
            await self._writer.drain()
        except ConnectionError:
            return  # The reading side notices too, and ends the connection.
        for session in list(self.sessions.values()):
            self.resume(session)

    async def _send_heartbeats(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self.send(0, b"")

    # --- In ----------------------------------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        try:
            for received in self._frames.feed(data):
                if isinstance(received, ProtocolHeader):
                    self._on_header(received)
                elif received.kind == SASL:
                    self._on_sasl(received)
                elif received.body:
                    self._on_frame(received)
                if self._is_closed:
                    return
        except DecodeError as error:
            _log.info("A client sent what cannot be read: %s", error)
            self._close(AmqpError(condition=Symbol("amqp:decode-error"), description=str(error)))

    def _on_header(self, header: ProtocolHeader) -> None:
        if header.protocol not in (PROTOCOL_AMQP, PROTOCOL_SASL) or header.version != (1, 0, 0):
            self._writer.write(ProtocolHeader(PROTOCOL_SASL).encoded())
            self._is_closed = True
            return
        self._writer.write(header.encoded())
        if header.protocol == PROTOCOL_SASL:
            mechanisms = SaslMechanisms(mechanisms=Array(Symbol(name) for name in MECHANISMS))
            self._writer.write(frame(SASL, 0, mechanisms.encoded()))

    def _on_sasl(self, received: Frame) -> None:
        init = read(decode(received.body)[0])
        if not isinstance(init, SaslInit):
            raise DecodeError("Of SASL's frames only the init is expected.")
        is_plain = init.mechanism == "PLAIN"
        accepted = self._tokens.accepts_plain(init.initial_response) if is_plain else init.mechanism in MECHANISMS
        if accepted and is_plain:
            self.authorization.allow_everything()
        outcome = SaslOutcome(outcome=SASL_OK if accepted else SASL_AUTH_FAILED)
        self._writer.write(frame(SASL, 0, outcome.encoded()))
        self._is_closed = not accepted

    def _on_frame(self, received: Frame) -> None:
        value, end = decode(received.body)
        performative = read(value)
        if isinstance(performative, Open):
            self._on_open(performative)
        elif isinstance(performative, Close):
            self._close(None)
        elif not self._is_open:
            raise DecodeError("A connection starts with an open.")
        elif isinstance(performative, Begin):
            self._on_begin(received.channel, performative)
        elif isinstance(performative, End):
            self._on_end(received.channel)
        else:
            session = self.sessions.get(received.channel)
            if session is not None:  # Frames may still arrive for a session that has just ended.
                session.on_frame(performative, received.body[end:])

    def _on_open(self, opened: Open) -> None:
        if self._is_open:
            raise DecodeError("A connection is opened once.")
        self._is_open = True
        self.frame_bytes_max = max(FRAME_BYTES_MIN * 2, min(opened.max_frame_size or FRAME_BYTES_MAX, FRAME_BYTES_MAX))
        answer = Open(
            container_id="lucius-servicebus",
            max_frame_size=FRAME_BYTES_MAX,
            channel_max=SESSIONS_MAX - 1,
            idle_time_out=int(IDLE_SECONDS_MAX * 1000 / 2),
        )
        self.send(0, answer.encoded())
        if opened.idle_time_out:
            self._heartbeat = asyncio.ensure_future(self._send_heartbeats(max(opened.idle_time_out / 2000, 0.1)))

    def _on_begin(self, channel: int, begin: Begin) -> None:
        if channel in self.sessions or channel >= SESSIONS_MAX:
            raise DecodeError(f"The channel {channel} is in use, or above the maximum of {SESSIONS_MAX - 1}.")
        session = AmqpSession(self, channel, begin)
        self.sessions[channel] = session
        session.send(session.begun())

    def _on_end(self, channel: int) -> None:
        session = self.sessions.pop(channel, None)
        if session is not None:
            session.end()
            self._send_performative(channel, End())

    # --- The end -----------------------------------------------------------------------------------------------------

    def _close(self, error: AmqpError | None) -> None:
        self._send_performative(0, Close(error=error))
        self._is_closed = True

    def _send_performative(self, channel: int, performative: Composite) -> None:
        self.send(channel, performative.encoded())

    async def _end(self) -> None:
        self._is_closed = True
        for task in (self._heartbeat, self._drain):
            if task is not None:
                task.cancel()
        for session in list(self.sessions.values()):
            session.end()
        self.sessions.clear()
        self._writer.close()
