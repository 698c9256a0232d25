"""Attempts in the service's own SQLite file.

One thread owns the connection and commits everything that has accumulated at once, so that many attempts share one
sync. The file is never shared: one process holds its folder.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from lucius.platform.directive import AttemptKey, Directive
from lucius.platform.errors import ServiceUnusable
from lucius.platform.idempotency_store import INTERRUPTED, Owed, Seen, StoreFailed, interrupted
from lucius.platform.state_folder import StateFolder

FILE = "attempts.db"
GROUP_MAX = 500
KEEP_SECONDS = 7 * 86_400.0
OPEN_SECONDS_MAX = 10.0
FORGET_EVERY_SECONDS = 3_600.0
SETTLE_SECONDS_MAX = 0.1
"""How long the record that an attempt is settled waits for others to be written with."""

log = logging.getLogger("lucius.platform")

SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (
  job_id TEXT NOT NULL, step_id TEXT NOT NULL, attempt_no INTEGER NOT NULL, lease_id TEXT NOT NULL,
  tenant_id TEXT NOT NULL, status TEXT NOT NULL, token TEXT, result TEXT, at REAL NOT NULL,
  PRIMARY KEY (job_id, step_id, attempt_no, lease_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_settled ON attempts (at) WHERE status = 'SETTLED';
CREATE INDEX IF NOT EXISTS attempts_owed ON attempts (status) WHERE status <> 'SETTLED';
"""


_IS_KEY = "(job_id, step_id, attempt_no, lease_id) = (job, step, number, lease)"
# Each statement is for all attempts of a group, `{rows}`: the interpreter lock changes hands at every statement, and
# while the event loop computes, getting it back takes longer than the statement.
KNOWN = f"""WITH given(job, step, number, lease) AS (VALUES {{rows}})
            SELECT job_id, step_id, attempt_no, lease_id, status FROM given JOIN attempts ON {_IS_KEY}"""  # noqa: S608 - constants
# Until the work is finished, `result` is what is sent if the process does not survive it.
BEGIN = """INSERT INTO attempts (job_id, step_id, attempt_no, lease_id, tenant_id, token, result, at, status)
           SELECT *, 'IN_WORK' FROM (VALUES {rows})"""
FINISH = f"""WITH given(job, step, number, lease, made, moment) AS (VALUES {{rows}})
             UPDATE attempts SET status = 'FINISHED', result = made, at = moment FROM given WHERE {_IS_KEY}"""  # noqa: S608
SETTLE = f"""WITH given(job, step, number, lease, moment) AS (VALUES {{rows}})
             UPDATE attempts SET status = 'SETTLED', result = NULL, token = NULL, at = moment
             FROM given WHERE {_IS_KEY}"""  # noqa: S608
DROP = "DELETE FROM attempts WHERE (job_id, step_id, attempt_no, lease_id) = (?, ?, ?, ?)"
OWED = """SELECT job_id, step_id, attempt_no, lease_id, tenant_id, token, result FROM attempts
          WHERE status <> 'SETTLED' ORDER BY at"""
INTERRUPT = "UPDATE attempts SET status = 'FINISHED', result = COALESCE(result, ?) WHERE status = 'IN_WORK'"
FORGET = "DELETE FROM attempts WHERE status = 'SETTLED' AND at < ?"

Row = tuple[Any, ...]
"""The key of an attempt, and what is recorded with it; for `RUN`, what is called with the connection."""


class Act(StrEnum):
    RUN = "RUN"
    BEGIN = "BEGIN"
    FINISH = "FINISH"
    SETTLE = "SETTLE"
    DROP = "DROP"


Waiting = tuple[Act, Row, "asyncio.Future[Any] | None"]
"""What is to be recorded, and who waits for it."""


