"""The addresses of a webhook's host, resolved beside the event loop and checked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv6Address

from lucius.public_addresses import AddressUnknown, allowed_addresses

THREADS_MAX = 256
"""A lookup continues after the deadline of its call, until the system gives up on the name server. So there are several
times as many threads as calls: a tenant whose names never resolve must not use up all of them."""

Resolver = Callable[[str, int], Awaitable[list[str]]]


class SystemResolver:
    """All addresses of a name. On separate threads: a client's slow name server must delay nothing else."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, "webhook-names")

    async def __call__(self, host: str, port: int) -> list[str]:
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


async def checked_addresses(
    host: str, port: int, private_allowed: bool, resolver: Resolver
) -> list[IPv4Address | IPv6Address]:
    """The addresses to try. Raises `AddressRefused` or `AddressUnknown`."""
    try:
        texts = await resolver(host, port)
    except (OSError, UnicodeError):
        raise AddressUnknown(f"the name {host} does not resolve") from None
    return allowed_addresses(host, texts, private_allowed, "webhooks are not sent there")
