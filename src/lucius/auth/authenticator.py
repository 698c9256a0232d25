"""The authenticator: from an `Authorization` header to a principal."""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256

from lucius.auth.jwks import Jwks
from lucius.auth.jwt import TOKEN_CHARS_MAX, TokenVerifier, token_rules, unauthenticated
from lucius.auth.keys import ApiKeys, KeySource
from lucius.auth.principal import Principal
from lucius.settings import Settings, SettingsError

KNOWN_MAX = 4_096
"""Headers cached with their principals. Only valid ones are cached, so that strangers cannot fill the cache."""
_HEADER_CHARS_MAX = TOKEN_CHARS_MAX + 64


class Authenticator:
    """Raises `SettingsError` if the authentication settings are invalid."""

    def __init__(
        self,
        settings: Settings,
        monotonic: Callable[[], float] = time.monotonic,
        key_source: KeySource | None = None,
    ) -> None:
        """`key_source`: where the keys of LUCIUS_API_KEYS_FILE are, if that is no file."""
        self._keys = ApiKeys(settings.api_key, key_source or settings.api_keys_file, monotonic)
        self._tokens = _token_verifier(settings, monotonic)
        self._known: dict[str, Principal] = {}
        self._generation = self._keys.generation

    @property
    def is_configured(self) -> bool:
        """Whether any caller can be authenticated."""
        return self._tokens is not None or not self._keys.is_empty

    @property
    def problem(self) -> str | None:
        """Why the current key file is not in effect; None if it is."""
        self._keys.refresh()
        return self._keys.problem

    @property
    def accepts_tokens(self) -> bool:
        return self._tokens is not None

    @property
    def token_problem(self) -> str | None:
        """Why the token issuer's keys may be outdated; None if no problem is known."""
        return None if self._tokens is None else self._tokens.problem

    async def fetch_token_keys(self) -> None:
        """Raises `InfrastructureError` if the token issuer's keys cannot be fetched."""
        if self._tokens is not None:
            await self._tokens.fetch_keys()

    def known(self, authorization: str | None) -> Principal | None:
        """The principal of a header with an API key, without I/O. None means only that `authenticate` must be
        called."""
        if authorization is None or len(authorization) > _HEADER_CHARS_MAX:
            return None
        self._keys.refresh()
        if self._generation != self._keys.generation:
            self._generation = self._keys.generation
            self._known.clear()
        principal = self._known.get(authorization)
        if principal is not None:
            return principal
        credential = _credential(authorization)
        principal = None if credential is None else self._keys.find(credential)
        if principal is not None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[authorization] = principal
        return principal

    def key_hash(self, authorization: str | None) -> str | None:
        """The SHA-256, in hex, of the API key in a header; None if it is not one that is known."""
        credential = None if self.known(authorization) is None else _credential(authorization or "")
        return None if credential is None else sha256(credential.encode()).hexdigest()

    def of_key_hash(self, key_hash: str) -> Principal | None:
        """The principal of the API key with this SHA-256; None if the key is no longer known."""
        return self._keys.find_by_hash(bytes.fromhex(key_hash))

    async def authenticate(self, authorization: str | None) -> Principal:
        """The caller's principal. Raises `CallerError` (UNAUTHENTICATED), or `InfrastructureError` (UNAVAILABLE) while
        the token issuer's keys cannot be fetched. Neither error contains the credential."""
        principal = self.known(authorization)
        if principal is not None:
            return principal
        if not self.is_configured:
            raise unauthenticated(
                "no credentials are configured: set LUCIUS_API_KEY, LUCIUS_API_KEYS_FILE or LUCIUS_JWT_ISSUER"
            )
        if not authorization:
            raise unauthenticated("send an API key or a token as Authorization: Bearer …")
        if len(authorization) > _HEADER_CHARS_MAX:
            raise unauthenticated(f"the Authorization header has more than {_HEADER_CHARS_MAX} characters")
        credential = _credential(authorization)
        if credential is None:
            raise unauthenticated(
                "the Authorization header must be the word Bearer, a space, and an API key or a token"
            )
        if credential.count(".") != 2:
            raise unauthenticated("unknown API key; ask an operator of LUCIUS for one")
        if self._tokens is None:
            raise unauthenticated("unknown API key, and tokens are not accepted here; send an API key")
        return await self._tokens.verify(credential)


def _credential(authorization: str) -> str | None:
    scheme, _, credential = authorization.partition(" ")
    credential = credential.strip(" ")
    if scheme.lower() != "bearer" or not credential or " " in credential:
        return None
    return credential


def _token_verifier(settings: Settings, monotonic: Callable[[], float]) -> TokenVerifier | None:
    needed = {
        "LUCIUS_JWT_ISSUER": settings.jwt_issuer,
        "LUCIUS_JWT_AUDIENCE": settings.jwt_audience,
        "LUCIUS_JWKS_URL": settings.jwks_url,
    }
    if not any(needed.values()):
        return None
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise SettingsError(f"tokens are accepted only with all of {', '.join(needed)}; missing: {', '.join(missing)}")
    rules = token_rules(settings, settings.jwt_issuer, settings.jwt_audience)
    return TokenVerifier(rules, Jwks(settings.jwks_url, monotonic))
