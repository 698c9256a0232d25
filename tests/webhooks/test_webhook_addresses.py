"""Addresses: which of them a webhook may be sent to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from lucius.public_addresses import AddressRefused, AddressUnknown, refusal
from lucius.webhooks.addresses import SystemResolver, checked_addresses

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808"]
PRIVATE = [
    *("127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.5.4", "192.168.1.1", "100.64.0.1", "192.0.0.8", "198.18.0.1"),
    *("192.88.99.1", "203.0.113.7", "0.1.2.3"),
    *("::1", "fc00::1", "fd12:3456::1", "fec0::1", "2001:db8::1"),
    *("64:ff9b::7f00:1", "64:ff9b::a00:1"),
]
NEVER = [
    *("0.0.0.0", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "169.254.169.254", "169.254.0.1"),
    *("::", "ff02::1", "fe80::1", "fe80::1%eth0", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::7f00:1", "::808:808"),
    *("64:ff9b:1::1", "100::1", "5f00::1"),
    *("2002:7f00:1::", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "64:ff9b::a9fe:a9fe"),
]

METADATA = [
    *("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fe80::a9fe:a9fe", "fd00:ec2::254%eth0"),
    *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::", "::a9fe:a9fe"),
    *("::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::1", "64:ff9b::6464:64c8"),
]
"""Where clouds hand out their machines' credentials, in every spelling."""


@pytest.mark.parametrize("address", METADATA)
def test_metadata_services_may_never_be_called(address: str) -> None:
    assert refusal(ip_address(address), private_allowed=False) is not None
    assert refusal(ip_address(address), private_allowed=True) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_called(address: str) -> None:
    assert refusal(ip_address(address), private_allowed=False) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_may_be_called_only_where_that_is_allowed(address: str) -> None:
    assert refusal(ip_address(address), private_allowed=False) is not None
    assert refusal(ip_address(address), private_allowed=True) is None


@pytest.mark.parametrize("address", NEVER)
def test_other_addresses_may_never_be_called(address: str) -> None:
    assert refusal(ip_address(address), private_allowed=False) is not None
    assert refusal(ip_address(address), private_allowed=True) is not None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "017700000001", "::1"])
async def test_every_spelling_of_loopback_is_seen_through(host: str) -> None:
    resolver = SystemResolver()
    with pytest.raises((AddressRefused, AddressUnknown)):
        await checked_addresses(host, 80, False, resolver)
    resolver.close()


async def test_one_bad_address_spoils_the_name() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(AddressRefused, match=r"hook\.example resolves to a private address"):
        await checked_addresses("hook.example", 443, False, both)


@pytest.mark.parametrize("answer", [[], ["not an address"], OSError(), UnicodeError()])
async def test_a_name_without_addresses_is_unknown(answer: list[str] | Exception) -> None:
    async def resolver(host: str, port: int) -> list[str]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(AddressUnknown, match=r"hook\.example"):
        await checked_addresses("hook.example", 443, False, resolver)
