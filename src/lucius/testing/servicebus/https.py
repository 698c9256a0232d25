"""The administration API's port: HTTPS with a certificate by the test's own authority."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import h11

from lucius.testing.servicebus.administration import Administration, Request, Response
from lucius.testing.servicebus.certificates import make_certificates

if TYPE_CHECKING:
    from lucius.testing.servicebus.server import ServiceBusServer

BODY_BYTES_MAX = 1024 * 1024
IDLE_SECONDS_MAX = 30.0
CONNECTIONS_MAX = 1_000
"""Azure's client, given a CA, opens a connection for every request and keeps it."""
READ_BYTES = 65_536


class AdministrationServer:
    """Serves the entities of a `ServiceBusServer`; clients must trust `ca_file`."""

    def __init__(self, server: ServiceBusServer, folder: Path, port: int = 0) -> None:
        self.port = port
        self.ca_file = folder
        self._bus = server
        self._folder = folder
        self._administration = Administration(server.namespace, server.tokens, server.drop_links)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connection_string(self) -> str:
        """For `ServiceBusAdministrationClient.from_connection_string(…, connection_verify=ca_file)`."""
        return self._bus.connection_string.replace(f":{self._bus.port};", f":{self.port};", 1)

    async def __aenter__(self) -> AdministrationServer:
        certificates = make_certificates(self._bus.host, self._folder)
        self.ca_file = certificates.ca_file
        self._server = await asyncio.start_server(self._serve, self._bus.host, self.port, ssl=certificates.context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

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
            await _write(connection, writer, self._administration.handle(request))
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


async def _write(connection: h11.Connection, writer: asyncio.StreamWriter, response: Response) -> None:
    if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
        return
    headers = [("Content-Type", "application/atom+xml;charset=utf-8"), ("Content-Length", str(len(response.body)))]
    writer.write(connection.send(h11.Response(status_code=response.status, headers=headers)) or b"")
    writer.write(connection.send(h11.Data(data=response.body)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    async with asyncio.timeout(IDLE_SECONDS_MAX):
        await writer.drain()
