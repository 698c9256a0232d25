"""API keys: one from the settings, any number from a YAML file that may change while LUCIUS runs.

Only digests are kept, and a key is looked up by its digest: how long that takes says nothing about the key. A file that
is broken when LUCIUS starts is refused; one that breaks later is named in the log, and the last good one stays.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from lucius.auth.key_file import KeysFault, read_keys
from lucius.auth.principal import EVERYTHING, Principal
from lucius.settings import SettingsError

CHECK_SECONDS = 2.0
KEY_CHARS_MAX = 512

_SENDABLE = re.compile(r"[!-~]+")

log = logging.getLogger("lucius.auth")


class ApiKeys:
    """Raises `SettingsError` if the settings or the file cannot be used when they are first read."""

    def __init__(self, key: str, file: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        if key and (len(key) > KEY_CHARS_MAX or not _SENDABLE.fullmatch(key)):
            raise SettingsError(
                f"LUCIUS_API_KEY must have at most {KEY_CHARS_MAX} printable ASCII characters and no space"
            )
        self._own = {sha256(key.encode()).digest(): EVERYTHING} if key else {}
        self._path = Path(file) if file else None
        self._monotonic = monotonic
        self._checked_at = monotonic()
        self._stamp: tuple[int, ...] | None = None
        self.generation = 0
        """Grows with every reload, so that what was kept from before can be thrown away."""
        self.problem: str | None = None
        """Why what stands in the file is not what is in force; None if it is."""
        self._principals: dict[bytes, Principal] = dict(self._own)
        if self._path is not None:
            self._stamp = _stamp(self._path)
            try:
                self._principals |= read_keys(self._path)
            except KeysFault as fault:
                raise SettingsError(f"LUCIUS_API_KEYS_FILE: {fault}") from fault

    @property
    def is_empty(self) -> bool:
        return self._path is None and not self._own

    def find(self, key: str) -> Principal | None:
        """Who holds this key, by the newest file that could be read."""
        self.refresh()
        if len(key) > KEY_CHARS_MAX:
            return None
        return self._principals.get(sha256(key.encode("utf-8", "surrogatepass")).digest())

    def refresh(self) -> None:
        """Read the file again if it has changed; looks at it at most every two seconds."""
        if self._path is None:
            return
        now = self._monotonic()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            principals = read_keys(self._path)
        except KeysFault as fault:
            self.problem = str(fault)
            log.error("API keys not reloaded, those before stay in force: %s", fault)
            return
        self._principals = self._own | principals
        self.problem = None
        self.generation += 1
        log.info("API keys reloaded: %d in the file", len(principals))


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
