"""The test server: listens, keeps time, and hurts on request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType

from lucius.testing.servicebus.broker import Broker
from lucius.testing.servicebus.connection import Connection
from lucius.testing.servicebus.faults import Faults
from lucius.testing.servicebus.link import Link
from lucius.testing.servicebus.namespace import Namespace, path_of
from lucius.testing.servicebus.refusals import Refusal, unauthorized
from lucius.testing.servicebus.settings import NamespaceSettings
from lucius.testing.servicebus.tokens import KEY_NAME_DEFAULT, KEY_TEXT_DEFAULT, SharedKey, TokenChecker

TICK_SECONDS = 0.02
CONNECTIONS_MAX = 2_000
MESSAGE_BYTES_MAX = 262_144
"""Service Bus's own limit on Standard."""
STOP_SECONDS_MAX = 5.0


class ServiceBusServer:
    """A Service Bus on one port. Entities and messages live as long as this object: it can be stopped and started.

    ```python
    async with ServiceBusServer(settings) as server:
        client = ServiceBusClient.from_connection_string(server.connection_string)
    ```
    """

    def __init__(
        self,
        settings: NamespaceSettings | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        shared_key: SharedKey | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.host = host
        self.port = port
        """0 until the start chooses one, which later starts keep."""
        self.message_bytes_max = message_bytes_max
        self.faults = Faults()
        self.namespace = Namespace(settings)
        self._clock = clock
        self._ahead_seconds = 0.0
        self.broker = Broker(self.namespace, self.now, self.faults)
        self.tokens = TokenChecker(shared_key, self.now, self.faults)
        self.faults.on_change = self.broker.pump_all
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._connections: dict[Connection, asyncio.Task[None]] = {}

    async def __aenter__(self) -> ServiceBusServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def connection_string(self) -> str:
        key = self.tokens.shared_key or SharedKey(KEY_NAME_DEFAULT, KEY_TEXT_DEFAULT)
        return (
            f"Endpoint=sb://{self.host}:{self.port};SharedAccessKeyName={key.name};SharedAccessKey={key.key};"
            "UseDevelopmentEmulator=true;"
        )

    async def start(self) -> None:
        """Nothing if it runs already."""
        if self._server is not None:
            return
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self._ticking = asyncio.ensure_future(self._tick())

    async def stop(self) -> None:
        """Drops every connection, as a broker that is killed does. Messages and entities stay for another start."""
        if self._server is not None:
            self._server.close()
        if self._ticking is not None:
            self._ticking.cancel()
        tasks = list(self._connections.values())
        self.drop_connections()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS_MAX)
        self._server = self._ticking = None

    # --- Time --------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._clock() + self._ahead_seconds

    def advance(self, seconds: float) -> None:
        """Lets time pass at once: locks run out, lives end, schedules fall due."""
        self._ahead_seconds += seconds
        self.broker.tick()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.broker.tick()

    # --- Switches that hurt at once; those that count are `faults` ---------------------------------------------------

    def drop_connections(self) -> int:
        for connection in list(self._connections):
            connection.drop()
        return len(self._connections)

    def drop_links(self, entity: str | None = None, refusal: Refusal | None = None) -> int:
        """Detaches the links of an entity and what is below it, or all, with a condition; returns how many."""
        refusal = refusal or Refusal("amqp:link:detach-forced", "The link was detached by the test server.")
        found = [link for link in self._links() if entity is None or _is_below(link.path, entity)]
        for link in found:
            link.session.detach(link, refusal)
        return len(found)

    def lose_locks(self, entity: str) -> None:
        """Every message lock and session lock on a queue, subscription or dead-letter queue is lost at once."""
        self.broker.lose_locks(entity)

    def expire_tokens(self) -> int:
        """As when every token has expired: links are detached, and attaching needs a new token."""
        for connection in self._connections:
            connection.authorization.forget()
        return self.drop_links(refusal=unauthorized("ExpiredToken: the token has expired."))

    def _links(self) -> list[Link]:
        sessions = [session for connection in self._connections for session in connection.sessions.values()]
        return [link for session in sessions for link in session.links.values()]

    # --- Connections -------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.close()
            return
        connection = Connection(self, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._connections[connection] = task
        try:
            await connection.run()
        finally:
            del self._connections[connection]


def _is_below(path: str, entity: str) -> bool:
    found, wanted = path_of(path), path_of(entity)
    return found == wanted or found.startswith(wanted + "/")
