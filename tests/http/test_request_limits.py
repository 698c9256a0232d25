"""Headers, framing and bodies have limits, and what is no HTTP is refused without a word in the log."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.http.conftest import KEY, Http, Start, Wire, head

CHUNKED = {"Transfer_Encoding": "chunked"}


# --- Headers ---------------------------------------------------------------------------------------------------------


def header_of(size: int) -> bytes:
    """A request whose header has so many bytes, as the server counts them."""
    start = b"GET /healthz HTTP/1.1\r\n"
    return start + b"X: " + b"a" * (size - len(b"/healthz") - len(b"X") - 4) + b"\r\n\r\n"


async def test_header_within_its_limit_is_taken(start: Start) -> None:
    http = await start(header_bytes_max=4_096)
    wire = await http.wire()
    await wire.send(header_of(4_000))
    assert (await wire.answer()).status == 200
    body = b"x" * 100_000
    assert (await wire.post("/v1/callbacks/ack", body)).status == 400, "a body is no header"


@pytest.mark.parametrize(
    "request_",
    [
        header_of(5_000),
        b"GET /" + b"a" * 5_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"a:b\r\n" * 21 + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 300_000,
        b"GET /" + b"a" * 300_000,
        b"GET /healthz HTTP/1.1\r\n" + b"a:b\r\n" * 60_000,
        b"\r\n" * 10_000,
        head("POST", "/v1/callbacks/ack", **CHUNKED) + b"1\r\n{\r\n0\r\nX: " + b"a" * 300_000,
        head("POST", "/v1/callbacks/ack", **CHUNKED) + b"1\r\n{\r\n0\r\n" + b"a:b\r\n" * 60_000,
        head("POST", "/v1/callbacks/ack", **CHUNKED) + b"1;" + b"a" * 300_000,
    ],
    ids=[
        "header", "request line", "fields", "endless header", "endless request line", "endless fields", "blank lines",
        "trailer", "trailers", "chunk extension",
    ],
)  # fmt: skip
async def test_header_beyond_its_limit_is_refused_and_the_connection_closed(start: Start, request_: bytes) -> None:
    http = await start(header_bytes_max=4_096, headers_max=20)
    wire = await http.wire()
    for begin in range(0, len(request_), 2_000):
        wire.writer.write(request_[begin : begin + 2_000])
        await asyncio.sleep(0)
    answer = await wire.answer()
    answer.assert_problem(431, "HEADER_TOO_LARGE")
    assert answer.headers["connection"] == "close"
    assert await wire.rest() == b""


async def test_pipelined_request_has_the_same_limits(start: Start) -> None:
    http = await start(header_bytes_max=4_096)
    wire = await http.wire()
    await wire.send(head("GET", "/healthz") + header_of(5_000) + head("GET", "/healthz"))
    assert (await wire.rest()).count(b"HTTP/1.1 200") <= 1


async def test_trailer_is_no_header(http: Http) -> None:
    """Trailers come after the caller was authenticated, and must not be taken for a credential."""
    wire = await http.wire()
    body = b"2\r\n{}\r\n0\r\nAuthorization: Bearer " + KEY.encode() + b"\r\n\r\n"
    await wire.send(head("POST", "/v1/commands", **CHUNKED) + body)
    (await wire.answer()).assert_problem(401, "UNAUTHENTICATED")


async def test_many_requests_may_wait_on_a_connection_but_not_any_number(http: Http) -> None:
    wire = await http.wire()
    await wire.send(head("GET", "/healthz") * 10)
    for _ in range(10):
        assert (await wire.answer()).status == 200
    await wire.send(head("GET", "/healthz") * 5_000)
    assert (await wire.rest()).count(b"HTTP/1.1 200") < 50


# --- What is no HTTP -------------------------------------------------------------------------------------------------


async def test_what_is_no_http_is_refused_and_leaves_nothing_in_the_log(
    http: Http, caplog: pytest.LogCaptureFixture
) -> None:
    for nonsense in 5 * (
        b"\x16\x03\x01\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ):
        wire = await http.wire()
        await wire.send(nonsense)
        answer = await wire.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert await wire.rest() == b""
    upgrade = await http.call(Connection="Upgrade", Upgrade="websocket")
    assert upgrade.status == 200
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) <= 1, "what was refused is said once a minute"


# --- Bodies ----------------------------------------------------------------------------------------------------------

SMALL = {"bodies_bytes_max": 1_000_000, "ledger": "memory", "bus": "memory"}
LARGE = b"x" * 400_000


async def half_sent(http: Http, source: str = "127.0.0.1") -> Wire:
    wire = await http.wire(source)
    await wire.send(head("POST", "/v1/callbacks:batch", Content_Length="500000") + LARGE)
    return wire


async def test_bodies_in_all_take_no_more_memory_than_is_set(start: Start) -> None:
    http = await start(**SMALL)
    wires = [await half_sent(http, f"127.0.0.{2 + number}") for number in range(3)]
    answers = {asyncio.create_task(wire.answer()): wire for wire in wires}
    (done,), waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    done.result().assert_problem(503, "UNAVAILABLE")
    assert done.result().headers["connection"] == "close"
    assert await answers[done].rest() == b""
    for task in waiting:
        task.cancel()
    small = await http.wire("127.0.0.9")
    assert (await small.post("/v1/callbacks/ack", b"{" + b" " * 16_000)).status == 400, "small bodies need none of it"
    for wire in wires:
        wire.close()
    await http.until(lambda: http.connections == 1)
    assert (await small.post("/v1/callbacks/ack", b"{" + b" " * 150_000)).status == 400, "it is given back"


async def test_one_peer_holds_no_more_than_its_share(start: Start) -> None:
    http = await start(**SMALL)
    first = await half_sent(http)
    await asyncio.sleep(0.2)
    second = await half_sent(http)
    (await second.answer()).assert_problem(503, "UNAVAILABLE")
    other = await half_sent(http, "127.0.0.2")
    for wire in (first, other):
        await wire.send(b"x" * 100_000)
        assert (await wire.answer()).status == 400, "the only body of a peer may have more than the share"


async def test_trusted_proxy_has_no_share(start: Start) -> None:
    http = await start(**SMALL, trusted_proxies=("127.0.0.1",))
    wires = [await half_sent(http) for _ in range(2)]
    for wire in wires:
        await wire.send(b"x" * 100_000)
        assert (await wire.answer()).status == 400


async def test_body_that_is_refused_by_its_length_is_not_kept(start: Start) -> None:
    http = await start(**SMALL)
    for number in range(5):
        wire = await http.wire()
        await wire.send(head("POST", "/v1/callbacks/ack", Content_Length="900000") + LARGE)
        assert (await wire.answer()).status == 413, number
