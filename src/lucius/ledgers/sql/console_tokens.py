"""Sign-in links and sessions of the console, in SQL."""

from __future__ import annotations

from msgspec.structs import replace

from lucius.ports.console_tokens import ConsoleToken, TokenKind
from lucius.sql.database import Database, Fetch, Run, Script

ADD = (
    "INSERT INTO console_tokens (token_hash, kind, key_hash, created_at, expires_at, person)"
    " VALUES ($1, $2, $3, $4, $5, $6)"
    " ON CONFLICT (token_hash) DO NOTHING"
)
EXPIRE = "DELETE FROM console_tokens WHERE expires_at <= $1"
TRIM = (
    "DELETE FROM console_tokens WHERE token_hash IN (SELECT token_hash FROM console_tokens"
    " WHERE key_hash = $1 AND kind = $2 ORDER BY created_at DESC, token_hash LIMIT 1000 OFFSET $3)"
)
FIND = "SELECT token_hash, kind, key_hash, created_at, expires_at, person FROM console_tokens WHERE token_hash = $1"
TAKE = (
    "DELETE FROM console_tokens WHERE token_hash = $1 AND kind = $2"
    " RETURNING token_hash, kind, key_hash, created_at, expires_at"
)
REMOVE = "DELETE FROM console_tokens WHERE token_hash = $1"


class SqlConsoleTokens:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, token: ConsoleToken, kept_max: int) -> None:
        def script() -> Script[None]:
            yield from _add(token, kept_max)

        await self._database.write(script)

    async def exchange(self, link_hash: str, session: ConsoleToken, kept_max: int) -> ConsoleToken | None:
        def script() -> Script[ConsoleToken | None]:
            found = yield Fetch(TAKE, [link_hash, TokenKind.LINK.value])
            if not found or found[0][4] <= session.created_at:
                return None
            kept = replace(session, key_hash=found[0][2])
            yield from _add(kept, kept_max)
            return kept

        return await self._database.write(script)

    async def find(self, token_hash: str) -> ConsoleToken | None:
        def script() -> Script[ConsoleToken | None]:
            found = yield Fetch(FIND, [token_hash])
            if not found:
                return None
            (hash_, kind, key_hash, created_at, expires_at, person) = found[0]
            return ConsoleToken(
                token_hash=hash_, kind=TokenKind(kind), key_hash=key_hash, created_at=created_at,
                expires_at=expires_at, person=person,
            )  # fmt: skip

        return await self._database.read(script)

    async def remove(self, token_hash: str) -> None:
        def script() -> Script[None]:
            yield Run(REMOVE, [(token_hash,)])

        await self._database.write(script)


def _add(token: ConsoleToken, kept_max: int) -> Script[None]:
    row = (token.token_hash, token.kind.value, token.key_hash, token.created_at, token.expires_at, token.person)
    yield Run(EXPIRE, [(token.created_at,)])
    yield Run(ADD, [row])
    yield Run(TRIM, [(token.key_hash, token.kind.value, kept_max)])
