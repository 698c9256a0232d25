"""The administration API's port: HTTPS with a certificate by the test's own authority."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lucius.testing.http_server import HttpServer, Request, Response
from lucius.testing.servicebus.administration import Administration
from lucius.testing.servicebus.certificates import make_certificates

if TYPE_CHECKING:
    from lucius.testing.servicebus.server import ServiceBusServer


class AdministrationServer:
    """Serves the entities of a `ServiceBusServer`; clients must trust `ca_file`."""

    def __init__(self, server: ServiceBusServer, folder: Path, port: int = 0) -> None:
        self.port = port
        self.ca_file = folder
        self._bus = server
        self._folder = folder
        self._administration = Administration(server.namespace, server.tokens, server.drop_links)
        self._server: HttpServer | None = None

    @property
    def connection_string(self) -> str:
        """For `ServiceBusAdministrationClient.from_connection_string(…, connection_verify=ca_file)`."""
        return self._bus.connection_string.replace(f":{self._bus.port};", f":{self.port};", 1)

    async def __aenter__(self) -> AdministrationServer:
        certificates = make_certificates(self._bus.host, self._folder)
        self.ca_file = certificates.ca_file
        self._server = HttpServer(self._handle, self._bus.host, self.port, certificates.context)
        await self._server.start()
        self.port = self._server.port
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.stop()

    async def _handle(self, request: Request) -> Response:
        return self._administration.handle(request)
