"""The folder of one service instance: accessible only to its owner and used by only one process."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from lucius.platform.errors import ServiceUnusable

log = logging.getLogger("lucius.platform")

OWN_NAMES = ("lock", "attempts.db", "owed")
"""Prefixes of the names that a service uses in it."""


class StateFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def claim(self) -> None:
        """Create the folder if needed, and lock it until `release` or the end of the process."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._tighten()
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ServiceUnusable(
                f"the state folder {self.path} cannot be used: {error.strerror}; set LUCIUS_PLATFORM_STATE"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ServiceUnusable(
                f"the state folder {self.path} is in use by another process; "
                "give each replica its own folder with LUCIUS_PLATFORM_STATE"
            ) from error
        self._lock = lock

    def _tighten(self) -> None:
        """It contains callback tokens. A folder shared with others keeps its permissions; the files are private in any
        case."""
        foreign = [entry.name for entry in self.path.iterdir() if not entry.name.startswith(OWN_NAMES)]
        if not foreign:
            self.path.chmod(0o700)
        elif self.path.stat().st_mode & 0o077:
            log.warning(
                "the state folder %s is shared (it contains %s), so its permissions are left unchanged: "
                "set LUCIUS_PLATFORM_STATE to a separate folder", self.path, sorted(foreign)[0],
            )  # fmt: skip

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
