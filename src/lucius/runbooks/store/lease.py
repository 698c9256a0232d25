"""One scheduler at a time: a lease in SQL. It saves work; guarded updates ensure that nothing happens twice."""

from __future__ import annotations

from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.ports.database import Fetch, Run, Script

_CREATE = "INSERT INTO runbook_leases (name, holder, until_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING"
_TAKE = (
    "UPDATE runbook_leases SET holder = $2, until_at = $3"
    " WHERE name = $1 AND (holder = $2 OR until_at <= $4 OR until_at > $5)"
)
_HOLDER = "SELECT holder, until_at FROM runbook_leases WHERE name = $1 FOR UPDATE"
_GIVE_UP = "UPDATE runbook_leases SET until_at = 0 WHERE name = $1 AND holder = $2"
_CLEAR = "UPDATE runbook_leases SET until_at = 0 WHERE name = $1"

NAME = "scheduler"


class LeaseLost(Exception):
    """Another scheduler leads now; this one's transaction is rolled back."""


def take(holder: str, now: Instant, seconds: float) -> Script[bool]:
    """Become or stay the leader; returns whether that succeeded. A lease beyond the maximum length is ignored: its
    holder's clock was ahead."""
    until = after(now, seconds)
    yield Run(_CREATE, [(NAME, holder, until)])
    yield Run(_TAKE, [(NAME, holder, until, now, after(until, CLOCK_TOLERANCE_SECONDS))])
    return bool((yield Fetch(_HOLDER, [NAME]))[0][0] == holder)


def keep(holder: str, now: Instant, seconds: float) -> Script[None]:
    """Within a transaction of the leader: raises `LeaseLost` unless it still leads."""
    if not (yield from take(holder, now, seconds)):
        raise LeaseLost(f"another scheduler leads; {holder} stops its round")


def give_up(holder: str) -> Script[None]:
    yield Run(_GIVE_UP, [(NAME, holder)])


def clear() -> Script[None]:
    """End any lease; only for the single owner of a database."""
    yield Run(_CLEAR, [(NAME,)])
