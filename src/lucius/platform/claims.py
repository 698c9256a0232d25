"""The claim of an attempt: a small file or blob in its workspace folder. Whoever creates it works on the attempt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Protocol

from lucius.platform.blob_files import BlobFiles
from lucius.platform.blob_path import BlobPath
from lucius.platform.blob_storage import blob_folder
from lucius.platform.directive import Directive
from lucius.platform.idempotency_store import Seen
from lucius.platform.refs import is_blob_uri
from lucius.platform.remote_files import RemoteFiles
from lucius.platform.safe_files import sync_folder, write_atomically
from lucius.platform.workspace import Workspace

CLAIM = ".lucius-attempt"
CLAIM_BYTES_MAX = 1_024


class ClaimPlace(Protocol):
    """Raises `OSError` or `BlobFailed` if it cannot be reached. Its text is what a note keeps of it."""

    def exists(self) -> bool: ...

    def create(self, content: bytes) -> bool:
        """Whether this call created it; of concurrent calls only one does."""

    def read(self) -> tuple[Seen, str]:
        """State and owner; a missing or incomplete claim counts as another replica's work."""

    def replace(self, content: bytes) -> None:
        """Does nothing if the workspace was cleaned up meanwhile."""

    def delete(self) -> None: ...


def claim_place(directive: Directive, remote: RemoteFiles) -> ClaimPlace:
    """Raises `StepFailed` for a workspace_ref that is unusable."""
    if remote.blobs is not None and is_blob_uri(directive.workspace_ref, remote.account_url):
        return ClaimBlob(blob_folder(directive, remote.account_url).joined(CLAIM), remote.blobs)
    return ClaimFile(Workspace(directive).path(CLAIM))


class ClaimFile(NamedTuple):
    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        return self.path.exists()

    def create(self, content: bytes) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path.parent)
        return True

    def read(self) -> tuple[Seen, str]:
        try:
            return _parsed(self.path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return _parsed(None)

    def replace(self, content: bytes) -> None:
        if self.path.parent.is_dir():
            write_atomically(self.path, content)
            sync_folder(self.path.parent)

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)


class ClaimBlob(NamedTuple):
    path: BlobPath
    blobs: BlobFiles

    def __str__(self) -> str:
        return self.path.as_uri()

    def exists(self) -> bool:
        return False  # `create` finds out in one call what two would.

    def create(self, content: bytes) -> bool:
        return self.blobs.create(self.path, content)

    def read(self) -> tuple[Seen, str]:
        return _parsed(self.blobs.read(self.path, CLAIM_BYTES_MAX))

    def replace(self, content: bytes) -> None:
        self.blobs.replace(self.path, content)

    def delete(self) -> None:
        self.blobs.delete(self.path)


def _parsed(content: bytes | None) -> tuple[Seen, str]:
    try:
        seen, _, owner = (content or b"").decode("utf-8").partition(" ")
        return Seen(seen), owner
    except ValueError:
        return Seen.IN_WORK, ""
