"""API keys: one from the settings, any number from a YAML file, or a secret of that form, that may change while LUCIUS
runs.

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
from typing import Protocol

from lucius.auth.key_file import KeysFault, parse_keys, read_keys
from lucius.auth.principal import FULL_ACCESS, Principal
from lucius.settings import SettingsError

CHECK_SECONDS = 2.0
KEY_CHARS_MAX = 512

_SENDABLE = re.compile(r"[!-~]+")

log = logging.getLogger("lucius.auth")


class KeySource(Protocol):
    """Where the keys of a YAML document come from."""

    def stamp(self) -> object:
        """Another one whenever the document is another one; it costs little."""
        ...

    def read(self) -> dict[bytes, Principal]:
        """Raises `KeysFault`."""
        ...


class KeyFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def stamp(self) -> object:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

    def read(self) -> dict[bytes, Principal]:
        return read_keys(self._path)


class KeySecret:
    """A document that somebody else reads and keeps up to date: a secret in Key Vault."""

    def __init__(self, name: str, current: Callable[[], str]) -> None:
        self._name = name
        self._current = current

    def stamp(self) -> object:
        return sha256(self._current().encode()).digest()

    def read(self) -> dict[bytes, Principal]:
        return parse_keys(self._name, self._current().encode())


class ApiKeys:
    """Raises `SettingsError` if the settings or the file are invalid when they are first read."""

    def __init__(self, key: str, file: str | KeySource, monotonic: Callable[[], float] = time.monotonic) -> None:
        if key and (len(key) > KEY_CHARS_MAX or not _SENDABLE.fullmatch(key)):
            raise SettingsError(
                f"LUCIUS_API_KEY must have at most {KEY_CHARS_MAX} printable ASCII characters and no space"
            )
        self._configured = {sha256(key.encode()).digest(): FULL_ACCESS} if key else {}
        self._source: KeySource | None = (KeyFile(Path(file)) if file else None) if isinstance(file, str) else file
        self._monotonic = monotonic
        self._checked_at = monotonic()
        self._stamp: object = None
        self.generation = 0
        """Incremented with every reload, so that caches can be invalidated."""
        self.problem: str | None = None
        """Why the current file is not in effect; None if it is."""
        self._principals: dict[bytes, Principal] = dict(self._configured)
        if self._source is not None:
            self._stamp = self._source.stamp()
            try:
                self._principals |= self._source.read()
            except KeysFault as fault:
                raise SettingsError(f"LUCIUS_API_KEYS_FILE: {fault}") from fault

    @property
    def is_empty(self) -> bool:
        return self._source is None and not self._configured

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
        if self._source is None:
            return
        now = self._monotonic()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        stamp = self._source.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            principals = self._source.read()
        except KeysFault as fault:
            self.problem = str(fault)
            log.error("API keys not reloaded, the previous ones stay in force: %s", fault)
            return
        self._principals = self._configured | principals
        self.problem = None
        self.generation += 1
        log.info("API keys reloaded: %d in the file", len(principals))
