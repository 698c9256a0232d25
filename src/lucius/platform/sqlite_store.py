"""Attempts in the service's own SQLite file.

One thread owns the connection and commits everything that has accumulated at once, so that many attempts share one
sync. The file is never shared: one process holds its folder.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
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

SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (
  job_id TEXT NOT NULL, step_id TEXT NOT NULL, attempt_no INTEGER NOT NULL, lease_id TEXT NOT NULL,
  tenant_id TEXT NOT NULL, status TEXT NOT NULL, token TEXT, result TEXT, at REAL NOT NULL,
  PRIMARY KEY (job_id, step_id, attempt_no, lease_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_settled ON attempts (at) WHERE status = 'SETTLED';
CREATE INDEX IF NOT EXISTS attempts_owed ON attempts (status) WHERE status <> 'SETTLED';
"""
_OF_KEY = "WHERE job_id = ? AND step_id = ? AND attempt_no = ? AND lease_id = ?"
# Until the work is finished, `result` is what is sent if the process does not survive it.
BEGIN = "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, 'IN_WORK', ?, ?, ?) ON CONFLICT DO NOTHING"
STATUS = f"SELECT status FROM attempts {_OF_KEY}"  # noqa: S608 - a constant
FINISH = f"UPDATE attempts SET status = 'FINISHED', result = ?, at = ? {_OF_KEY}"  # noqa: S608
SETTLE = f"UPDATE attempts SET status = 'SETTLED', result = NULL, token = NULL, at = ? {_OF_KEY}"  # noqa: S608
DROP = f"DELETE FROM attempts {_OF_KEY}"  # noqa: S608
OWED = """SELECT job_id, step_id, attempt_no, lease_id, tenant_id, token, result FROM attempts
          WHERE status <> 'SETTLED' ORDER BY at"""
INTERRUPT = "UPDATE attempts SET status = 'FINISHED', result = COALESCE(result, ?) WHERE status = 'IN_WORK'"
FORGET = "DELETE FROM attempts WHERE status = 'SETTLED' AND at < ?"

Work = Callable[[sqlite3.Connection], Any]
Waiting = tuple[Work, "asyncio.Future[Any]"]


class SqliteStore:
    def __init__(self, folder: Path) -> None:
        self._folder = StateFolder(folder)
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._forgotten_at = 0.0

    async def open(self) -> list[Owed]:
        self._folder.claim()
        # A daemon thread: an exiting process does not wait for a disk that hangs.
        self._thread = threading.Thread(target=self._write, args=(asyncio.get_running_loop(),), daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(OPEN_SECONDS_MAX):
                return await self._do(_prepare)  # type: ignore[no-any-return]
        except (StoreFailed, TimeoutError) as error:
            await self.close()
            reason = str(error) or f"not opened within {OPEN_SECONDS_MAX:g} s"
            raise ServiceUnusable(
                f"{self._folder.path / FILE} cannot be used: {reason}; "
                "repair it, or move it away to start with an empty store"
            ) from error

    async def begin(self, directive: Directive) -> Seen:
        result = json.dumps(interrupted(directive))
        row = (*directive.key, directive.tenant_id, directive.callback_token, result, time.time())

        def begin(connection: sqlite3.Connection) -> Seen:
            if connection.execute(BEGIN, row).rowcount:
                return Seen.NEW
            return Seen(connection.execute(STATUS, directive.key).fetchone()[0])

        return await self._do(begin)  # type: ignore[no-any-return]

    async def finish(self, directive: Directive, result: dict[str, Any]) -> None:
        text = json.dumps(result)
        await self._do(lambda connection: connection.execute(FINISH, (text, time.time(), *directive.key)))

    async def settle(self, key: AttemptKey) -> None:
        await self._do(lambda connection: connection.execute(SETTLE, (time.time(), *key)))

    async def drop(self, key: AttemptKey) -> None:
        await self._do(lambda connection: connection.execute(DROP, key))

    async def close(self) -> None:
        if self._thread is not None:
            thread, self._thread = self._thread, None  # Later calls are refused instead of lost.
            self._queue.put(None)
            await asyncio.to_thread(thread.join, OPEN_SECONDS_MAX)
        self._folder.release()

    def _do(self, work: Work) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            done.set_exception(StoreFailed("the store is closed"))
        else:
            self._queue.put((work, done))
        return done

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread: writes everything that has accumulated in one transaction."""
        connection: sqlite3.Connection | None = None
        ended = False
        while not ended:
            group: list[Waiting] = []
            first = self._queue.get()
            while first is not None:
                group.append(first)
                if len(group) >= GROUP_MAX or self._queue.empty():
                    break
                first = self._queue.get()
            ended = first is None
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
        if not group:
            return []
        connection.execute("BEGIN IMMEDIATE")
        try:
            outcomes = [work(connection) for work, _ in group]
            if time.monotonic() - self._forgotten_at > FORGET_EVERY_SECONDS:
                connection.execute(FORGET, (time.time() - KEEP_SECONDS,))
                self._forgotten_at = time.monotonic()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return outcomes


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
        for (_, done), outcome in zip(group, outcomes, strict=True):
            if done.done():
                continue
            if isinstance(outcome, StoreFailed):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

    if not loop.is_closed():
        loop.call_soon_threadsafe(deliver)
