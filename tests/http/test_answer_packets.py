"""How answers travel: header and body in one packet, but the header of a stream at once."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from tests.http.conftest import KEY, PATIENCE_SECONDS, Http, Wire, head

from lucius.api.one_write import OneWrite

DATA_SEGMENTS_IN_AT = 152
"""Where `tcpi_data_segs_in` is in Linux's `tcp_info`."""


def packets(wire: Wire) -> int:
    """Packets with data that were received."""
    info = wire.writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    found: int = struct.unpack_from("I", info, DATA_SEGMENTS_IN_AT)[0]
    return found


async def test_header_and_body_are_one_packet(http: Http) -> None:
    wire = await http.wire()
    for _ in range(5):
        assert (await wire.get("/v1/jobs", Authorization=f"Bearer {KEY}")).status == 200
        assert (await wire.get()).status == 200
    assert packets(wire) == 10


async def test_answer_to_head_is_its_header(http: Http) -> None:
    wire = await http.wire()
    await wire.send(head("HEAD", "/healthz"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await wire.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 ")
    assert (await wire.get()).status == 200


LONG = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Writes(asyncio.Protocol):
    """A server that writes a header, and the rest when it is told to."""

    def __init__(self, header: bytes, answers: asyncio.Queue[OneWrite]) -> None:
        self._header = header
        self._answers = answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        answer = OneWrite(cast(asyncio.Transport, transport))
        answer.write(self._header)
        self._answers.put_nowait(answer)


@asynccontextmanager
async def answering(header: bytes) -> AsyncIterator[tuple[OneWrite, asyncio.StreamReader]]:
    answers: asyncio.Queue[OneWrite] = asyncio.Queue()
    server = await asyncio.get_running_loop().create_server(lambda: Writes(header, answers), "127.0.0.1", 0)
    async with server, asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield await answers.get(), reader
        writer.close()


async def test_header_of_a_stream_does_not_wait_for_its_body() -> None:
    async with answering(STREAM) as (answer, reader):
        assert await reader.readexactly(len(STREAM)) == STREAM
        answer.write(b"body")
        answer.write(b"more")
        assert await reader.readexactly(8) == b"bodymore"
        answer.close()
        assert await reader.read() == b""


async def test_header_leaves_before_the_connection_is_closed() -> None:
    async with answering(LONG) as (answer, reader):
        answer.close()
        assert await reader.read() == LONG
