"""The folder of one service instance: nobody else may read it, and no second process may use it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lucius.platform.errors import ServiceUnusable


class StateFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def claim(self) -> None:
        """Make the folder if need be, and hold it until `release` or the end of the process, however that comes."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)  # Callback tokens lie in it.
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
                "give each replica a folder of its own with LUCIUS_PLATFORM_STATE"
            ) from error
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
