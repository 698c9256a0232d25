"""Which addresses may be called when somebody outside chose the URL: webhooks, and inputs of commands.

LUCIUS and its services are inside the network, and a client is not. So a name is resolved once, all of its addresses
are checked, and the call goes to one of exactly those: a name that resolves differently a moment later gains nothing.
Imports nothing of LUCIUS, so that the server and the platform kit can share it.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

ADDRESSES_MAX = 4
"""Addresses of one name that are tried, in the order the resolver gives them."""

_NAT64 = IPv6Network("64:ff9b::/96")
_NOT_PUBLIC: tuple[IPv4Network | IPv6Network, ...] = (
    *map(IPv4Network, ("100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15")),
    *map(IPv6Network, ("64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16")),
)
"""Ranges for special uses that not every release of Python knows."""

_METADATA = frozenset(
    (address.version, int(address))
    for address in map(
        ip_address,
        (
            *("168.63.129.16", "100.100.100.200", "192.0.0.192"),  # Azure, Alibaba, Oracle
            *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42"),  # AWS, its pods, Google, Scaleway
        ),
    )
)
"""Metadata services of clouds, which serve credentials, besides the link-local addresses: refused whatever the settings
say. As numbers, because an address with a zone is not equal to the same one without."""


class AddressRefused(Exception):
    """This address must not be called."""


class AddressUnknown(Exception):
    """The name does not resolve, at least not now."""


def allowed_addresses(
    host: str, texts: Iterable[str], private_allowed: bool, use: str
) -> list[IPv4Address | IPv6Address]:
    """Of the addresses that `host` resolves to, those to try. If one of them must not be called, none is: no public
    name has both kinds. Raises `AddressRefused`, which says what they are not used for, or `AddressUnknown`."""
    try:
        addresses = [ip_address(text) for text in texts]
    except ValueError:
        addresses = []
    if not addresses:
        raise AddressUnknown(f"the name {host} does not resolve")
    for address in addresses:
        reason = refusal(address, private_allowed)
        if reason is not None:
            raise AddressRefused(f"{host} resolves to {reason} address, and {use}")
    return addresses[:ADDRESSES_MAX]


def refusal(address: IPv4Address | IPv6Address, private_allowed: bool) -> str | None:
    """The kind of address, if it must not be called."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return "an IPv4-mapped"
        if address.sixtofour is not None or address.teredo is not None:
            return "a tunnelled"
        if address.is_site_local:
            return None if private_allowed else "a private"
        if address in _NAT64:
            # The network translates it to the IPv4 address in its last 32 bits, so check that one.
            return refusal(IPv4Address(int(address) & 0xFFFF_FFFF), private_allowed)
    if (address.version, int(address)) in _METADATA:
        return "a cloud's metadata"
    if address.is_unspecified:
        return "an unspecified"
    if address.is_multicast:
        return "a multicast"
    if address.is_link_local:
        # Clouds serve credentials there: no setting allows it.
        return "a link-local"
    if address.is_loopback:
        return None if private_allowed else "a loopback"
    if address.is_reserved:
        return "a reserved"
    if not address.is_global or any(address in network for network in _NOT_PUBLIC):
        return None if private_allowed else "a private"
    return None
