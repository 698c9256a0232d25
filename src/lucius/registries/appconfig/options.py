"""Which store, and as whom."""

from __future__ import annotations

import re

from msgspec import Struct

SCHEME = "appconfig://"
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}(?::\d{1,5})?")
_CONNECTION = re.compile(r"Endpoint=(?P<endpoint>https?://[^;/]+)/?;Id=[^;]+;Secret=[^;]+;?")
_LABEL = re.compile(r"[^\x00-\x1f*,\\%]{0,128}")


class AppConfigOptions(Struct, frozen=True, kw_only=True):
    address: str
    """`appconfig://NAME.azconfig.io`; without a name if there is a connection string."""
    connection: str = ""
    """A connection string, for emulators and tests."""
    label: str = ""
    """The environment; empty means key-values without a label."""

    @property
    def host(self) -> str:
        return self.address.removeprefix(SCHEME).rstrip("/")

    @property
    def endpoint(self) -> str:
        """Where the store is; nothing secret."""
        found = _CONNECTION.fullmatch(self.connection)
        return found["endpoint"] if found else f"https://{self.host}"

    def fault(self) -> str | None:
        """What is wrong with these settings."""
        if self.connection and not _CONNECTION.fullmatch(self.connection):
            return "LUCIUS_APPCONFIG_CONNECTION must be Endpoint=https://…;Id=…;Secret=…"
        if self.host and not _HOST.fullmatch(self.host):
            return f"LUCIUS_REGISTRY={self.address}: must be appconfig://NAME.azconfig.io"
        if not self.host and not self.connection:
            return (
                "LUCIUS_REGISTRY=appconfig:// names no store: write appconfig://NAME.azconfig.io, or set"
                " LUCIUS_APPCONFIG_CONNECTION"
            )
        if self.host and self.connection and self.endpoint.partition("://")[2] != self.host:
            return f"LUCIUS_REGISTRY names the store {self.host}, and LUCIUS_APPCONFIG_CONNECTION another"
        if not _LABEL.fullmatch(self.label):
            return "LUCIUS_REGISTRY_LABEL must have at most 128 characters, without * , \\ and %"
        return None
