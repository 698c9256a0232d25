"""Names of keys: `lucius:globals`, `lucius:protocols:ID:VERSION`, `lucius:tenants:ID` and `lucius:sentinel`."""

from __future__ import annotations

from lucius.registries.contents import Kind

PREFIX = "lucius:"
SENTINEL = f"{PREFIX}sentinel"
KEY_LINE = ", line "
"""Separates a key from a line in problems; a colon would look like part of the key."""


def key_of(identity: str) -> str:
    """App Configuration allows no `%` in keys, and tenants' ids may have one."""
    return PREFIX + identity.replace("~", "~7E").replace("%", "~25")


def identity_of(key: str) -> str:
    return key.removeprefix(PREFIX).replace("~25", "%").replace("~7E", "~")


def kind_of(key: str) -> Kind | None:
    """None for a key that is not of the registry."""
    name, _, rest = key.removeprefix(PREFIX).partition(":")
    if name == Kind.GLOBALS and not rest:
        return Kind.GLOBALS
    return Kind(name) if name in (Kind.PROTOCOL, Kind.TENANT) and rest else None
