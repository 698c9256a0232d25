"""SQLite: one file, one owner, one writer.

The writer takes every script that has gathered and commits them together: a commit costs an fsync, and whoever waits
for one shares it. Each script stands on its own savepoint, so one that fails takes nobody with it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import apsw

from lucius.private_files import make_private_file, tighten
from lucius.sql.database import (
    LIST_SECONDS_MAX,
    LISTS_MAX,
    DatabaseOwned,
    DatabaseUnavailable,
    Run,
    RunAgain,
    Script,
)
from lucius.sql.sqlite_backup import restore
from lucius.sql.sqlite_connection import Task, connect, drive_to_last_read, resolve, run_all, unavailable
from lucius.sql.sqlite_readers import Readers
from lucius.sql.sqlite_space import STEP_PAGES, Compacted, SpaceKeeper, compact, give_back, pages, shorten
from lucius.sql.threads import Threads

T = TypeVar("T")

_CLOSED = DatabaseUnavailable("the database is closed")
RUNS_MAX = 5
"""How often a script that asks for it is run again."""
GROUP_MAX = 64
"""Scripts in one commit."""
SMALL_COMMIT_ROWS = 40
"""A commit of no more than the rows of one job's turn is over sooner than the event loop could be woken for it."""
SMALL_COMMIT_SECONDS = 0.05
"""How long the event loop waits for such a commit before it goes on without it."""
STALL_SECONDS = 5.0
"""A commit that takes longer means that the disk is frozen: until it ends, no other is begun."""
SHORT_READERS = 2
"""For what engines read. One would do but for the few reads that take longer than a turn can wait."""


