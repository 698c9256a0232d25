"""Calls over HTTP: one connection pool, its key and its deadlines. Only a rejected key causes a retry here.

This is the blocking transport, on httpx; `async_transport` has the other, on aiohttp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lucius.client.addresses import check_address, is_loopback
from lucius.client.call import CONNECT_SECONDS_MAX, Call, Response
from lucius.client.errors import Unreachable, error_of
from lucius.client.keys import find_key, is_key

if TYPE_CHECKING:
    import ssl

    import httpx

CONNECTIONS_MAX = 16
UNAUTHENTICATED = 401


@dataclass(frozen=True)
class TransportOptions:
    connections_max: int = CONNECTIONS_MAX
    refreshed_key: Callable[[], str] | None = None
    """Returns another key when the server rejects the current one."""
    verify: ssl.SSLContext | bool = True
    told: Callable[[], Mapping[str, str]] | None = None
    """Headers of every call, such as what an instance tells about itself."""


DEFAULTS = TransportOptions()


def ssl_context() -> ssl.SSLContext:
    """For transports that share one: it takes time to create."""
    import httpx

    return httpx.create_ssl_context()


def credentials(url: str, api_key: str | None) -> tuple[str, TransportOptions]:
    """The first key, and options that look for another key if none was given. Raises `ValueError`."""
    check_address(url)
    if api_key is None:
        return find_key(url), TransportOptions(refreshed_key=lambda: find_key(url))
    if not is_key(api_key):
        raise ValueError("the API key contains spaces or non-ASCII characters")
    return api_key, DEFAULTS


class Connection:
    """Shared by both transports: everything but the I/O."""

    def __init__(self, url: str, api_key: str, options: TransportOptions) -> None:
        check_address(url)
        self.url = url.rstrip("/")
        self._api_key = api_key
        self._refreshed_key = options.refreshed_key
        self._told = options.told
        # A proxy named in the environment cannot reach this machine's loopback addresses.
        self._trusts_environment = not is_loopback(self.url)

    def _headers(self, call: Call) -> dict[str, str]:
        headers = dict(call.headers or {})
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        if call.sends_key and self._told is not None:
            headers |= self._told()
        if call.sends_key and self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        return headers

    def _has_another_key(self, call: Call, status: int) -> bool:
        if status != UNAUTHENTICATED or not call.sends_key or self._refreshed_key is None:
            return False
        key, self._api_key = self._api_key, self._refreshed_key()
        return key != self._api_key


class Transport(Connection):
    def __init__(self, url: str, api_key: str = "", options: TransportOptions = DEFAULTS) -> None:
        super().__init__(url, api_key, options)
        import httpx

        self._httpx = httpx
        # Without a connection no byte of the request was sent.
        self._never_sent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
        count = options.connections_max
        self._client = httpx.Client(
            base_url=self.url,
            limits=httpx.Limits(max_connections=count, max_keepalive_connections=count),
            trust_env=self._trusts_environment,
            # Creating an SSL context takes longer than a call to this machine, which needs none without TLS.
            verify=options.verify if self.url.startswith("https:") or self._trusts_environment else False,
        )

    def close(self) -> None:
        self._client.close()

    def send(self, call: Call) -> Response:
        """The answer, whatever its status. Raises `Unreachable` if there is none."""
        try:
            answer = self._client.request(**self._request(call))
        except self._httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if self._has_another_key(call, answer.status_code):
            return self.send(call)
        return Response(answer.status_code, answer.headers, answer.content)

    @contextmanager
    def stream(self, call: Call) -> Iterator[Iterator[bytes]]:
        """The body of a successful answer as it arrives. Raises `Unreachable`, or the error of another answer."""
        try:
            with self._client.stream(**self._request(call)) as answer:
                if not answer.is_success:
                    raise error_of(Response(answer.status_code, answer.headers, answer.read()))
                yield answer.iter_bytes()
        except self._httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _request(self, call: Call) -> dict[str, Any]:
        return {
            "method": call.method,
            "url": call.path,
            "params": call.query or None,
            "content": call.body,
            "headers": self._headers(call),
            "timeout": self._httpx.Timeout(call.seconds_max, connect=CONNECT_SECONDS_MAX),
        }

    def _unreachable(self, error: httpx.HTTPError) -> Unreachable:
        return Unreachable(str(error) or type(error).__name__, not isinstance(error, self._never_sent))
