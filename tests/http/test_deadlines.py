"""Whoever keeps the server waiting is not waited for: headers, bodies, idle connections and answers have deadlines."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import weakref

import pytest
from tests.http.conftest import KEY, Start, head

SHORT = {
    "connect_seconds": 0.4, "header_seconds": 0.4, "body_seconds": 0.4, "keep_alive_seconds": 0.4, "ledger": "memory",
    "bus": "memory",
}  # fmt: skip


async def test_connection_that_sends_nothing_is_closed_without_an_answer(start: Start) -> None:
    http = await start(**SHORT)
    wire = await http.wire()
    assert await wire.rest() == b""


@pytest.mark.parametrize(
    "sent",
    [b"GET /healthz HTTP/1.1\r\nHo", b"G", b"\r\n", head("POST", "/v1/callbacks/ack", Content_Length="10") + b"{"],
    ids=["header", "first byte", "blank line", "body"],
)
async def test_half_of_a_request_is_answered_when_its_deadline_is_over(start: Start, sent: bytes) -> None:
    http = await start(**SHORT)
    wire = await http.wire()
    await wire.send(sent)
    answer = await wire.answer()
    answer.assert_problem(408, "REQUEST_TIMEOUT")
    assert answer.headers["connection"] == "close"
    assert await wire.rest() == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 400,
        head("POST", "/v1/callbacks/ack", Content_Length="500") + b"a" * 400,
    ],
    ids=["header", "body"],
)
async def test_dripping_does_not_move_the_deadline(start: Start, sent: bytes) -> None:
    http = await start(**SHORT)
    wire = await http.wire()
    await wire.send(sent[:-400])
    dripping = asyncio.create_task(wire.drip(sent[-400:]))
    began = time.monotonic()
    (await wire.answer()).assert_problem(408, "REQUEST_TIMEOUT")
    assert time.monotonic() - began < 15, "400 drips take 20 s"
    dripping.cancel()


async def test_idle_connection_is_closed_and_a_used_one_is_not(start: Start) -> None:
    http = await start(**SHORT | {"keep_alive_seconds": 1.5})
    wire = await http.wire()
    for _ in range(4):
        assert await wire.is_open()
        await asyncio.sleep(0.5)
    assert await wire.rest() == b""


async def test_blank_lines_after_an_answer_do_not_keep_a_connection(start: Start) -> None:
    http = await start(**SHORT | {"keep_alive_seconds": 60})
    wire = await http.wire()
    assert await wire.is_open()
    await wire.send(b"\r\n")
    assert (await wire.answer()).status == 408


async def test_rest_of_a_refused_body_gets_no_second_answer(start: Start) -> None:
    http = await start(**SHORT)
    wire = await http.wire()
    await wire.send(head("POST", "/v1/callbacks/ack", Content_Length="900000") + b"x" * 1_000)
    assert (await wire.answer()).status == 413
    assert await wire.rest() == b""


async def test_answer_that_takes_long_has_no_deadline(start: Start) -> None:
    http = await start(**SHORT)
    wire = await http.wire()
    body = b'{"service": "ocr", "wait_seconds": 1.5}'
    answer = await wire.post("/v1/directives:pull", body, Authorization=f"Bearer {KEY}")
    assert (answer.status, answer.body) == (200, b'{"directives":[]}')


# --- Answers that nobody reads ---------------------------------------------------------------------------------------

MANY = head("GET", "/openapi.json") * 12


async def test_client_that_does_not_read_is_dropped(start: Start) -> None:
    http = await start(send_bytes=8_192, **SHORT | {"write_seconds": 0.6, "keep_alive_seconds": 60})
    wire = await http.wire(receive_bytes=4_096)
    wire.writer.transport.pause_reading()
    await wire.send(MANY)
    await http.until(lambda: http.connections == 0)


async def test_client_that_reads_slowly_is_not_dropped(start: Start) -> None:
    http = await start(send_bytes=8_192, **SHORT | {"write_seconds": 1.5, "keep_alive_seconds": 60})
    wire = await http.wire(receive_bytes=4_096)
    wire.reader._limit = 1_024
    await wire.send(MANY)
    for _ in range(40):
        assert await wire.reader.readexactly(2_000)
        await asyncio.sleep(0.1)
    assert http.connections == 1


async def test_connection_that_breaks_leaves_nothing_behind(start: Start) -> None:
    http = await start(ledger="memory", bus="memory")
    wires = [await http.wire() for _ in range(20)]
    for wire in wires:
        assert await wire.is_open()
    known = [weakref.ref(connection) for connection in http.server.server_state.connections]
    assert len(known) == 20
    for wire in wires:
        wire.reset()

    def are_gone() -> bool:
        gc.collect()
        return all(one() is None for one in known)

    await http.until(are_gone)


async def test_client_that_leaves_its_pipelined_answers_unread_leaves_nothing_in_the_log(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    http = await start(send_bytes=8_192, ledger="memory", bus="memory")
    wires = [await http.wire(receive_bytes=4_096) for _ in range(5)]
    for wire in wires:
        wire.writer.transport.pause_reading()
        await wire.send(MANY)
    await asyncio.sleep(0.2)
    for wire in wires:
        wire.reset()
    await http.until(lambda: http.connections == 0)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