class SqliteStore:
    def __init__(self, folder: Path) -> None:
        self._folder = StateFolder(folder)
        self._waiting: deque[Waiting] = deque()
        self._wakes: SimpleQueue[None] = SimpleQueue()
        """What wakes the thread. It is cheaper than an event, which is Python code under a lock."""
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._wakes_soon = False
        self._wakes_later: asyncio.TimerHandle | None = None
        self._forgotten_at = 0.0

    async def open(self) -> list[Owed]:
        self._folder.claim()
        # A daemon thread: an exiting process does not wait for a disk that hangs.
        self._thread = threading.Thread(target=self._write, args=(asyncio.get_running_loop(),), daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(OPEN_SECONDS_MAX):
                return await self._do(Act.RUN, (_prepare,))  # type: ignore[no-any-return]
        except (StoreFailed, TimeoutError) as error:
            await self.close()
            reason = str(error) or f"not opened within {OPEN_SECONDS_MAX:g} s"
            raise ServiceUnusable(
                f"{self._folder.path / FILE} cannot be used: {reason}; "
                "repair it, or move it away to start with an empty store"
            ) from error

    async def begin(self, directive: Directive) -> Seen:
        row = (*directive.key, directive.tenant_id, directive.callback_token, interrupted(directive), time.time())
        return await self._do(Act.BEGIN, row)  # type: ignore[no-any-return]

    async def finish(self, directive: Directive, result: dict[str, Any]) -> None:
        await self._do(Act.FINISH, (*directive.key, json.dumps(result), time.time()))

    async def settle(self, key: AttemptKey) -> None:
        """Returns at once: this record is written together with the next one, or soon if there is none."""
        if self._thread is None:
            raise StoreFailed("the store is closed")
        self._waiting.append((Act.SETTLE, (*key, time.time()), None))
        if not self._wakes_soon and self._wakes_later is None:
            self._wakes_later = asyncio.get_running_loop().call_later(SETTLE_SECONDS_MAX, self._wake)

    async def drop(self, key: AttemptKey) -> None:
        await self._do(Act.DROP, tuple(key))

    async def close(self) -> None:
        if self._thread is not None:
            thread, self._thread = self._thread, None  # Later calls are refused instead of lost.
            self._is_closing = True
            self._wake()
            await asyncio.to_thread(thread.join, OPEN_SECONDS_MAX)
        self._folder.release()

    def _do(self, act: Act, row: Row) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        if self._thread is None:
            done.set_exception(StoreFailed("the store is closed"))
            return done
        self._waiting.append((act, row, done))
        if not self._wakes_soon:
            # Not at once: what else is recorded in this round of the event loop shares the commit.
            self._wakes_soon = True
            loop.call_soon(self._wake)
        return done

    def _wake(self) -> None:
        self._wakes_soon = False
        if self._wakes_later is not None:
            self._wakes_later.cancel()
            self._wakes_later = None
        self._wakes.put(None)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread: writes everything that has accumulated in one transaction."""
        connection: sqlite3.Connection | None = None
        while not self._is_closing or self._waiting:
            self._wakes.get()
            while group := [self._waiting.popleft() for _ in range(min(GROUP_MAX, len(self._waiting)))]:
                outcomes: list[Any]
                try:
                    connection = connection or _connect(self._folder.path / FILE)
                    outcomes = self._commit(connection, group)
                except Exception as error:  # The thread must survive: there is no other.
                    outcomes = [StoreFailed(f"{type(error).__name__}: {error}")] * len(group)
                _deliver(loop, group, outcomes)
        if connection is not None:
            connection.close()

    def _commit(self, connection: sqlite3.Connection, group: list[Waiting]) -> list[Any]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            outcomes = _record(connection, group)
            if time.monotonic() - self._forgotten_at > FORGET_EVERY_SECONDS:
                connection.execute(FORGET, (time.time() - KEEP_SECONDS,))
                self._forgotten_at = time.monotonic()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return outcomes


def _record(connection: sqlite3.Connection, group: list[Waiting]) -> list[Any]:
    """An outcome for each. Attempts begin last: what else is in the group about the same attempt came before."""
    rows: dict[Act, list[Row]] = {act: [] for act in Act}
    for act, row, _ in group:
        rows[act].append(row)
    for act, statement in ((Act.FINISH, FINISH), (Act.SETTLE, SETTLE)):
        if rows[act]:
            _execute(connection, statement, rows[act])
    connection.executemany(DROP, rows[Act.DROP])
    seen = iter(_begin(connection, rows[Act.BEGIN]))
    outcomes: list[Any] = []
    for act, row, _ in group:
        outcomes.append(next(seen) if act is Act.BEGIN else row[0](connection) if act is Act.RUN else None)
    return outcomes


def _begin(connection: sqlite3.Connection, rows: list[Row]) -> list[Seen]:
    if not rows:
        return []
    keys = [row[:4] for row in rows]
    known = {row[:4]: Seen(row[4]) for row in _execute(connection, KNOWN, keys)}
    claimed: dict[Row, Row] = {}
    seen: list[Seen] = []
    for key, row in zip(keys, rows, strict=True):
        seen.append(known.get(key) or (Seen.IN_WORK if key in claimed else Seen.NEW))
        if seen[-1] is Seen.NEW:
            claimed[key] = row
    if claimed:
        _execute(connection, BEGIN, list(claimed.values()))
    return seen


def _execute(connection: sqlite3.Connection, statement: str, rows: Sequence[Row]) -> Iterable[Row]:
    """The statement for all these rows; its text, and so its plan, is the same for as many rows."""
    row = f"({', '.join('?' * len(rows[0]))})"
    return connection.execute(statement.format(rows=", ".join([row] * len(rows))), [*chain.from_iterable(rows)])


def _connect(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    path.chmod(0o600)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=True)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA secure_delete = ON")  # Overwrites tokens that are no longer needed.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> list[Owed]:
    connection.execute(INTERRUPT, (json.dumps(INTERRUPTED),))
    return [
        Owed(AttemptKey(*row[:4]), tenant_id=row[4], token=row[5] or "", result=json.loads(row[6]))
        for row in connection.execute(OWED)
    ]


def _deliver(loop: asyncio.AbstractEventLoop, group: list[Waiting], outcomes: list[Any]) -> None:
    def deliver() -> None:
        for (act, row, done), outcome in zip(group, outcomes, strict=True):
            if done is None and isinstance(outcome, StoreFailed):
                log.warning("%s/%s: %s could not be recorded: %s", row[0], row[1], act, outcome)
            if done is None or done.done():
                continue
            if isinstance(outcome, StoreFailed):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

    if not loop.is_closed():
        loop.call_soon_threadsafe(deliver)