class _Writer:
    """Runs scripts in the event loop, but leaves what they write at their end, and the commit, to a thread.

    Rows are made in the event loop, so the thread needs the interpreter lock only between two statements: writing
    goes on beside the event loop, and what arrives meanwhile makes up the next group. See
    `docs/decisions/0044-writes-beside-the-event-loop.md`.
    """

    def __init__(self, path: Path) -> None:
        self._connection = connect(path, read_only=False)
        self._cursor = self._connection.cursor()
        self._committer = Threads("sqlite-commit")
        self._waiting: list[Task] = []
        self._chores: list[Task] = []
        self._is_busy = False
        self._is_closed = False
        self._stalled: DatabaseUnavailable | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    async def submit(self, script: Callable[[], Script[T]]) -> T:
        task = Task(script)
        if self._is_closed:
            raise _CLOSED
        if self._stalled is not None:
            raise DatabaseUnavailable(str(self._stalled))
        self._waiting.append(task)
        self._wake()
        result: T = await task.future
        return result

    async def between_commits(self, act: Callable[[apsw.Connection], T]) -> T:
        """Do something with the connection while no transaction is open, in the thread that waits for the disk."""
        chore = Task(lambda: act(self._connection))
        if self._is_closed:
            raise _CLOSED
        self._chores.append(chore)
        self._wake()
        result: T = await chore.future
        return result

    async def close(self) -> None:
        """Finish the commit under way; whoever waits for the next one is told that there is none."""
        self._is_closed = True
        waiting, self._waiting, self._chores = [*self._waiting, *self._chores], [], []
        resolve(waiting, [_CLOSED] * len(waiting))
        await asyncio.to_thread(self._committer.stop)
        self._connection.close()

    def _wake(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        if self._is_closed:
            return
        if self._chores:
            chore = self._chores.pop(0)
            self._watch_disk()
            self._committer.do(lambda: _outcome(chore), lambda outcome: self._finish([chore], [outcome]))
        else:
            self._begin()

    def _begin(self) -> None:
        group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
        changes_before = self._connection.total_changes()
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
            results = [self._run_writes(*self._run_reads(task)) for task in group[:-1]]
            result, writes = self._run_reads(group[-1])
        except apsw.Error as error:
            self._roll_back()
            self._finish(group, [unavailable(error)] * len(group))
            return

        def write_and_commit() -> DatabaseUnavailable | None:
            try:
                results.append(self._run_writes(result, writes))
                self._cursor.execute("COMMIT")
            except apsw.Error as error:
                self._roll_back()
                return unavailable(error)
            return None

        def conclude(failure: DatabaseUnavailable | None) -> None:
            self._finish(group, [failure] * len(group) if failure else results)

        self._watch_disk()
        rows = self._connection.total_changes() - changes_before + sum(len(write.rows) for write in writes)
        if rows <= SMALL_COMMIT_ROWS:
            self._committer.do_now(write_and_commit, conclude, SMALL_COMMIT_SECONDS)
        else:
            self._committer.do(write_and_commit, conclude)

    def _watch_disk(self) -> None:
        self._stall_timer = asyncio.get_running_loop().call_later(STALL_SECONDS, self._stall)

    def _stall(self) -> None:
        """The disk does not answer. What it was asked to write may yet be written; nothing else is begun."""
        self._stalled = DatabaseUnavailable(f"the disk has not answered for {STALL_SECONDS:g} s")
        waiting, self._waiting = self._waiting, []
        resolve(waiting, [self._stalled] * len(waiting))

    def _run_reads(self, task: Task) -> tuple[Any, list[Run]]:
        """Run one script on its savepoint, but for the writes after its last read: its result, or what it failed with,
        and those writes."""
        cursor = self._cursor
        cursor.execute("SAVEPOINT script")
        for _ in range(RUNS_MAX):
            try:
                return drive_to_last_read(cursor, task.script())
            except RunAgain:
                cursor.execute("ROLLBACK TO script")
            except Exception as error:
                return self._failed(error), []
        return unavailable(apsw.BusyError(f"the script asked {RUNS_MAX} times to be run again")), []

    def _run_writes(self, result: Any, writes: list[Run]) -> Any:
        """Run these writes and leave the savepoint: the script's result, or what it failed with."""
        try:
            run_all(self._cursor, writes)
        except Exception as error:
            result = self._failed(error)
        self._cursor.execute("RELEASE script")
        return result

    def _failed(self, error: Exception) -> Exception:
        """What a script is answered that failed with this error."""
        if isinstance(error, apsw.FullError | apsw.IOError | apsw.CorruptError | apsw.NotADBError):
            raise error  # The transaction itself may be gone: nobody in the group can be told it was written.
        self._cursor.execute("ROLLBACK TO script")
        return unavailable(error) if isinstance(error, apsw.Error) else error

    def _roll_back(self) -> None:
        with suppress(apsw.Error):  # Where even this fails, the next BEGIN fails too, and it is tried again.
            if self._connection.in_transaction:
                self._cursor.execute("ROLLBACK")

    def _finish(self, group: list[Task], results: list[Any]) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._stalled = self._stall_timer = None
        resolve(group, results)
        if self._waiting or self._chores:
            # Whoever was just answered may have something to add to the next group.
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self._is_busy = False


def _outcome(chore: Task) -> Any:
    try:
        return chore.script()
    except apsw.Error as error:
        return unavailable(error)


class SqliteDatabase:
    """Owns its file: a second owner is refused by name, because two writers starve each other."""

    is_shared = False

    def __init__(self, path: Path, lists_max: int = LISTS_MAX, list_seconds_max: float = LIST_SECONDS_MAX) -> None:
        self.path = path
        self._lists_max = lists_max
        self._list_seconds_max = list_seconds_max
        self.name = f"SQLite file {path}"
        self._lock_file: int | None = None
        self._writer: _Writer | None = None
        self._readers: Readers | None = None
        self._list_readers: Readers | None = None
        self._space: SpaceKeeper | None = None

    async def __aenter__(self) -> SqliteDatabase:
        try:
            make_private_file(self.path)
            self._own()
            for suffix in ("-wal", "-shm"):  # New ones get the rights of the file itself.
                tighten(Path(f"{self.path}{suffix}"))
            self._writer = _Writer(self.path)
            self._readers = Readers(self.path, "sqlite-reader", SHORT_READERS)
            self._list_readers = Readers(self.path, "sqlite-lists", self._lists_max, self._list_seconds_max)
        except (OSError, apsw.Error) as error:
            await self.__aexit__(None, None, None)
            raise self._not_opened(error) from error
        self._space = SpaceKeeper(self.name, self._writer.between_commits)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in (self._space, self._list_readers, self._readers, self._writer):
            if worker is not None:
                await worker.close()
        self._space = self._list_readers = self._readers = self._writer = None
        self._disown()

    async def write(self, script: Callable[[], Script[T]]) -> T:
        return await self._submit(self._writer, script)

    async def read(self, script: Callable[[], Script[T]]) -> T:
        return await self._submit(self._readers, script)

    async def scan(self, script: Callable[[], Script[T]]) -> T:
        return await self._submit(self._list_readers, script)

    async def give_space_back(self) -> bool:
        """Give back every page that is free; whether the file is of the kind that can."""
        writer = self._writer
        if writer is None:
            raise DatabaseUnavailable(f"{self.name} is closed")
        if not (await writer.between_commits(pages)).can_shrink:
            return False
        while await writer.between_commits(lambda connection: give_back(connection, STEP_PAGES)):
            pass
        await writer.between_commits(shorten)
        return True

    def compact(self) -> Compacted:
        """Write the file anew, as small as it can be. Not while the database is open."""
        try:
            self._own()
            return compact(self.path)
        except OSError as error:
            raise self._not_opened(error) from error
        finally:
            self._disown()

    def restore(self, backup: Path, program_version: int) -> int:
        """Put a backup in the file's place; its schema version. Not while the database is open."""
        try:
            self._own()
            return restore(backup, self.path, program_version).version
        except OSError as error:
            raise self._not_opened(error) from error
        finally:
            self._disown()

    def _not_opened(self, error: Exception) -> DatabaseUnavailable:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
        return DatabaseUnavailable(f"{self.name} cannot be opened: {reason}")

    async def _submit(self, worker: _Writer | Readers | None, script: Callable[[], Script[T]]) -> T:
        if worker is None:
            raise DatabaseUnavailable(f"{self.name} is closed")
        return await worker.submit(script)

    def _own(self) -> None:
        """Take the lock beside the file; it goes with the process, however that ends."""
        lock_path = Path(f"{self.path}.owner")
        make_private_file(lock_path)
        descriptor = os.open(lock_path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise DatabaseOwned(
                f"{self.path} is owned by {owner}. A SQLite file has one owner: stop that one, or use PostgreSQL"
                " (LUCIUS_LEDGER=postgresql://…) to run several processes."
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()}".encode())
        self._lock_file = descriptor

    def _disown(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None
