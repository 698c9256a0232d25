"""Connections of a load run.

Each is a transport with a single connection. One shared transport would take most of the run's time: its pool scans
every connection on every request, and with 50 of them a run was four times slower.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from lucius.client.addresses import is_loopback
from lucius.client.async_transport import AsyncTransport
from lucius.client.call import Call, Json
from lucius.client.errors import AnswerInvalid, ClientError, RateLimited, Unavailable, Unreachable, content_of
from lucius.client.transport import TransportOptions, ssl_context

PATIENCE_SECONDS = 30.0
"""How long a server may be unavailable (while it restarts, say) before a running test gives up."""
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 30.0
NO_ANSWER = "NO_ANSWER"


class Connections:
    """Creates connections to one server, and closes them all. They share what is expensive to create."""

    def __init__(self, url: str, api_key: str) -> None:
        self.url = url
        self._api_key = api_key
        verify = True if is_loopback(url) else ssl_context()
        self._options = TransportOptions(connections_max=1, verify=verify)
        self._made: list[AsyncTransport] = []
        self._free: list[AsyncTransport] = []
        self._failing_since: float | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for transport in self._made:
            await transport.close()

    async def ask(self, call: Call) -> Json:
        """The content of a successful answer, over an exclusive connection. Raises `ClientError`."""
        async with self._taken() as transport:
            response = await transport.send(call)
        self._failing_since = None
        return content_of(response)

    async def pause_or_give_up(self, error: ClientError, count: Callable[[str], None]) -> None:
        """Count a failure after which the call is repeated, and wait until then. Raises the error if repeating does not
        help, or if no call of this run has been answered for too long."""
        if isinstance(error, RateLimited | Unavailable):
            count(error.code)
            wait_seconds = RETRY_SECONDS if error.retry_after_seconds is None else error.retry_after_seconds
            await asyncio.sleep(min(wait_seconds, RETRY_SECONDS_MAX))
        elif isinstance(error, Unreachable | AnswerInvalid):
            count(NO_ANSWER)
            await self._pause_or_give_up(error)
        else:
            raise error

    async def _pause_or_give_up(self, error: Unreachable | AnswerInvalid) -> None:
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since > PATIENCE_SECONDS:
            message = f"{error.message} (for {PATIENCE_SECONDS:g} s)"
            raise Unreachable(message, error.may_have_arrived) from error
        await asyncio.sleep(RETRY_SECONDS)

    @asynccontextmanager
    async def _taken(self) -> AsyncIterator[AsyncTransport]:
        """The last one returned is used first, so few are open when few are needed."""
        transport = self._free.pop() if self._free else self._make()
        try:
            yield transport
        finally:
            self._free.append(transport)

    def _make(self) -> AsyncTransport:
        transport = AsyncTransport(self.url, self._api_key, self._options)
        self._made.append(transport)
        return transport
