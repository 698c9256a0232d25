"""Floods over HTTP, one function each. Every flood is bounded in count and time and goes to loopback only.

All are anonymous but `event_streams`, `long_polls` and `lists`, which hold a key with every right.

`FLOODS` lists them. `http_probe.py` measures what a server makes of them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

KEY = "lk_of_the_flood_probe_0123456789"
MIB = 1_048_576
BATCH_BYTES = 4 * MIB - 64
SECONDS_MAX = 20.0
"""How long one flood may last."""
HELD_SECONDS = 4.0
"""How long connections that do nothing are held open."""

Flood = Callable[[str], Awaitable[None]]
Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


# --- Connections -----------------------------------------------------------------------------------------------------


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    if not ip_address(socket.gethostbyname(host)).is_loopback:
        raise ValueError(f"floods go to loopback only, not to {host}")
    return host, port


@asynccontextmanager
async def _links(url: str, count: int) -> AsyncIterator[list[Link]]:
    """As many connections as the server accepts, up to `count`; all are dropped in the end."""
    host, port = _address(url)
    links: list[Link] = []
    try:
        for _ in range(count):
            with suppress(OSError, TimeoutError):
                links.append(await asyncio.wait_for(asyncio.open_connection(host, port), 5))
        yield links
    finally:
        for _, writer in links:
            writer.transport.abort()


async def _write(link: Link, pieces: Iterator[bytes] | list[bytes]) -> None:
    """Send as much as the server takes."""
    _, writer = link
    with suppress(OSError, TimeoutError):
        for piece in pieces:
            writer.write(piece)
            await asyncio.wait_for(writer.drain(), SECONDS_MAX)


async def _exchange(url: str, pieces: Iterator[bytes] | list[bytes]) -> bytes:
    """Send a request on a connection of its own; the head of the answer, empty where there was none."""
    async with _links(url, 1) as links:
        for link in links:
            await _write(link, pieces)
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                return await asyncio.wait_for(link[0].readuntil(b"\r\n\r\n"), SECONDS_MAX)
    return b""


def _head(path: str, length: int | None = None, method: str = "POST", *fields: str) -> bytes:
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"{method} {path} HTTP/1.1", "Host: flood", "Content-Type: application/json", framing, *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _post(url: str, path: str, body: bytes, *fields: str) -> bytes:
    return await _exchange(url, [_head(path, len(body), "POST", *fields), body])


# --- Batches ---------------------------------------------------------------------------------------------------------


def _filled(unit: bytes, before: bytes = b"", after: bytes = b"", size: int = BATCH_BYTES) -> bytes:
    return before + unit * ((size - len(before) - len(after)) // len(unit)) + after


HOSTILE_BATCHES: dict[str, bytes] = {
    "zeros": _filled(b"0,", b'{"callbacks":[', b"0]}"),
    "empty objects": _filled(b"{},", b'{"callbacks":[', b"{}]}"),
    "empty lists": _filled(b"[],", b'{"callbacks":[', b"[]]}"),
    "empty lists in one item": _filled(b"[],", b'{"callbacks":[[', b"[]]]}"),
    "never closed": _filled(b"[", b'{"callbacks":['),
    "deep items": _filled(b"[" * 500 + b"]" * 500 + b",", b'{"callbacks":[', b"0]}"),
    "one long string": _filled(b"a", b'{"callbacks":["', b'"]}'),
    "escapes": _filled(b"\\n", b'{"callbacks":["', b'"]}'),
    "white space": _filled(b" ", b'{"callbacks":[', b"0]}"),
    "an unknown key": _filled(b"[],", b'{"more":[', b'[]],"callbacks":[0]}'),
    "many keys": b"{" + b"".join(b'"k%d":0,' % n for n in range(350_000)) + b'"callbacks":[0]}',
    "the same key": _filled(b'"callbacks":[0],', b"{", b'"callbacks":[0]}'),
    "small callbacks": _filled(
        b'{"type":"ACK","jobId":"","stepId":"","tenant_id":"","attempt_no":0,"lease_id":""},',
        b'{"callbacks":[',
        b"0]}",
    ),
    "large artifacts": b'{"callbacks":['
    + b",".join(
        b'{"type":"RESULT","status":"SUCCEEDED","jobId":"","stepId":"","tenant_id":"","attempt_no":0,"lease_id":"",'
        b'"artifacts":[' + b"[]," * 2_600 + b"[]]}"
        for _ in range(500)
    )
    + b"]}",
}
"""Bodies of `POST /v1/callbacks:batch`, about as large as it takes them."""


async def oversized_batch(url: str) -> None:
    """The batch that blocked the event loop for 7.6 s and took 1.5 GB."""
    for _ in range(3):
        await _post(url, "/v1/callbacks:batch", HOSTILE_BATCHES["zeros"])


async def hostile_batches(url: str) -> None:
    for body in HOSTILE_BATCHES.values():
        await _post(url, "/v1/callbacks:batch", body)


async def parallel_batches(url: str) -> None:
    """Sixteen of them at once, from one address."""
    await asyncio.gather(*(_post(url, "/v1/callbacks:batch", HOSTILE_BATCHES["empty lists"]) for _ in range(16)))


# --- Headers ---------------------------------------------------------------------------------------------------------


def _repeated(before: bytes, unit: bytes, total: int) -> Iterator[bytes]:
    yield before
    piece = unit * (65_536 // len(unit))
    for _ in range(total // len(piece)):
        yield piece


async def giant_header(url: str) -> None:
    """One header of 100 MiB."""
    await _exchange(url, _repeated(b"GET /healthz HTTP/1.1\r\nX: ", b"a", 100 * MIB))


async def giant_request_line(url: str) -> None:
    await _exchange(url, _repeated(b"GET /", b"a", 100 * MIB))


async def many_headers(url: str) -> None:
    await _exchange(url, _repeated(b"GET /healthz HTTP/1.1\r\n", b"a:b\r\n", 20 * MIB))


async def giant_trailer(url: str) -> None:
    await _exchange(url, _repeated(_head("/v1/callbacks/ack") + b"1\r\n{\r\n0\r\nX: ", b"a", 100 * MIB))


async def many_trailers(url: str) -> None:
    await _exchange(url, _repeated(_head("/v1/callbacks/ack") + b"1\r\n{\r\n0\r\n", b"a:b\r\n", 20 * MIB))


async def giant_chunk_extension(url: str) -> None:
    await _exchange(url, _repeated(_head("/v1/callbacks/ack") + b"1;", b"a", 100 * MIB))


async def malformed_requests(url: str) -> None:
    """What is no HTTP at all, 2,000 times."""
    for _ in range(2_000):
        await _exchange(url, [b"\x16\x03\x01 nonsense\r\n\r\n"])


# --- Connections that are held ---------------------------------------------------------------------------------------


async def _hold(url: str, count: int, sent: bytes) -> None:
    async with _links(url, count) as links:
        for link in links:
            await _write(link, [sent])
        await asyncio.sleep(HELD_SECONDS)


async def idle_connections(url: str) -> None:
    await _hold(url, 2_000, b"")


async def slow_headers(url: str) -> None:
    """Headers that are begun, and go on by a byte now and then."""
    async with _links(url, 2_000) as links:
        for piece in (b"GET /healthz HTTP/1.1\r\nHost: flood\r\n", b"X", b"-", b"A"):
            for _, writer in links:
                writer.write(piece)
            await asyncio.sleep(HELD_SECONDS / 4)


async def half_sent_bodies(url: str) -> None:
    """A hundred bodies of 4 MiB of which the last byte does not come."""
    async with _links(url, 100) as links:
        sent = [_head("/v1/callbacks:batch", 4 * MIB), *[b"x" * 65_536] * 63, b"x" * 65_535]
        await asyncio.wait({asyncio.ensure_future(_write(link, sent)) for link in links}, timeout=SECONDS_MAX)
        await asyncio.sleep(HELD_SECONDS)


async def small_half_sent_bodies(url: str) -> None:
    """Two thousand bodies that are small enough to cost nothing, and never end."""
    await _hold(url, 2_000, _head("/v1/callbacks/ack", 16_384) + b"x" * 16_000)


async def pipelined_requests(url: str) -> None:
    """Requests without end on each connection, and nobody reads the answers."""
    many = b"GET /healthz HTTP/1.1\r\n\r\n" * 40_000
    async with _links(url, 64) as links:
        await asyncio.wait({asyncio.ensure_future(_write(link, [many])) for link in links}, timeout=HELD_SECONDS)


async def unread_answers(url: str) -> None:
    """The largest answer that anybody may have, asked for again and again and never read."""
    many = b"GET /openapi.json HTTP/1.1\r\n\r\n" * 12
    async with _links(url, 500) as links:
        for _, writer in links:
            writer.transport.pause_reading()
            writer.write(many)
        await asyncio.sleep(HELD_SECONDS)


async def broken_connections(url: str) -> None:
    """Connections that are used once and then end with a reset, 2,000 times."""
    for _ in range(2_000):
        async with _links(url, 1) as links:
            for reader, writer in links:
                end = writer.get_extra_info("socket")
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await _write((reader, writer), [b"GET /healthz HTTP/1.1\r\n\r\n"])
                with suppress(OSError, TimeoutError):
                    await asyncio.wait_for(reader.read(1_024), 5)


# --- Calls that are held open ----------------------------------------------------------------------------------------


_AUTHORIZATION = f"Authorization: Bearer {KEY}"


async def event_streams(url: str) -> None:
    """One key asks for 2,000 event streams of a job that does not end."""
    command = {
        "schema_version": "1", "tenant_id": "flood", "request_type": "OCR", "payload": {}, "idempotency_key": "flood",
        "input_ref": "https://documents.example/in.pdf", "output_ref": "https://documents.example/out.json",
    }  # fmt: skip
    accepted = await _post(url, "/v1/commands", json.dumps(command).encode(), _AUTHORIZATION)
    found = re.search(rb"(?i)location: (\S+)", accepted)
    assert found is not None, accepted
    await _hold(url, 2_000, _head(f"{found[1].decode()}/events", 0, "GET", _AUTHORIZATION, "Accept: text/event-stream"))


async def long_polls(url: str) -> None:
    """One key waits for directives 2,000 times over."""
    body = b'{"service":"sis","wait_seconds":60}'
    await _hold(url, 2_000, _head("/v1/directives:pull", len(body), "POST", _AUTHORIZATION) + body)


LIST_FILTERS = (
    "request_type=NOTHING_HAS_THIS",
    "request_type=RARE&limit=500",
    "status=FAILED_FINAL&limit=500",
    "status=CANCELLED",
    "status=QUEUED&request_type=RARE",
    "status=SUCCEEDED&request_type=NOTHING_HAS_THIS",
    "status=SUCCEEDED&limit=500",
    "created_to=2000-01-01T00:00:00Z",
    "limit=500",
)


async def lists(url: str) -> None:
    """One key asks for lists on sixteen connections, on each for the next as soon as it has one."""
    end = asyncio.get_running_loop().time() + HELD_SECONDS

    async def ask(link: Link) -> None:
        reader, writer = link
        wanted = itertools.cycle(LIST_FILTERS)
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            while asyncio.get_running_loop().time() < end:
                writer.write(_head(f"/v1/jobs?{next(wanted)}", 0, "GET", _AUTHORIZATION))
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS_MAX)
                length = re.search(rb"(?i)content-length: (\d+)", head)
                assert length is not None, head
                await asyncio.wait_for(reader.readexactly(int(length[1])), SECONDS_MAX)

    async with _links(url, 16) as links:
        await asyncio.gather(*(ask(link) for link in links))


FLOODS: dict[str, Flood] = {
    flood.__name__: flood
    for flood in (
        oversized_batch, hostile_batches, parallel_batches, giant_header, giant_request_line, many_headers,
        giant_trailer, many_trailers, giant_chunk_extension, malformed_requests, idle_connections, slow_headers,
        half_sent_bodies, small_half_sent_bodies, pipelined_requests, unread_answers, broken_connections,
        event_streams, long_polls, lists,
    )
}  # fmt: skip
