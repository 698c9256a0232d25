"""The issuer's public keys: fetched on demand, cached for ten minutes, fetched again when they rotate.

A token that names an unknown key causes another fetch, but at most every ten seconds, so that forged tokens cannot
flood the issuer with requests. If the issuer is unreachable, known keys are used for another hour.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from jwt import PyJWK, PyJWTError
from msgspec import Struct

from lucius.auth.issuer_http import BYTES_MAX, FETCH_ERRORS, SECONDS_MAX, fetch
from lucius.domain.errors import InfrastructureError
from lucius.settings import SettingsError

FRESH_SECONDS = 600.0
STALE_SECONDS_MAX = 3_600.0
REFETCH_SECONDS = 10.0
KEYS_MAX = 100
RSA_BITS_MIN = 2_048

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
_ALGORITHMS_OF = {("RSA", None): ("RS256", "PS256"), ("EC", "P-256"): ("ES256",), ("OKP", "Ed25519"): ("EdDSA",)}

log = logging.getLogger("lucius.auth")


class PublicKey(Struct, frozen=True):
    """One key, with each algorithm that it may be used for; no other algorithm is tried with it."""

    kid: str | None
    by_algorithm: dict[str, PyJWK]


class Jwks:
    def __init__(
        self, location: str, monotonic: Callable[[], float] = time.monotonic, setting: str = "LUCIUS_JWKS_URL"
    ) -> None:
        """`setting`: what to check if the keys cannot be fetched."""
        self._is_http = location.startswith(("http://", "https://"))
        if "://" in location and not self._is_http and not location.startswith("file://"):
            raise SettingsError(f"{setting} must be an http or https address, or a file")
        self._location = location
        self._setting = setting
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._keys: tuple[PublicKey, ...] = ()
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._failure: str | None = None

    @property
    def problem(self) -> str | None:
        """A message if the last fetch failed; the log says why."""
        return None if self._failure is None else "the token issuer's keys could not be fetched; the log says why"

    async def key(self, kid: str | None) -> PublicKey | None:
        """The key with this id (without an id: the only key), or None if the issuer has no such key. Raises
        `InfrastructureError` if the keys cannot be fetched."""
        found = self._cached(kid)
        if found is not None and (self._age() < FRESH_SECONDS or self._lock.locked()):
            return found
        async with self._lock:
            # Another call may have fetched while this one waited for the lock.
            found = self._cached(kid)
            if found is not None and self._age() < FRESH_SECONDS:
                return found
            if self._may_try():
                await self._fetch()
                found = self._cached(kid)
        if found is None and self._failure is not None:
            raise InfrastructureError.unavailable(
                f"the token issuer's keys cannot be fetched at the moment; try again, or check {self._setting}"
            )
        return found

    def _age(self) -> float:
        return float("inf") if self._fetched_at is None else self._monotonic() - self._fetched_at

    def _cached(self, kid: str | None) -> PublicKey | None:
        if self._age() > FRESH_SECONDS + STALE_SECONDS_MAX:
            return None
        if kid is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.kid == kid), None)

    def _may_try(self) -> bool:
        return self._tried_at is None or self._monotonic() - self._tried_at >= REFETCH_SECONDS

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(SECONDS_MAX):
                content = await (self._download() if self._is_http else asyncio.to_thread(self._read_file))
            keys = read_jwks(content)
        except FETCH_ERRORS as error:
            self._failure = f"{type(error).__name__}: {error}"
            log.warning("the token issuer's keys could not be fetched: %s", self._failure)
        else:
            self._keys = keys
            self._failure = None
            self._fetched_at = self._monotonic()
        self._tried_at = self._monotonic()

    async def _download(self) -> bytes:
        status, content = await fetch(self._location)
        if status != 200:
            raise ValueError(f"the answer was {status}")
        return content

    def _read_file(self) -> bytes:
        with Path(self._location.removeprefix("file://")).open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            raise ValueError(f"the file has more than {BYTES_MAX} bytes")
        return content


def read_jwks(content: bytes) -> tuple[PublicKey, ...]:
    """The keys of a set that can verify a token; other keys are ignored. Raises `ValueError`."""
    try:
        document = msgspec.json.decode(content)
    except msgspec.DecodeError:
        raise ValueError("this is not JSON") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    usable = map(_read_key, entries[:KEYS_MAX]) if isinstance(entries, list) else ()
    keys = tuple(key for key in usable if key is not None)
    if not keys:
        raise ValueError(
            f"this is not a JSON Web Key Set with a usable key; keys for {', '.join(ALGORITHMS)} are usable"
        )
    return keys


def _read_key(jwk: Any) -> PublicKey | None:
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
        return None
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    kty, kid, algorithm = jwk.get("kty"), jwk.get("kid"), jwk.get("alg")
    curve = None if kty == "RSA" else jwk.get("crv")
    if not isinstance(kty, str) or not isinstance(curve, str | None) or not isinstance(kid, str | None):
        return None
    usable = [name for name in _ALGORITHMS_OF.get((kty, curve), ()) if algorithm in (None, name)]
    try:
        by_algorithm = {name: PyJWK(jwk, name) for name in usable}
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if kty == "RSA" and any(key.key.key_size < RSA_BITS_MIN for key in by_algorithm.values()):
        return None
    return PublicKey(kid, by_algorithm) if by_algorithm else None
