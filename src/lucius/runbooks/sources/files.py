"""Files allowed as sources: regular files, but no database of LUCIUS itself.

A process that closes any descriptor of a file releases all its locks on that file (POSIX): a second SQLite library, or
a plain read, would release the ledger's locks. So files are compared by path and by device and inode, without opening
them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from msgspec import Struct

from lucius.runbooks.sources.limits import SourceError

Stamp = tuple[int, ...]
"""Identifies a state of a file: device, inode, size, and when it and its inode were last changed."""

_COMPANIONS = ("", "-wal", "-shm", "-journal")


def check_file(path: Path, own_files: Sequence[Path], variable: str) -> None:
    """Raises SourceError; its message names the variable, not the path."""
    try:
        found = path.stat()
    except (OSError, ValueError) as fault:
        reason = os.strerror(fault.errno) if isinstance(fault, OSError) and fault.errno else "not a valid path"
        raise SourceError(f"the file that {variable} names cannot be read: {reason}") from None
    for own in own_files:
        for suffix in _COMPANIONS:
            if _is_same(path, found, own.with_name(own.name + suffix)):
                raise SourceError(
                    f"the file that {variable} names is LUCIUS's own database, which cannot be a source: "
                    "keep the members in a separate file"
                )
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(f"the file that {variable} names is not a regular file")


class FileStamps:
    """Since when each file is unchanged, so that an unchanged file is waited for only once."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[Stamp, float]] = {}

    def still_seconds(self, path: Path, stamp: Stamp) -> float:
        """How long the file is known to have had this stamp."""
        seen, since = self._seen.get(path, (None, 0.0))
        if seen != stamp:
            since = monotonic()
            self._seen[path] = (stamp, since)
        return monotonic() - since


class Stillness(Struct, frozen=True):
    """Requires that a file is not being written: unchanged for some time, and ending with a complete line."""

    stamps: FileStamps
    seconds: float
    pause: Callable[[float], None]
    """The function to sleep."""


def read_bytes(
    path: Path, own_files: Sequence[Path], variable: str, bytes_max: int, stillness: Stillness | None = None
) -> bytes:
    """The whole file. Raises SourceError."""
    check_file(path, own_files, variable)
    try:
        # If it has become a pipe since the check, opening it does not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            before = stamp_of(os.fstat(descriptor))
            if stillness is not None:
                stillness.pause(stillness.seconds - stillness.stamps.still_seconds(path, before))
            content = file.read(bytes_max + 1)
            has_changed = {stamp_of(os.fstat(descriptor)), stamp_of(path.stat())} != {before}
    except OSError as fault:
        reason = os.strerror(fault.errno) if fault.errno else type(fault).__name__
        raise SourceError(f"the file that {variable} names cannot be read: {reason}") from None
    if len(content) > bytes_max:
        raise SourceError(f"the file that {variable} names has more than {bytes_max} bytes: split it")
    if stillness is not None:
        _check_whole(content, has_changed, variable, stillness.seconds)
    return content


def _check_whole(content: bytes, has_changed: bool, variable: str, seconds: float) -> None:
    if has_changed:
        raise SourceError(
            f"the file that {variable} names is being written: it is read once it has not changed for {seconds:g} s"
        )
    if content and not content.endswith((b"\n", b"\r")):
        raise SourceError(
            f"the last line of the file that {variable} names has no line break at its end, so it may be cut off: "
            "write the file completely; if it is complete, end it with a line break"
        )


def stamp_of(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_same(path: Path, found: os.stat_result, own: Path) -> bool:
    if path.resolve() == own.resolve():
        return True
    try:
        return os.path.samestat(found, own.stat())
    except FileNotFoundError:
        return False
