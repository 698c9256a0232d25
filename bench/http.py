"""A keep-alive HTTP/1.1 client that costs next to nothing, since it shares two cores with the server it measures.

One request at a time per connection, heads rendered once, answers with a Content-Length only. It has no timeouts of its
own: whoever starts the process bounds it.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, cast

END_OF_HEAD = b"\r\n\r\n"


class HttpError(Exception):
    """The connection broke, or the answer is one this client does not understand."""


def render_head(method: str, path: str, *, api_key: str = "") -> bytes:
    """Everything before the length of the body, which each request fills in."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    if api_key:
        lines.append(f"Authorization: Bearer {api_key}")
    return ("\r\n".join(lines) + "\r\nContent-Length: ").encode()


class Connection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._received = bytearray()
        self._body_from = 0
        self._ends_at = 0

    @classmethod
    async def open(cls, port: int) -> Self:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(loop), "127.0.0.1", port)
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def request(self, head: bytes, body: bytes = b"") -> tuple[int, bytes]:
        if self._transport is None or self._answer is not None:
            raise HttpError("the connection is closed, or has a request under way")
        answer: asyncio.Future[tuple[int, bytes]] = self._loop.create_future()
        self._answer = answer
        self._transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        return await answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are such in all but their ancestry.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail(f"the server closed the connection: {error or 'no reason given'}")

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if self._ends_at == 0 and not self._read_head():
            return
        if len(received) < self._ends_at:
            return
        status, body = int(received[9:12]), bytes(received[self._body_from : self._ends_at])
        del received[: self._ends_at]
        self._ends_at = 0
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result((status, body))

    def _read_head(self) -> bool:
        end = self._received.find(END_OF_HEAD)
        if end < 0:
            return False
        head = bytes(self._received[: end + 2]).lower()
        at = head.find(b"\r\ncontent-length:")
        if at < 0 and head[9:12] != b"204":
            self._fail(f"an answer without Content-Length: {head[:200]!r}")
            self.close()
            return False
        length = 0 if at < 0 else int(head[at + 17 : head.index(b"\r\n", at + 17)])
        self._body_from = end + 4
        self._ends_at = self._body_from + length
        return True

    def _fail(self, reason: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(HttpError(reason))
