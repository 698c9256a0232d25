"""Server addresses."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

URL_DEFAULT = "http://127.0.0.1:8000"
URL_VARIABLE = "LUCIUS_ORCHESTRATOR_URL"
URL_ALIAS = "LUCIUS_URL"
"""Used if `URL_VARIABLE` is not set."""


class AddressInvalid(ValueError):
    pass


def find_url(environment: Mapping[str, str] | None = None) -> str:
    """The address in the environment, or else that of `lucius up` on this machine."""
    environment = os.environ if environment is None else environment
    found = (environment.get(name, "").strip() for name in (URL_VARIABLE, URL_ALIAS))
    return next(filter(None, found), URL_DEFAULT)


def check_address(url: str) -> None:
    """Raise `AddressInvalid` for a URL that no request can be sent to."""
    if not is_address(url) or urlsplit(url).scheme not in ("http", "https"):
        raise AddressInvalid(f"{url!r} is not an address such as {URL_DEFAULT}")


def is_address(url: str) -> bool:
    """Whether the URL has a scheme, a host and, if any, a valid port."""
    try:
        parts = urlsplit(url)
        return bool(parts.scheme and parts.hostname) and parts.port != 0
    except ValueError:  # A port that is not a number, or half an IPv6 address.
        return False


def has_credentials(url: str) -> bool:
    """Whether the URL, which is logged, contains a user or a password."""
    parts = urlsplit(url)
    return parts.username is not None or parts.password is not None


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
