"""Sign-in links and sessions of the console, on Azure Tables, all in one partition.

A token has three rows with the same values: by its hash, by its API key (newest first), and by when it expires. They
are written and deleted together, in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict, replace

from lucius.azure.keys import instant, instant_descending, key, prefix_end
from lucius.azure.tables import Delete, Insert, Row, Table, TableConflict, TableNotFound, Write
from lucius.domain.time import Instant
from lucius.ledgers.tables.operators_table import CONSOLE, is_missing_table, unavailable
from lucius.ports.console_tokens import ConsoleToken, TokenKind

HASH, OF_KEY, END = "token", "key", "end"
TRIMMED_MAX = 33
"""Tokens that are deleted at once: three rows each, of the hundred that a transaction may have."""
READ_MAX = 1_000


class TablesConsoleTokens:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def add(self, token: ConsoleToken, kept_max: int) -> None:
        with unavailable():
            try:
                await self._table.write(CONSOLE, _inserts(token))
            except TableConflict:
                return  # It is kept already.
            await self._trim(token, kept_max)

    async def exchange(self, link_hash: str, session: ConsoleToken, kept_max: int) -> ConsoleToken | None:
        with unavailable():
            row = await self._table.get(CONSOLE, key(HASH, link_hash))
            link = None if row is None else _token(row)
            if row is None or link is None or link.kind is not TokenKind.LINK:
                return None
            if link.expires_at <= session.created_at:
                await self._delete([link])
                return None
            kept = replace(session, key_hash=link.key_hash)
            try:
                await self._table.write(CONSOLE, [*_inserts(kept), *_deletes(link)])
            except (TableConflict, TableNotFound) as error:
                if is_missing_table(error):
                    raise
                return None  # Somebody else has used the link.
            await self._trim(kept, kept_max)
            return kept

    async def find(self, token_hash: str) -> ConsoleToken | None:
        with unavailable():
            row = await self._table.get(CONSOLE, key(HASH, token_hash))
            return None if row is None else _token(row)

    async def remove(self, token_hash: str) -> None:
        token = await self.find(token_hash)
        if token is not None:
            with unavailable():
                await self._delete([token])

    async def _trim(self, token: ConsoleToken, kept_max: int) -> None:
        """Delete what has expired, and what is too much. What is left over after a crash, the next call deletes."""
        own = key(OF_KEY, token.key_hash, token.kind.value)
        kept = await self._table.rows(CONSOLE, own, prefix_end(own), limit=kept_max + READ_MAX)
        expired = await self._table.rows(CONSOLE, key(END, ""), _end_of(token.created_at), limit=READ_MAX)
        gone = {one.token_hash: one for one in map(_token, [*kept[kept_max:], *expired])}
        await self._delete(list(gone.values()))

    async def _delete(self, tokens: Sequence[ConsoleToken]) -> None:
        for start in range(0, len(tokens), TRIMMED_MAX):
            chunk = tokens[start : start + TRIMMED_MAX]
            try:
                await self._table.write(CONSOLE, [write for one in chunk for write in _deletes(one)])
            except TableNotFound as error:
                if is_missing_table(error):
                    raise
                # Somebody else deletes the same ones: those that are left are deleted one by one.
                if len(chunk) > 1:
                    for one in chunk:
                        await self._delete([one])


def _keys(token: ConsoleToken) -> tuple[str, str, str]:
    return (
        key(HASH, token.token_hash),
        key(OF_KEY, token.key_hash, token.kind.value, instant_descending(token.created_at), token.token_hash),
        key(END, instant(token.expires_at), token.token_hash),
    )


def _inserts(token: ConsoleToken) -> list[Write]:
    values = {**asdict(token), "kind": token.kind.value}
    return [Insert(one, values) for one in _keys(token)]


def _deletes(token: ConsoleToken) -> list[Write]:
    return [Delete(one) for one in _keys(token)]


def _end_of(now: Instant) -> str:
    """The end, exclusive, of the range of tokens that have expired at this moment."""
    return key(END, instant(now + 1))


def _token(row: Row) -> ConsoleToken:
    fields: dict[str, Any] = {name: row.values.get(name) for name in ConsoleToken.__struct_fields__}
    return ConsoleToken(**{**fields, "kind": TokenKind(fields["kind"])})
