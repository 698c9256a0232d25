"""A server on a real socket in this process, on the event loop that it runs on in production, and raw connections."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

from lucius.api.serving import Server, listen, served
from lucius.bootstrap import open_app
from lucius.settings import Settings

KEY = "lk_of_the_http_tests_0123456789"
CALLBACK_KEYS = ("k1:0123456789abcdef0123456789abcdef",)
PATIENCE_SECONDS = 20.0
"""How long an answer or an end is waited for on a busy machine."""


class Answer:
    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode().rstrip("\r\n").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = body

    def assert_problem(self, status: int, code: str) -> dict[str, Any]:
        assert self.status == status, self.body
        assert self.headers["content-type"] == "application/problem+json"
        problem: dict[str, Any] = json.loads(self.body)
        assert (problem["code"], problem["status"]) == (code, status)
        assert problem["detail"]
        assert problem["correlation_id"]
        if status == 503:
            assert int(self.headers["retry-after"]) >= 1
        return problem


class Wire:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def get(self, path: str = "/healthz", **headers: str) -> Answer:
        await self.send(head("GET", path, **headers))
        return await self.answer()

    async def post(self, path: str, body: bytes, **headers: str) -> Answer:
        await self.send(head("POST", path, **{"Content-Length": str(len(body))} | headers) + body)
        return await self.answer()

    async def answer(self) -> Answer:
        async with asyncio.timeout(PATIENCE_SECONDS):
            received = await self.reader.readuntil(b"\r\n\r\n")
            found = Answer(received, b"")
            found.body = await self.reader.readexactly(int(found.headers.get("content-length", "0")))
            return found

    async def drip(self, data: bytes, interval: float = 0.05) -> None:
        """Byte by byte, until the server has had enough."""
        for byte in data:
            if self.reader.at_eof():
                return
            self.writer.write(bytes([byte]))
            await asyncio.sleep(interval)

    async def rest(self) -> bytes:
        """What comes until the server closes the connection, which it must."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def is_open(self) -> bool:
        return (await self.get()).status == 200

    def close(self) -> None:
        self.writer.transport.abort()

    def reset(self) -> None:
        """Hang up with an error."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def head(method: str, path: str, **headers: str) -> bytes:
    fields = {"Host": "lucius.test", "Content-Type": "application/json"} | headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Http:
    """One server, and connections to it."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port
        self.wires: list[Wire] = []

    async def wire(self, source: str = "127.0.0.1", receive_bytes: int = 0) -> Wire:
        end = socket.socket()
        end.setblocking(False)
        if receive_bytes:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        end.bind((source, 0))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", self.port))
            self.wires.append(Wire(*await asyncio.open_connection(sock=end, limit=4_194_304)))
        return self.wires[-1]

    async def call(self, path: str = "/healthz", source: str = "127.0.0.1", **headers: str) -> Answer:
        wire = await self.wire(source)
        try:
            return await wire.get(path, **headers)
        finally:
            wire.close()

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)

    async def until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert time.monotonic() < end, "it did not come about"
            await asyncio.sleep(0.02)


Start = Callable[..., Awaitable[Http]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a server; keyword arguments are settings."""
    async with AsyncExitStack() as stack:

        async def start_(send_bytes: int = 0, **settings: Any) -> Http:
            known = {"data": str(tmp_path), "api_key": KEY, "callback_keys": CALLBACK_KEYS, "port": 0}
            own = Settings(**known | settings)
            listener = listen(own)
            if send_bytes:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
            context = await stack.enter_async_context(open_app(own))
            server = await stack.enter_async_context(served(context, listener))
            http = Http(server, listener.getsockname()[1])
            stack.callback(context.stopping.set)
            stack.callback(lambda: [wire.close() for wire in http.wires])
            return http

        yield start_


@pytest.fixture
async def http(start: Start) -> Http:
    return await start()
