"""Calls for operators: lanes, tenants, dead letters."""

from __future__ import annotations

from urllib.parse import quote

from lucius.client.call import Json, Script, get, post
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


def dead_letters(*, limit: int = DEAD_LETTERS_LIMIT, cursor: str = "", dismissed: bool = False) -> Script[Json]:
    """Jobs that failed permanently, from `cursor` on, and messages that the bus gave up on; at most `limit` of each.
    `dismissed`: instead, the jobs that somebody has dismissed."""
    query = given(limit=limit, cursor=cursor, dismissed="true" if dismissed else None)
    return content_of((yield get("/v1/admin/dead-letters", query)))


def preview_protocol(text: str, *, payloads: int | None = None) -> Script[Json]:
    """What a protocol would change: jobs in flight by version, and recent payloads that it would refuse."""
    body = {"yaml": text} | ({} if payloads is None else {"payloads": payloads})
    return content_of((yield post("/v1/admin/protocols:preview", body, is_repeatable=True)))


def console_link() -> Script[Json]:
    """A link that signs in to the console, once and within a minute."""
    return content_of((yield post("/v1/console-links", {})))


def dismiss(job_id: str, *, reason: str) -> Script[Json]:
    """Take a job that failed permanently off the list of dead letters."""
    path = f"/v1/admin/dead-letters/{quote(job_id, safe='')}:dismiss"
    return content_of((yield post(path, {"reason": reason}, is_repeatable=True)))


def prune(older_than_seconds: float) -> Script[Json]:
    """Archive and delete jobs that ended so long ago, for some seconds; `more` tells whether to call again."""
    body = {"older_than_seconds": older_than_seconds}
    return content_of((yield post("/v1/admin/prune", body, is_repeatable=True)))


def archived(job_id: str) -> Script[Json]:
    """A job from the archive, with its steps, attempts and events."""
    return content_of((yield get(f"/v1/archive/jobs/{quote(job_id, safe='')}")))
