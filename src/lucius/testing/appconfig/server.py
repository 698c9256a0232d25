"""The stand-in as a server: listens, counts requests, and fails on request."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

from lucius.testing.appconfig.faults import Faults
from lucius.testing.appconfig.handling import Handler
from lucius.testing.appconfig.key_values import KeyValue, KeyValues
from lucius.testing.appconfig.signatures import AccessKey, SignatureChecker
from lucius.testing.http_server import HttpServer, Request, Response

REQUESTS_MAX = 10_000


class Seen(NamedTuple):
    """A request that was answered."""

    method: str
    path: str
    status: int


class AppConfigServer:
    """A store on one port. Key-values live as long as this object: it can be stopped and started.

    ```python
    async with AppConfigServer() as server:
        client = AzureAppConfigurationClient.from_connection_string(server.connection_string)
    ```
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        access_key: AccessKey | None = None,
        accepts_tokens: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`accepts_tokens`: whether any bearer token is as good as a signature."""
        self.faults = Faults()
        self.key_values = KeyValues()
        self.requests: list[Seen] = []
        self._clock = clock
        self._access_key = access_key or AccessKey()
        checker = SignatureChecker(self._access_key, clock, accepts_tokens)
        self._handler = Handler(self.key_values, checker, clock)
        self._http = HttpServer(self._handle, host, port)

    async def __aenter__(self) -> AppConfigServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def endpoint(self) -> str:
        return f"http://{self._http.host}:{self._http.port}"

    @property
    def connection_string(self) -> str:
        return f"Endpoint={self.endpoint};Id={self._access_key.id};Secret={self._access_key.secret}"

    async def start(self) -> None:
        await self._http.start()

    async def stop(self) -> None:
        """Drops every connection and takes none: an outage. Key-values stay for another start."""
        await self._http.stop()

    def put(self, key: str, value: str, label: str | None = None, content_type: str = "") -> KeyValue:
        """As somebody does in the portal."""
        return self.key_values.set(KeyValue(key, label, value, content_type), self._clock())

    def clear(self) -> None:
        """Forget every key-value, request and fault."""
        self.key_values.clear()
        self.requests.clear()
        self.faults.clear()

    async def _handle(self, request: Request) -> Response:
        response = await self.faults.answer(request) or self._handler.handle(request)
        del self.requests[:-REQUESTS_MAX]
        self.requests.append(Seen(request.method, urlsplit(request.target).path, response.status))
        return response
