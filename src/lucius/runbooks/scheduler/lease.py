"""One scheduler at a time: a lease in SQL. It saves work; that nothing happens twice is the guarded updates' doing."""

from __future__ import annotations

from lucius.domain.time import Instant, after
from lucius.sql.database import Fetch, Run, Script

_CREATE = "INSERT INTO runbook_leases (name, holder, until_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING"
_TAKE = "UPDATE runbook_leases SET holder = $2, until_at = $3 WHERE name = $1 AND (holder = $2 OR until_at <= $4)"
_HOLDER = "SELECT holder, until_at FROM runbook_leases WHERE name = $1 FOR UPDATE"
_GIVE_UP = "UPDATE runbook_leases SET until_at = 0 WHERE name = $1 AND holder = $2"
_CLEAR = "UPDATE runbook_leases SET until_at = 0 WHERE name = $1"

NAME = "scheduler"


class LeaseLost(Exception):
    """Another scheduler leads now; what this one was about to write is not written."""


def take(holder: str, now: Instant, seconds: float) -> Script[bool]:
    """Become or stay the leader; whether that is so."""
    until = after(now, seconds)
    yield Run(_CREATE, [(NAME, holder, until)])
    yield Run(_TAKE, [(NAME, holder, until, now)])
    return bool((yield Fetch(_HOLDER, [NAME]))[0][0] == holder)


def keep(holder: str, now: Instant, seconds: float) -> Script[None]:
    """Within a transaction of the leader's: it goes through only while it leads."""
    if not (yield from take(holder, now, seconds)):
        raise LeaseLost(f"another scheduler leads; {holder} stops its round")


def give_up(holder: str) -> Script[None]:
    yield Run(_GIVE_UP, [(NAME, holder)])


def clear() -> Script[None]:
    """Whoever led leads no more; only for the one owner of a database."""
    yield Run(_CLEAR, [(NAME,)])
