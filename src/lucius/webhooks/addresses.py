"""Which addresses a webhook may be sent to.

A client chooses the address and LUCIUS sits inside the network, so a name is resolved once, every address it stands for
is checked, and the call goes to one of exactly those: a name that changes its mind a moment later gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

ADDRESSES_MAX = 4
"""Addresses of one name that are tried, in the order the resolver gives them."""

THREADS_MAX = 8

_NAT64 = IPv6Network("64:ff9b::/96")
_NOT_PUBLIC: tuple[IPv4Network | IPv6Network, ...] = (
    *map(IPv4Network, ("100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15")),
    *map(IPv6Network, ("64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16")),
)
"""Ranges for special uses that not every release of Python's library knows to be so."""

Resolver = Callable[[str, int], Awaitable[list[str]]]


class AddressRefused(Exception):
    """The address is not one that a webhook may be sent to."""


class AddressUnknown(Exception):
    """The name stands for no address, at least not now."""


class SystemResolver:
    """Every address a name stands for. On threads of its own: a client's slow name server must hold up nothing else."""

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
    """The addresses to try. One that may not be called spoils the name: nobody public has both kinds. Raises
    `AddressRefused` or `AddressUnknown`."""
    try:
        texts = await resolver(host, port)
        addresses = [ip_address(text) for text in texts]
    except (OSError, ValueError, UnicodeError):
        raise AddressUnknown(f"the name {host} does not resolve") from None
    if not addresses:
        raise AddressUnknown(f"the name {host} does not resolve")
    for address in addresses:
        reason = refusal(address, private_allowed)
        if reason is not None:
            raise AddressRefused(f"{host} stands for {reason} address, and webhooks are not sent there")
    return addresses[:ADDRESSES_MAX]


def refusal(address: IPv4Address | IPv6Address, private_allowed: bool) -> str | None:
    """What kind of address this is, if it may not be called."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return "an IPv4-mapped"
        if address.sixtofour is not None or address.teredo is not None:
            return "a tunnelled"
        if address.is_site_local:
            return None if private_allowed else "a private"
        if address in _NAT64:
            # The network turns it into the IPv4 address in its last 32 bits, so that is the one to judge.
            return refusal(IPv4Address(int(address) & 0xFFFF_FFFF), private_allowed)
    if address.is_unspecified:
        return "an unspecified"
    if address.is_multicast:
        return "a multicast"
    if address.is_link_local:
        # Cloud machines hand out their credentials there: no setting opens it.
        return "a link-local"
    if address.is_loopback:
        return None if private_allowed else "a loopback"
    if address.is_reserved:
        return "a reserved"
    if not address.is_global or any(address in network for network in _NOT_PUBLIC):
        return None if private_allowed else "a private"
    return None
