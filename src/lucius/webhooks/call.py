"""One call: to a checked address, without redirects, within a deadline, reading little of the answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NamedTuple

import httpx

from lucius.webhooks.addresses import Resolver, SystemResolver, checked_addresses

RESPONSE_BYTES_MAX = 4_096


@cache
def _system_trust() -> ssl.SSLContext:
    """Trusts the certificates of this machine. Reading them takes longer than opening a ledger, so it is done once."""
    return ssl.create_default_context()


class Reply(NamedTuple):
    status: int
    retry_after: str | None


class CallFailed(Exception):
    """The receiver was not reached, or did not answer."""


class Caller:
    """Raises what `checked_addresses` raises, and `CallFailed`. Messages contain only the host of the address."""

    def __init__(
        self,
        timeout_seconds: float,
        calls_max: int,
        private_allowed: bool,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._timeout = timeout_seconds
        self._private_allowed = private_allowed
        self._system_resolver = SystemResolver()
        self._resolver = resolver or self._system_resolver
        # A proxy would resolve the name again, so none is used. A pooled connection is found by its address alone and
        # could belong to another name, so none is kept.
        self._client = httpx.AsyncClient(
            verify=ssl_context or _system_trust(),
            timeout=httpx.Timeout(timeout_seconds, connect=timeout_seconds / 2),
            limits=httpx.Limits(max_connections=calls_max, max_keepalive_connections=0),
            follow_redirects=False,
            trust_env=False,
        )

    async def close(self) -> None:
        self._system_resolver.close()
        await self._client.aclose()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Post the body; returns the useful parts of the answer."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._post(url, body, headers)
        except (TimeoutError, httpx.TimeoutException):
            raise CallFailed(f"no answer within {self._timeout:g} s") from None

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        target = _parsed(url)
        host = target.raw_host.decode("ascii")
        port = target.port or (443 if target.scheme == "https" else 80)
        addresses = await checked_addresses(host, port, self._private_allowed, self._resolver)
        all_headers = {**headers, "Host": target.netloc.decode("ascii")}
        for address in addresses:
            try:
                return await self._post_to(address, target, body, all_headers)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise CallFailed(f"cannot connect to {host}: {_reason(failure)}") from None

    async def _post_to(
        self, address: IPv4Address | IPv6Address, target: httpx.URL, body: bytes, headers: Mapping[str, str]
    ) -> Reply:
        extensions: dict[str, Any] = {}
        if target.scheme == "https":
            # The certificate must match the name, whichever address is called.
            extensions["sni_hostname"] = target.raw_host.decode("ascii")
        request = self._client.build_request(
            "POST", target.copy_with(host=str(address)), content=body, headers=headers, extensions=extensions
        )
        try:
            response = await self._client.send(request, stream=True)
            try:
                await _drain(response)
            finally:
                await response.aclose()
        except (httpx.ConnectError, httpx.TimeoutException):
            raise
        except httpx.HTTPError as error:
            raise CallFailed(f"the call broke off ({type(error).__name__})") from None
        return Reply(response.status_code, response.headers.get("retry-after"))


def _parsed(url: str) -> httpx.URL:
    try:
        target = httpx.URL(url)
    except httpx.InvalidURL:
        raise CallFailed("the address is not one that can be called") from None
    if target.scheme not in ("http", "https") or not target.host or target.userinfo:
        raise CallFailed("the address must be http or https, with a host and without credentials")
    return target


async def _drain(response: httpx.Response) -> None:
    """Read a little, so that a short answer ends cleanly. Raw, so that nothing is decompressed."""
    size = 0
    async for chunk in response.aiter_raw(1_024):
        size += len(chunk)
        if size >= RESPONSE_BYTES_MAX:
            return


def _reason(error: httpx.TransportError) -> str:
    if "CERTIFICATE" in str(error).upper():
        return "its certificate is not valid"
    return "refused or unreachable"
