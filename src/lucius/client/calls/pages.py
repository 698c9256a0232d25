"""Paginated lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucius.client.call import Json, Script, get
from lucius.client.errors import content_of

PAGE_SIZE_MAX = 200


def paged(path: str, query: Mapping[str, str], limit: int, cursor: str = "", name: str = "items") -> Script[Json]:
    """At most `limit` items over as many pages as needed; `next` says where the list continues."""
    found: list[Any] = []
    following: str | None = cursor or None
    while True:
        page_query = {**query, "limit": str(min(PAGE_SIZE_MAX, limit - len(found)))}
        if following:
            page_query["cursor"] = following
        page = content_of((yield get(path, page_query)))
        items = page.get(name) or []
        found += items
        following = page.get("next")
        if not following or not items or len(found) >= limit:
            return {name: found[:limit], "next": following}


def given(**parameters: str | int | None) -> dict[str, str]:
    """Query parameters, without those that have no value."""
    return {name: str(value) for name, value in parameters.items() if value is not None and value != ""}
