"""The port of saved views: filters of a list that somebody keeps under a name."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from lucius.domain.time import Instant


class SavedView(Struct, frozen=True, kw_only=True):
    name: str
    query: str
    """The query of the page's address."""
    created_at: Instant


class ConsoleViews(Protocol):
    """Views belong to an owner, an API key or a person, and are seen by no other. Every method raises
    `DatabaseUnavailable` if it cannot be carried out, and then nothing was written."""

    async def all(self, owner_hash: str, page: str) -> list[SavedView]:
        """By name."""
        ...

    async def save(self, owner_hash: str, page: str, view: SavedView, kept_max: int) -> bool:
        """Keep a view, instead of one with the same name. False, and nothing is kept, if the owner would have more than
        `kept_max` on this page, whoever else saves at the same moment."""
        ...

    async def remove(self, owner_hash: str, page: str, name: str) -> None: ...
