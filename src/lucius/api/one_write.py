"""Answers leave in one write instead of two: uvicorn writes the header of an answer, then its body."""

from __future__ import annotations

import asyncio


class OneWrite:
    """What one answer is written to. A header that tells the body's length leaves together with the first part of the
    body, since each write is a packet and a wake-up of the client; any other header leaves at once."""

    __slots__ = ("_header", "_is_begun", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_begun = False
        self._header: bytes | None = None

    def write(self, data: bytes) -> None:
        if not self._is_begun:
            self._is_begun = True
            if b"\r\ncontent-length: " in data:
                self._header = data
                return
        elif self._header is not None:
            data, self._header = self._header + data, None
        self._transport.write(data)

    def flush(self) -> None:
        """The answer is complete: to `HEAD`, it has no body."""
        if self._header is not None:
            header, self._header = self._header, None
            if not self._transport.is_closing():
                self._transport.write(header)

    def close(self) -> None:
        self.flush()
        self._transport.close()
