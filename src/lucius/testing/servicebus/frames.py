"""Bytes from a socket to frames and protocol headers: no sockets here, and no frame beyond the limit."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from lucius.testing.servicebus.codec import DecodeError

FRAME_BYTES_MAX = 65_536
AMQP, SASL = 0, 1
"""Types of frames."""
PROTOCOL_AMQP, PROTOCOL_SASL = 0, 3
HEADER_BYTES = 8


@dataclass(frozen=True, slots=True)
class ProtocolHeader:
    protocol: int
    version: tuple[int, int, int] = (1, 0, 0)

    def encoded(self) -> bytes:
        return b"AMQP" + bytes([self.protocol, *self.version])


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    channel: int
    body: bytes


class FrameReader:
    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[ProtocolHeader | Frame]:
        """What is complete by now; raises `DecodeError` as soon as a frame cannot be one."""
        self._buffer += data
        while len(self._buffer) >= HEADER_BYTES:
            head = bytes(self._buffer[:HEADER_BYTES])
            if head[:4] == b"AMQP":
                del self._buffer[:HEADER_BYTES]
                yield ProtocolHeader(head[4], (head[5], head[6], head[7]))
                continue
            size, offset, kind, channel = struct.unpack(">IBBH", head)
            body_at = offset * 4
            if size > FRAME_BYTES_MAX:
                raise DecodeError(f"A frame has {size} bytes; at most {FRAME_BYTES_MAX} are allowed.")
            if body_at < HEADER_BYTES or body_at > size or kind not in (AMQP, SASL):
                raise DecodeError("The head of a frame is malformed.")
            if len(self._buffer) < size:
                return
            body = bytes(self._buffer[body_at:size])
            del self._buffer[:size]
            yield Frame(kind, channel, body)


def frame(kind: int, channel: int, body: bytes = b"") -> bytes:
    return struct.pack(">IBBH", len(body) + HEADER_BYTES, 2, kind, channel) + body
