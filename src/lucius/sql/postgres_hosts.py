"""The servers that a PostgreSQL URL names: connections go to the one that can be written to."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

CONNECT_SECONDS = 8.0
"""How long connecting takes at most, all hosts together."""


class ServerReadOnly(Exception):
    """The server takes no writes: it is a standby, or it was set to read-only."""

    def __init__(self) -> None:
        super().__init__("the server is read-only")


class ServerMoved(ConnectionError):
    """Another server takes the writes now; what is connected to the one before must be given up first."""

    def __init__(self) -> None:
        super().__init__("another server takes the writes now")


_FAILURES = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ServerReadOnly,
)


class Hosts:
    """Connects to the first host that can be written to, beginning with the one that worked last.

    Each host has its own share of the time: one that has vanished without a word leaves enough for the others.
    Nobody gets connections to two servers at once: a former primary that was only slow would still take writes.
    """

    def __init__(self, url: str) -> None:
        self._urls = one_url_per_host(url)
        self._current = 0
        self._has_connected = False

    async def connect(self, *args: Any, **options: Any) -> Any:
        """Takes what `asyncpg.connect` takes, except for the URL. Only the first to find another server raises
        `ServerMoved`; others that were looking at that time just fail."""
        count, first = len(self._urls), self._current
        failure: Exception = ServerReadOnly()
        for index in (*range(first, count), *range(first)):
            try:
                connection = await _connect(self._urls[index], CONNECT_SECONDS / count, options)
            except _FAILURES as error:
                failure = error
                continue
            if not self._has_connected or index == first == self._current:
                self._current, self._has_connected = index, True
                return connection
            connection.terminate()
            if first != self._current:
                raise ConnectionError("another server was found meanwhile")
            self._current = index
            raise ServerMoved
        raise failure

    async def check_current(self, seconds_max: float) -> None:
        """Raise unless the server that was connected to last still answers, with whatever."""
        try:
            connection = await _connect(self._urls[self._current], seconds_max, {})
        except asyncpg.PostgresError:
            return
        connection.terminate()


async def _connect(url: str, seconds_max: float, options: dict[str, Any]) -> Any:
    connecting = asyncio.ensure_future(
        asyncpg.connect(url, **options, timeout=seconds_max, target_session_attrs="read-write")
    )
    try:
        # Never cancelled: just after its socket was opened, asyncpg would leave a future with an exception behind.
        return await asyncio.shield(connecting)
    except asyncio.CancelledError:
        connecting.add_done_callback(_give_up)
        raise
    except asyncpg.TargetServerAttributeNotMatched:
        raise ServerReadOnly from None
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds_max:g} s") from None


def _give_up(connecting: asyncio.Future[Any]) -> None:
    """Of a connection that nobody waits for any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().terminate()


def is_read_only(connection: Any) -> bool:
    """As the server said with its last answer. One behind a proxy that does not pass this on seems writable."""
    settings = connection.get_settings()
    return "on" in (
        getattr(settings, "default_transaction_read_only", "off"),
        getattr(settings, "in_hot_standby", "off"),
    )


def one_url_per_host(url: str) -> list[str]:
    """`postgresql://a:1,b:2/db` and `postgresql:///db?host=a,b&port=1,2`, taken apart."""
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    if "," in hosts:
        return [urlunsplit(parts._replace(netloc=f"{credentials}{at}{host}")) for host in hosts.split(",")]
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "," not in query.get("host", ""):
        return [url]
    names, ports = query["host"].split(","), query.get("port", "").split(",")
    if len(ports) == 1:
        ports *= len(names)
    start = url.partition("?")[0]
    apart = (query | {"host": name, "port": port} for name, port in zip(names, ports, strict=True))
    return [f"{start}?{urlencode({name: value for name, value in one.items() if value})}" for one in apart]
