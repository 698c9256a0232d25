"""API keys: one from the settings, any number from a YAML file that may change while LUCIUS runs.

Only digests are kept, and a key is looked up by its digest, so that the lookup time reveals nothing about the key. A
file that is invalid at startup is an error; a file that becomes invalid later is logged, and the last valid one stays
in effect.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from lucius.auth.key_file import KeysFault, read_keys
from lucius.auth.principal import FULL_ACCESS, Principal
from lucius.settings import SettingsError

CHECK_SECONDS = 2.0
KEY_CHARS_MAX = 512

_SENDABLE = re.compile(r"[!-~]+")

log = logging.getLogger("lucius.auth")


class ApiKeys:
    """Raises `SettingsError` if the settings or the file are invalid when they are first read."""

    def __init__(self, key: str, file: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        if key and (len(key) > KEY_CHARS_MAX or not _SENDABLE.fullmatch(key)):
            raise SettingsError(
                f"LUCIUS_API_KEY must have at most {KEY_CHARS_MAX} printable ASCII characters and no space"
            )
        self._configured = {sha256(key.encode()).digest(): FULL_ACCESS} if key else {}
        self._path = Path(file) if file else None
        self._monotonic = monotonic
        self._checked_at = monotonic()
        self._stamp: tuple[int, ...] | None = None
        self.generation = 0
        """Incremented with every reload, so that caches can be invalidated."""
        self.problem: str | None = None
        """Why the current file is not in effect; None if it is."""
        self._principals: dict[bytes, Principal] = dict(self._configured)
        if self._path is not None:
            self._stamp = _stamp(self._path)
            try:
                self._principals |= read_keys(self._path)
            except KeysFault as fault:
                raise SettingsError(f"LUCIUS_API_KEYS_FILE: {fault}") from fault

    @property
    def is_empty(self) -> bool:
        return self._path is None and not self._configured

    def find(self, key: str) -> Principal | None:
        """The principal of this key, by the newest valid file."""
        return (
            None
            if len(key) > KEY_CHARS_MAX
            else self.find_by_hash(sha256(key.encode("utf-8", "surrogatepass")).digest())
        )

    def find_by_hash(self, digest: bytes) -> Principal | None:
        self.refresh()
        return self._principals.get(digest)

    def refresh(self) -> None:
        """Read the file again if it has changed; checks at most every two seconds."""
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
            log.error("API keys not reloaded, the previous ones stay in force: %s", fault)
            return
        self._principals = self._configured | principals
        self.problem = None
        self.generation += 1
        log.info("API keys reloaded: %d in the file", len(principals))


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
