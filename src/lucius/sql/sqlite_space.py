"""Space in a SQLite file: pages that nothing uses any more are given back to the disk.

A file with `auto_vacuum = INCREMENTAL` gives them back a few at a time, between two commits. One that was made before
LUCIUS set that keeps its size until it is compacted once, which takes a copy of it and nobody else who has it open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import apsw

from lucius.sql.database import DatabaseUnavailable
from lucius.sql.sqlite_backup import sync
from lucius.sql.sqlite_connection import connect, unavailable

INCREMENTAL = 2
CHECK_SECONDS = 10.0
FREE_PAGES_KEPT = 512
"""2 MiB, for what is written next."""
FREE_SHARE_MIN = 0.1
"""From here on pages are given back, until few are left: not for what the next minutes fill again."""
STEP_PAGES = 64
PAUSE_SECONDS = 0.05
"""A step keeps writers waiting for some milliseconds; this leaves them nine tenths of the time."""
COPY_ROOM = 1.1
"""Free space that compacting needs, in sizes of what the file holds."""

log = logging.getLogger("lucius.sql")


class Pages(NamedTuple):
    total: int
    free: int
    size: int
    can_shrink: bool


def pages(connection: apsw.Connection) -> Pages:
    total, free, size, mode = (
        int(connection.pragma(name)) for name in ("page_count", "freelist_count", "page_size", "auto_vacuum")
    )
    return Pages(total, free, size, mode == INCREMENTAL)


def give_back(connection: apsw.Connection, count: int) -> int:
    """Give back up to so many pages, in one transaction; how many are left to give back."""
    spare = pages(connection).free - FREE_PAGES_KEPT
    if spare > 0:
        for _ in connection.execute(f"PRAGMA incremental_vacuum({min(spare, count)})"):
            pass  # Each row is a page.
    return max(0, spare - count)


def shorten(connection: apsw.Connection) -> None:
    """Bring the log's pages into the file, which only then gets shorter."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


BetweenCommits = Callable[[Callable[[apsw.Connection], int | None]], Awaitable[int | None]]


class SpaceKeeper:
    """Looks now and then how much of the file is free, and gives it back in steps."""

    def __init__(self, name: str, between_commits: BetweenCommits) -> None:
        self._name = name
        self._between_commits = between_commits
        self._task = asyncio.create_task(self._run(), name="sqlite-space")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                left = await self._between_commits(_worth_giving_back)
                while left:
                    left = await self._between_commits(lambda connection: give_back(connection, STEP_PAGES))
                    await asyncio.sleep(PAUSE_SECONDS)
                    if not left:
                        await self._between_commits(shorten)
            except DatabaseUnavailable as error:
                log.warning("%s: no space was given back, it is tried again: %s", self._name, error)


def _worth_giving_back(connection: apsw.Connection) -> int:
    found = pages(connection)
    is_much = found.free > max(2 * FREE_PAGES_KEPT, found.total * FREE_SHARE_MIN)
    return found.free if is_much and found.can_shrink else 0


class Compacted(NamedTuple):
    bytes_before: int
    bytes_after: int


def compact(path: Path) -> Compacted:
    """Write the file anew without its free pages, in the form that shrinks by itself. Whoever calls owns the file.

    The copy takes the file's place in one step, when it is whole and on the disk: a crash before that leaves the file
    as it was, and a copy that the next try removes.
    """
    if not path.exists():
        raise DatabaseUnavailable(f"there is no file {path}")
    copy = path.with_name(f"{path.name}.compact")
    copy.unlink(missing_ok=True)
    try:
        bytes_before = _write_copy(path, copy)
    except apsw.Error as error:
        copy.unlink(missing_ok=True)
        raise unavailable(error) from error
    log_file = path.with_name(f"{path.name}-wal")
    if log_file.exists():
        copy.unlink()
        raise DatabaseUnavailable(f"another program has {path} open: close it, then compact again")
    sync(copy)
    os.replace(copy, path)
    sync(path.parent)
    return Compacted(bytes_before, path.stat().st_size)


def _write_copy(path: Path, copy: Path) -> int:
    connection = connect(path, read_only=False)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        found = pages(connection)
        needed = int((found.total - found.free) * found.size * COPY_ROOM)
        room = shutil.disk_usage(path.parent).free
        if room < needed:
            raise DatabaseUnavailable(
                f"compacting {path} needs {needed >> 20} MiB of free space in its folder, and there are {room >> 20}"
            )
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, path.stat().st_mode & 0o777))
        connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        connection.execute("VACUUM INTO ?", (str(copy),))
    finally:
        connection.close()
    return found.total * found.size
