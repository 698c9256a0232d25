"""Where the console is, as browsers see it: the prefix of its paths, and whether it is behind TLS."""

from __future__ import annotations

from urllib.parse import urlsplit

from msgspec import Struct

from lucius.settings import TRACE_ID, Settings, SettingsError


class Site(Struct, frozen=True):
    url: str
    """Without a slash at its end: `https://ops.example.com/lucius/console`."""
    base: str
    """Its path: `/lucius/console`."""
    is_secure: bool


def site_of(settings: Settings) -> Site:
    address = settings.console_address
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise SettingsError(
            f"LUCIUS_CONSOLE_URL={settings.console_url!r}: must be empty, or an address such as"
            " https://ops.example.com/lucius"
        )
    trace = settings.console_trace_url
    if trace and (urlsplit(trace).scheme not in ("http", "https") or TRACE_ID not in trace):
        raise SettingsError(
            f"LUCIUS_CONSOLE_TRACE_URL={trace!r}: must be empty, or an address such as"
            f" https://traces.example.com/trace/{TRACE_ID}"
        )
    return Site(address, parts.path, parts.scheme == "https")
