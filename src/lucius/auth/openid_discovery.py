"""What an issuer of OpenID Connect publishes about itself: fetched when somebody signs in, kept for ten minutes.

The answer says where LUCIUS sends people, codes and its client secret, so it is held to narrow rules: it must name the
configured issuer, and its addresses must be `https`. An issuer on this machine may use `http`; its addresses must then
be on this machine too. An address on another host than the issuer's must have a name, so that nobody is led to the
numeric addresses of a private network.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from lucius.auth.issuer_http import FETCH_ERRORS, fetch
from lucius.domain.errors import InfrastructureError
from lucius.settings import SettingsError

FRESH_SECONDS = 600.0
REFETCH_SECONDS = 10.0
"""After a failure, how long nothing is fetched: strangers cannot make LUCIUS flood the issuer."""
URL_CHARS_MAX = 2_000
LOOPBACK = ("localhost", "127.0.0.1", "::1")
WELL_KNOWN = "/.well-known/openid-configuration"

log = logging.getLogger("lucius.auth")


class Endpoints(Struct, frozen=True, kw_only=True):
    authorization: str
    token: str
    jwks: str
    end_session: str | None
    """Where people sign out of the issuer itself; None if it has no such page."""
    uses_basic: bool
    """Whether the client secret goes into the header Authorization, not into the form."""
    names_itself: bool
    """Whether its answers contain `iss`."""


class Discovery:
    def __init__(self, issuer: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises `SettingsError` unless the issuer is an `https` address, or an `http` one on this machine."""
        self._issuer = issuer
        self._parts = _issuer_parts(issuer)
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._known: Endpoints | None = None
        self._fetched_at = self._failed_at = float("-inf")

    async def endpoints(self) -> Endpoints:
        """Raises `InfrastructureError` if the issuer does not answer, or not as it should."""
        async with self._lock:
            now = self._monotonic()
            if self._known is None or now - self._fetched_at > FRESH_SECONDS:
                if now - self._failed_at > REFETCH_SECONDS:
                    await self._fetch()
                if self._known is None:
                    raise _away()
            return self._known

    async def _fetch(self) -> None:
        try:
            status, content = await fetch(self._issuer.rstrip("/") + WELL_KNOWN)
            if status != 200:
                raise ValueError(f"the answer was {status}")
            self._known = self._read(content)
            self._fetched_at = self._monotonic()
        except FETCH_ERRORS as error:
            # What was known stays in force: sign-in then fails only if the issuer's other addresses fail too.
            self._failed_at = self._monotonic()
            log.warning("the OpenID Connect issuer could not be asked: %s: %s", type(error).__name__, error)

    def _read(self, content: bytes) -> Endpoints:
        document = msgspec.json.decode(content)
        if not isinstance(document, dict) or document.get("issuer") != self._issuer:
            raise ValueError("the answer is not that of the issuer in LUCIUS_OIDC_ISSUER, character by character")
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        has_end = document.get("end_session_endpoint") is not None
        return Endpoints(
            authorization=self._address(document, "authorization_endpoint"),
            token=self._address(document, "token_endpoint"),
            jwks=self._address(document, "jwks_uri"),
            end_session=self._address(document, "end_session_endpoint") if has_end else None,
            uses_basic=isinstance(methods, list) and "client_secret_basic" in methods,
            names_itself=document.get("authorization_response_iss_parameter_supported") is True,
        )

    def _address(self, document: dict[str, Any], name: str) -> str:
        url = document.get(name)
        if not isinstance(url, str) or len(url) > URL_CHARS_MAX or not url.isprintable():
            raise ValueError(f"the answer lacks {name}")
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_here = self._parts.scheme == "http"
        if parts.scheme != self._parts.scheme or not host or "@" in parts.netloc or parts.fragment:
            raise ValueError(f"{name} is not an address that is allowed: {self._parts.scheme} is needed")
        if host != self._parts.hostname and ((is_here and host not in LOOPBACK) or _is_numeric(host)):
            raise ValueError(f"{name} is on a host that is not allowed")
        return url


def _issuer_parts(issuer: str) -> SplitResult:
    try:
        parts = urlsplit(issuer)
        host = parts.hostname or ""
        is_allowed = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
        if is_allowed and host and "@" not in parts.netloc and not parts.query and not parts.fragment:
            return parts
    except ValueError:
        pass
    raise SettingsError(
        f"LUCIUS_OIDC_ISSUER={issuer!r}: must be an https address such as https://login.example.org"
        " (http only on this machine), without a query"
    )


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _away() -> InfrastructureError:
    return InfrastructureError.unavailable(
        "the OpenID Connect issuer does not answer as it should; try again in a moment, or sign in with an API key."
        " The log of LUCIUS says more"
    )
