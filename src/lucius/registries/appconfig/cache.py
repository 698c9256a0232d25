"""The last good content of the store in a file, with which a process starts while the store is away."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from lucius.private_files import OTHERS, PRIVATE_FILE, PRIVATE_FOLDER
from lucius.registries.contents import Document, Kind
from lucius.registries.folders import write_file

BYTES_MAX = 256 * 1024 * 1024

log = logging.getLogger("lucius.registry")


class _CachedDocument(Struct, frozen=True):
    kind: Kind
    place: str
    content: str
    identity: str | None = None


class _CacheFile(Struct, frozen=True):
    source: str
    """The store and label that it came from."""
    read_at: str
    sha256: str
    """Of the documents."""
    documents: list[_CachedDocument]


class Cached(Struct, frozen=True):
    read_at: str
    documents: list[Document]


class RegistryCache:
    def __init__(self, path: Path, source: str, *, is_written: bool = True) -> None:
        """`is_written`: False for those who only look."""
        self.path = path
        self._source = source
        self._is_written = is_written
        self._failed = False

    def store(self, documents: Iterable[Document]) -> None:
        """Replaces the file as a whole. One that cannot be written is logged, once: the registry works without."""
        if not self._is_written:
            return
        kept = [_CachedDocument(one.kind, one.place, one.content.decode(), one.identity) for one in documents]
        read_at = datetime.now(UTC).isoformat(timespec="seconds")
        content = msgspec.json.encode(_CacheFile(self._source, read_at, _digest(kept), kept))
        try:
            self.path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            write_file(self.path, content, PRIVATE_FILE)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning(
                    "the registry's cache %s cannot be written (%s): a restart while the store is away would fail",
                    self.path, error.strerror,
                )  # fmt: skip
            self._failed = True

    def load(self) -> Cached | None:
        """None if there is none that can be trusted; the log says why."""
        try:
            content = self._read()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("the registry's cache %s cannot be read: %s", self.path, error.strerror)
            return None
        if content is None:
            log.warning(
                "the registry's cache %s is not used: it must be a file of this user alone (chmod 600)", self.path
            )
            return None
        try:
            found = msgspec.json.decode(content, type=_CacheFile)
        except (msgspec.MsgspecError, ValueError):
            found = None
        if found is None or found.sha256 != _digest(found.documents):
            log.warning("the registry's cache %s is not used: it is damaged", self.path)
            return None
        if found.source != self._source:
            log.warning("the registry's cache %s is not used: it is of %s", self.path, found.source)
            return None
        documents = [Document(one.kind, one.place, one.content.encode(), one.identity) for one in found.documents]
        return Cached(found.read_at, documents)

    def _read(self) -> bytes | None:
        """None for a file that others could have written or can read."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & OTHERS
            return file.read() if is_own and found.st_size <= BYTES_MAX else None


def _digest(documents: list[_CachedDocument]) -> str:
    return sha256(msgspec.json.encode(documents)).hexdigest()
