"""A small HTTP server for test servers that stand in for Azure's: one handler, connections within limits."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import h11

BODY_BYTES_MAX = 1024 * 1024
IDLE_SECONDS_MAX = 30.0
CONNECTIONS_MAX = 1_000
"""Azure's client, given a CA, opens a connection for every request and keeps it."""
READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpServer:
    """Can be stopped and started again; it then listens on the same port."""

    def __init__(
        self, handle: Callable[[Request], Awaitable[Response]], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        self.host = host
        self.port = port
        """0 until the start chooses one."""
        self._handle = handle
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Nothing if it runs already."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self._tls)
            self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Drops every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= CONNECTIONS_MAX:
                await self._converse(reader, writer)
        except asyncio.CancelledError:
            pass  # The server stops; nobody waits for this task's result.
        except (ConnectionError, TimeoutError):
            pass  # The client is gone, or silent: closing below is all there is to do.
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        while True:
            try:
                request = await _read_request(connection, reader)
            except h11.RemoteProtocolError as error:
                await _write(connection, writer, Response(error.error_status_hint, str(error).encode()))
                return
            if request is None:
                return
            await _write(connection, writer, await self._handle(request), request.method == "HEAD")
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()


async def _read_request(connection: h11.Connection, reader: asyncio.StreamReader) -> Request | None:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(IDLE_SECONDS_MAX):
                connection.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > BODY_BYTES_MAX:
                raise h11.RemoteProtocolError(f"A body has at most {BODY_BYTES_MAX} bytes.", 413)
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
            return Request(head.method.decode(), head.target.decode("latin-1"), headers, bytes(body))
        else:
            return None


async def _write(
    connection: h11.Connection, writer: asyncio.StreamWriter, response: Response, is_head: bool = False
) -> None:
    if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    headers = list(response.headers.items())
    if response.status not in (204, 304):
        headers.append(("Content-Length", str(len(response.body))))
    writer.write(connection.send(h11.Response(status_code=response.status, headers=headers)) or b"")
    if not is_head:
        writer.write(connection.send(h11.Data(data=response.body)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    async with asyncio.timeout(IDLE_SECONDS_MAX):
        await writer.drain()
