"""Workspace I/O: the folder of one attempt, and reading and writing its files.

`<root>/<tenant>/<jobId>/<step type>/<attempt>/` belongs to a single attempt, so two attempts at the same step never
write the same file. The orchestrator names it. Refs chosen by the client, `input_ref` and `output_ref`, are restricted
to the tenant's folders in the service's `FileRoots` and `BlobRoots`, and for reading to files of the tenant's own jobs
in the workspace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from lucius.platform.blob_path import BlobPath
from lucius.platform.blob_storage import BlobStorage
from lucius.platform.directive import Directive
from lucius.platform.errors import NonRetryable
from lucius.platform.file_roots import FileRoots
from lucius.platform.local_storage import LocalStorage
from lucius.platform.refs import is_blob_uri, ref_uri, scheme_unsupported, split
from lucius.platform.remote_files import NO_ACCOUNT, RemoteFiles

READ_BYTES_MAX = 64 * 1024 * 1024
"""What `read` takes into memory."""
FILE_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""What `open` reads, and what may be written or published."""


class Workspace:
    def __init__(
        self,
        directive: Directive,
        check: Callable[[], None] = lambda: None,
        files: FileRoots | None = None,
        remote: RemoteFiles | None = None,
    ) -> None:
        """`check` raises if the attempt is no longer current: then nothing more is written."""
        self._directive = directive
        self._check = check
        self._remote = remote or RemoteFiles()
        in_blob = is_blob_uri(directive.workspace_ref, self._remote.account_url)
        self._local = LocalStorage(directive, files or FileRoots(), has_workspace=not in_blob)
        self._blob: BlobStorage | None = None
        if self._remote.blobs is not None:
            self._blob = BlobStorage(directive, self._remote.blobs, self._remote.blob_roots, has_workspace=in_blob)
        elif in_blob:
            raise NonRetryable("REF_SCHEME_UNSUPPORTED", f"the workspace_ref is in Azure Blob; {NO_ACCOUNT}")

    @property
    def folder(self) -> Path:
        """The folder of a workspace on this machine."""
        if self._local.folder is None:
            raise NonRetryable(
                "WORKSPACE_NOT_LOCAL", "this workspace is in Azure Blob and has no paths; use write() and open()"
            )
        return self._local.folder

    def path(self, relative: str) -> Path:
        """A path inside the folder, for code that opens files itself; nothing is created."""
        path = self.folder / _checked(relative)
        if path == self.folder:
            raise _not_inside(relative)
        return path

    def write(self, relative: str, content: str | bytes | Path) -> Path | BlobPath:
        """Write a file atomically; a path is a file whose content is copied, whatever its size. Raises `WorkStopped` if
        the attempt is no longer current."""
        content = content.encode("utf-8") if isinstance(content, str) else content
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        _check_size(size, f"{relative!r} in the workspace")
        if self._blob is not None and self._blob.folder is not None:
            names = _blob_names(relative)
            self._check()
            blob = self._blob.folder.joined(*names)
            self._blob.write(blob, content)
            return blob
        path = self.path(relative)
        self._check()
        self._local.write(path, content)
        return path

    def write_json(self, relative: str, content: Any) -> Path | BlobPath:
        return self.write(relative, json.dumps(content, ensure_ascii=False, indent=2) + "\n")

    def read_input(self, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """The content of the command's `input_ref`."""
        return self.read(self._directive.input_ref, "input_ref", bytes_max)

    def read(self, ref: Any, what: str = "ref", bytes_max: int = READ_BYTES_MAX) -> bytes:
        """The content of a ref, such as an artifact of an earlier step."""
        with self.open(ref, what, bytes_max) as file:
            return file.read(bytes_max)

    def open_input(self, bytes_max: int = FILE_BYTES_MAX) -> BinaryIO:
        """The command's `input_ref` as an open file, for input that is too large for memory."""
        return self.open(self._directive.input_ref, "input_ref", bytes_max)

    def open(self, ref: Any, what: str = "ref", bytes_max: int = FILE_BYTES_MAX) -> BinaryIO:
        """The same for any ref. What is not on this machine is streamed to a temporary file first."""
        parts = split(ref, what)
        storage = self._storage(ref_uri(ref, what), what, "reads")
        if storage is not None:
            return storage.open(ref, what, bytes_max)
        if parts.scheme == "https":
            return self._remote.https.open(ref, what, bytes_max, self._check)
        raise scheme_unsupported(parts, what, "reads", "file://, blob:// and https://")

    def check_output(self) -> None:
        """Fail now, not after the work, if the result of the last step could not be published to the `output_ref`."""
        if self._directive.last_step:
            self._output_storage().check_output(self._directive.output_ref, "output_ref")

    def publish(self, result: Path | BlobPath) -> None:
        """Copy a result to the command's `output_ref`. Raises `NonRetryable` if that is not a file that may be
        written."""
        storage = self._output_storage()
        with self._on_this_machine(result) as path:
            _check_size(path.stat().st_size, "the result")
            self._check()
            storage.write_output(self._directive.output_ref, "output_ref", path)

    def _output_storage(self) -> LocalStorage | BlobStorage:
        ref, what = self._directive.output_ref, "output_ref"
        storage = self._storage(ref_uri(ref, what), what, "writes")
        if storage is None:
            raise scheme_unsupported(split(ref, what), what, "writes", "file:// and blob://")
        return storage

    def _storage(self, uri: str, what: str, does: str) -> LocalStorage | BlobStorage | None:
        if is_blob_uri(uri, self._remote.account_url):
            if self._blob is None:
                raise NonRetryable("REF_SCHEME_UNSUPPORTED", f"the {what} is in Azure Blob; {NO_ACCOUNT}")
            return self._blob
        return self._local if uri.lower().startswith("file:") else None

    @contextmanager
    def _on_this_machine(self, result: Path | BlobPath) -> Iterator[Path]:
        if isinstance(result, Path):
            yield result
            return
        with self.open(result.as_uri(), "result") as file:
            yield Path(file.name)


def _checked(relative: str) -> str:
    if relative.startswith("/") or "\0" in relative or ".." in relative.split("/"):
        raise _not_inside(relative)
    return relative


def _blob_names(relative: str) -> list[str]:
    names = [name for name in _checked(relative).split("/") if name not in ("", ".")]
    if not names or any(name.endswith(".") for name in names) or "\\" in relative:
        raise _not_inside(relative)
    return names


def _not_inside(relative: str) -> NonRetryable:
    return NonRetryable("PATH_FORBIDDEN", f"{relative!r} is not a path inside the workspace")


def _check_size(size: int, what: str) -> None:
    if size > FILE_BYTES_MAX:
        raise NonRetryable("OUTPUT_TOO_LARGE", f"{what} has {size} bytes; at most {FILE_BYTES_MAX} are written")
