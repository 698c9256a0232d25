"""Conformance suite for stores of the console's tokens. Provide a fixture `tokens`, an open and empty store."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from msgspec.structs import replace

from lucius.ports.console_tokens import ConsoleToken, ConsoleTokens, TokenKind

KEPT_MAX = 3


def token(name: str, created_at: int = 10, **fields: Any) -> ConsoleToken:
    known: dict[str, Any] = {
        "token_hash": hashed(name), "kind": TokenKind.SESSION, "key_hash": hashed("key"), "created_at": created_at,
        "expires_at": created_at + 1_000,
    }  # fmt: skip
    return ConsoleToken(**known | fields)


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class ConsoleTokensSuite:
    async def test_a_token_is_found_until_it_is_removed(self, tokens: ConsoleTokens) -> None:
        kept = token("a")
        assert await tokens.find(kept.token_hash) is None
        for _ in range(2):
            await tokens.add(kept, KEPT_MAX)
        assert await tokens.find(kept.token_hash) == kept
        for _ in range(2):
            await tokens.remove(kept.token_hash)
        assert await tokens.find(kept.token_hash) is None

    async def test_a_key_keeps_its_newest_of_each_kind(self, tokens: ConsoleTokens) -> None:
        other = token("other", 1, key_hash=hashed("another key"))
        link = token("link", 1, kind=TokenKind.LINK)
        for one in (other, link, *(token(str(place), 10 + place) for place in range(5))):
            await tokens.add(one, KEPT_MAX)
        found = [await tokens.find(hashed(name)) is not None for name in ("other", "link", "0", "1", "2", "3", "4")]
        assert found == [True, True, False, False, True, True, True]

    async def test_expired_ones_are_deleted_when_another_is_added(self, tokens: ConsoleTokens) -> None:
        await tokens.add(token("old", 10, key_hash=hashed("another key")), KEPT_MAX)
        await tokens.add(token("young", 1_009), KEPT_MAX)
        assert await tokens.find(hashed("old")) is not None
        await tokens.add(token("younger", 1_010), KEPT_MAX)
        assert await tokens.find(hashed("old")) is None
        assert await tokens.find(hashed("young")) is not None

    async def test_a_link_is_used_once(self, tokens: ConsoleTokens) -> None:
        link = token("link", kind=TokenKind.LINK, key_hash=hashed("its key"))
        await tokens.add(link, KEPT_MAX)
        sessions = [token(f"session {place}", 20, key_hash="") for place in range(8)]
        results = await asyncio.gather(*(tokens.exchange(link.token_hash, one, KEPT_MAX) for one in sessions))
        (got,) = [one for one in results if one is not None]
        assert got == replace(sessions[results.index(got)], key_hash=hashed("its key"))
        assert await tokens.find(got.token_hash) == got
        assert await tokens.find(link.token_hash) is None
        assert [await tokens.find(one.token_hash) for one in sessions].count(None) == 7

    async def test_what_is_no_link_or_has_expired_is_not_exchanged(self, tokens: ConsoleTokens) -> None:
        link, session = token("link", kind=TokenKind.LINK), token("session")
        await tokens.add(link, KEPT_MAX)
        await tokens.add(session, KEPT_MAX)
        new = token("new", link.expires_at)
        assert await tokens.exchange(hashed("nothing"), new, KEPT_MAX) is None
        assert await tokens.exchange(session.token_hash, new, KEPT_MAX) is None
        assert await tokens.exchange(link.token_hash, new, KEPT_MAX) is None
        assert await tokens.find(new.token_hash) is None
        assert await tokens.find(session.token_hash) == session
