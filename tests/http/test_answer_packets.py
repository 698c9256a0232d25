"""How answers travel: header and body in one packet, and the header alone if there is no body yet."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

from tests.http.conftest import KEY, PATIENCE_SECONDS, Http, Wire

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


class Writes(asyncio.Protocol):
    """A server that writes the header, and the rest when it is told to."""

    def __init__(self, written: asyncio.Queue[OneWrite]) -> None:
        self._written = written

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        answer = OneWrite(cast(asyncio.Transport, transport), asyncio.get_running_loop())
        answer.write(b"header")
        self._written.put_nowait(answer)


async def test_header_does_not_wait_for_a_body_that_comes_later() -> None:
    written: asyncio.Queue[OneWrite] = asyncio.Queue()
    server = await asyncio.get_running_loop().create_server(lambda: Writes(written), "127.0.0.1", 0)
    async with server, asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        answer = await written.get()
        assert await reader.readexactly(6) == b"header"
        answer.write(b"body")
        answer.write(b"more")
        assert await reader.readexactly(8) == b"bodymore"
        answer.close()
        assert await reader.read() == b""
        writer.close()


async def test_header_leaves_before_the_connection_is_closed() -> None:
    written: asyncio.Queue[OneWrite] = asyncio.Queue()

    class Closes(Writes):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            written.get_nowait().close()

    server = await asyncio.get_running_loop().create_server(lambda: Closes(written), "127.0.0.1", 0)
    async with server, asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b"header"
        writer.close()
