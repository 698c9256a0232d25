"""Signing in to the console: links that are good for one use and one minute, and sessions with an end.

A token is random and kept only as a hash. What it may do is what its API key may do, looked up each time: a session
ends with its key. A session of somebody whom an issuer of OpenID Connect signed in contains what the issuer said, and
ends with the issuer's token.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from lucius.domain.time import Instant, after
from lucius.ports.clock import Clock
from lucius.ports.console_tokens import ConsoleToken, ConsoleTokens, TokenKind

LINK_SECONDS = 60.0
TOKEN_BYTES = 32
TOKEN_CHARS_MAX = 64
LINKS_MAX, SESSIONS_MAX = 20, 200
"""Of one API key or person; older ones end."""
FOUND_SECONDS = 1.0
"""How long a session that was found is not looked up again."""
FOUND_MAX = 4_096


class NewToken(Struct, frozen=True):
    token: str
    expires_at: Instant


class ConsoleSessions:
    def __init__(
        self,
        store: ConsoleTokens,
        clock: Clock,
        session_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._session_seconds = session_seconds
        self._monotonic = monotonic
        self._found: dict[str, tuple[float, ConsoleToken]] = {}

    async def new_link(self, key_hash: str) -> NewToken:
        token, kept = self._make(TokenKind.LINK, key_hash, LINK_SECONDS)
        await self._store.add(kept, LINKS_MAX)
        return NewToken(token, kept.expires_at)

    async def new_session(self, key_hash: str) -> NewToken:
        token, kept = self._make(TokenKind.SESSION, key_hash, self._session_seconds)
        await self._store.add(kept, SESSIONS_MAX)
        return NewToken(token, kept.expires_at)

    async def new_person_session(self, identity: str, person: str, ends_by: Instant) -> NewToken:
        """A session of a person, that ends at `ends_by` at the latest."""
        token, kept = self._make(TokenKind.SESSION, identity, self._session_seconds)
        kept = replace(kept, person=person, expires_at=min(kept.expires_at, ends_by))
        await self._store.add(kept, SESSIONS_MAX)
        return NewToken(token, kept.expires_at)

    async def use_link(self, token: str) -> NewToken | None:
        """A session for a link that was not used and has not expired; None otherwise."""
        session, kept = self._make(TokenKind.SESSION, "", self._session_seconds)
        exchanged = await self._store.exchange(_hash(token), kept, SESSIONS_MAX)
        return None if exchanged is None else NewToken(session, kept.expires_at)

    async def find(self, token: str) -> ConsoleToken | None:
        """The session of this token, unless it has ended."""
        if not token or len(token) > TOKEN_CHARS_MAX:
            return None
        hash_, now = _hash(token), self._monotonic()
        found_at, kept = self._found.get(hash_, (0.0, None))
        if kept is None or now - found_at >= FOUND_SECONDS:
            kept = await self._store.find(hash_)
            if kept is None or kept.kind is not TokenKind.SESSION:
                self._found.pop(hash_, None)
                return None
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            self._found[hash_] = (now, kept)
        return kept if self._clock.now() < kept.expires_at else None

    async def end(self, token: str) -> None:
        self._found.pop(_hash(token), None)
        await self._store.remove(_hash(token))

    def _make(self, kind: TokenKind, key_hash: str, seconds: float) -> tuple[str, ConsoleToken]:
        token, now = secrets.token_urlsafe(TOKEN_BYTES), self._clock.now()
        kept = ConsoleToken(
            token_hash=_hash(token), kind=kind, key_hash=key_hash, created_at=now, expires_at=after(now, seconds)
        )
        return token, kept


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
