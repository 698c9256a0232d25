"""Which programs use a PostgreSQL database, and at which schema version.

A program holds a shared advisory lock for as long as it uses the database. Its key is the program's schema version.
Programs of version 10 and earlier hold none: their sessions are known by the name `lucius`. Later ones have names such
as `lucius-11`, so that a program that has just lost its lock is still seen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from lucius.sql.database import Fetch, Row, Run, Script
from lucius.sql.migration import ProgramsRunning

LOCK_CLASS = 5_824_002
LAST_WITHOUT_LOCK = 10
SHOWN_MAX = 5

HOLD_LOCK = f"SELECT pg_advisory_lock_shared({LOCK_CLASS}, $1::integer)"

# The catalogue hides some columns of other roles' sessions, but neither the name nor the process id.
_SESSIONS = f"""SELECT sessions.pid, sessions.application_name, host(sessions.client_addr), locks.objid::bigint
    FROM pg_stat_activity AS sessions LEFT JOIN pg_locks AS locks
        ON locks.pid = sessions.pid AND locks.database = sessions.datid AND locks.locktype = 'advisory'
        AND locks.classid = {LOCK_CLASS} AND locks.objsubid = 2 AND locks.granted
    WHERE sessions.datname = current_database() AND sessions.pid <> pg_backend_pid()
        AND (sessions.application_name ~ '^lucius(-[0-9]+)?$' OR locks.objid IS NOT NULL)
    ORDER BY sessions.pid"""  # noqa: S608 - a constant
_NAME = re.compile(r"lucius-(\d+)")


def session_name(version: int) -> str:
    return f"lucius-{version}"


class Session(NamedTuple):
    pid: int
    name: str
    address: str | None
    version: int
    has_lock: bool

    def __str__(self) -> str:
        place = f" from {self.address}" if self.address else ""
        return f"pid {self.pid} ({self.name}{place})"


def refuse_older_programs(oldest: int, current: int, ignored_pids: Collection[int], purpose: str) -> Script[None]:
    """Raise `ProgramsRunning` if a program older than `oldest` uses the database. `current`: its schema version.

    A program takes its lock and connects before it reads `schema_versions`. So one that has read it is found here, and
    one that has not waits for this transaction and then sees its outcome.
    """
    yield Run("LOCK TABLE schema_versions IN ACCESS EXCLUSIVE MODE")
    rows = yield Fetch(_SESSIONS)
    sessions = [_session(row, min(current, LAST_WITHOUT_LOCK)) for row in rows]
    older = [one for one in sessions if one.version < oldest and (one.has_lock or one.pid not in ignored_pids)]
    if older:
        raise ProgramsRunning(_sentence(older, oldest, purpose))


def _session(row: Row, version_without_lock: int) -> Session:
    pid, name, address, locked = row
    match = _NAME.fullmatch(name)
    version = locked if locked is not None else int(match[1]) if match else version_without_lock
    return Session(pid, name, address, version, locked is not None)


def _sentence(older: Sequence[Session], oldest: int, purpose: str) -> str:
    # A program has one session with the lock and several without: where there are locks, they name the programs.
    locked = [one for one in older if one.has_lock]
    listed = locked or older
    shown = ", ".join(str(one) for one in listed[:SHOWN_MAX])
    if len(listed) > SHOWN_MAX:
        shown += f" and {len(listed) - SHOWN_MAX} more"
    sentence = (
        f"{purpose} needs every running program to be at schema version {oldest} or later, but older ones use the"
        f" database: {shown}. Stop them, then run this again."
    )
    if not locked:
        sentence += " A session that you know is not LUCIUS can be left out with --ignore-session PID."
    return sentence
