"""Which files a source may be: regular ones, and none of LUCIUS's own.

A process that closes any descriptor of a file gives up every lock it holds on it (POSIX), whoever took them: a second
SQLite library, or a plain read, would take the ledger's locks away under it. So a file is told by its path and by its
device and inode, without opening it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from lucius.runbooks.sources.limits import SourceError

_COMPANIONS = ("", "-wal", "-shm", "-journal")


def check_file(path: Path, own_files: Sequence[Path], variable: str) -> None:
    """Raises SourceError; its message names the variable, not the path."""
    try:
        found = path.stat()
    except (OSError, ValueError) as fault:
        reason = os.strerror(fault.errno) if isinstance(fault, OSError) and fault.errno else "that is no path"
        raise SourceError(f"the file that {variable} names cannot be read: {reason}") from None
    for own in own_files:
        for suffix in _COMPANIONS:
            if _is_same(path, found, own.with_name(own.name + suffix)):
                raise SourceError(
                    f"the file that {variable} names is LUCIUS's own database, which cannot be a source: "
                    "keep the members in a file of their own"
                )
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(f"what {variable} names is not a regular file")


def read_bytes(path: Path, own_files: Sequence[Path], variable: str, bytes_max: int) -> bytes:
    """The whole file. Raises SourceError."""
    check_file(path, own_files, variable)
    try:
        # Should it have become a pipe since the check, opening it does not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as fault:
        reason = os.strerror(fault.errno) if fault.errno else type(fault).__name__
        raise SourceError(f"the file that {variable} names cannot be read: {reason}") from None
    if len(content) > bytes_max:
        raise SourceError(f"the file that {variable} names has more than {bytes_max} bytes: cut it into several")
    return content


def _is_same(path: Path, found: os.stat_result, own: Path) -> bool:
    if path.resolve() == own.resolve():
        return True
    try:
        return os.path.samestat(found, own.stat())
    except FileNotFoundError:
        return False
