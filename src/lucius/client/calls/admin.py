"""Calls for operators: lanes, tenants, dead letters."""

from __future__ import annotations

from lucius.client.call import Json, Script, get
from lucius.client.calls.pages import given
from lucius.client.errors import content_of

DEAD_LETTERS_LIMIT = 50


def lanes() -> Script[Json]:
    """The backlog of the lanes, by service."""
    return content_of((yield get("/v1/admin/lanes")))


def tenants() -> Script[Json]:
    """Tenants, with their jobs in flight and limits."""
    return content_of((yield get("/v1/admin/tenants")))


def workers() -> Script[Json]:
    """The services and function workers that have asked for work."""
    return content_of((yield get("/v1/admin/workers")))


def dead_letters(*, limit: int = DEAD_LETTERS_LIMIT, cursor: str = "") -> Script[Json]:
    """Jobs that failed permanently, from `cursor` on, and messages that the bus gave up on; at most `limit` of each."""
    return content_of((yield get("/v1/admin/dead-letters", given(limit=limit, cursor=cursor))))
