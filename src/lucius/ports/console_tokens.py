"""The port of the console's tokens: links that sign in once, and sessions. Only hashes are kept."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from lucius.domain.time import Instant


class TokenKind(StrEnum):
    LINK = "link"
    SESSION = "session"


class ConsoleToken(Struct, frozen=True, kw_only=True):
    token_hash: str
    kind: TokenKind
    key_hash: str
    """Whose it is: the SHA-256 of an API key, without which the token is not good any more, or, with a `person`, a
    hash that names that person."""
    created_at: Instant
    expires_at: Instant
    person: str | None = None
    """Whom an issuer of OpenID Connect signed in, as JSON; None if the token stands for an API key."""


class ConsoleTokens(Protocol):
    """Every method raises `DatabaseUnavailable` if it cannot be carried out, and then nothing was written."""

    async def add(self, token: ConsoleToken, kept_max: int) -> None:
        """Keep a token, and of its owner at most `kept_max` of its kind, the newest. Expired ones are deleted."""
        ...

    async def exchange(self, link_hash: str, session: ConsoleToken, kept_max: int) -> ConsoleToken | None:
        """Use up a link that has not expired, and keep `session` with the key of the link. None if there is no such
        link: of several callers, one gets a session."""
        ...

    async def find(self, token_hash: str) -> ConsoleToken | None: ...

    async def remove(self, token_hash: str) -> None: ...
