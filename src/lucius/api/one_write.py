"""Answers leave in one write instead of two: uvicorn writes the header of an answer, then its body."""

from __future__ import annotations

import asyncio


class OneWrite:
    """What one answer is written to: its header leaves together with the first part of its body, since each write is a
    packet and a wake-up of the client. If no body follows at once, the header leaves alone."""

    __slots__ = ("_header", "_is_begun", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._is_begun = False
        self._header: bytes | None = None

    def write(self, data: bytes) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._header = data
            self._loop.call_soon(self._flush)
            return
        if self._header is not None:
            data, self._header = self._header + data, None
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._header is not None:
            header, self._header = self._header, None
            if not self._transport.is_closing():
                self._transport.write(header)
