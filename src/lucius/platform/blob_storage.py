"""Blobs, for one directive: its own folder in the workspace, and the tenant's roots."""

from __future__ import annotations

from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, cast

from lucius.azure.blob_errors import (
    BlobFailed,
    BlobForbidden,
    BlobNotFound,
    BlobRefused,
    BlobTooLarge,
)
from lucius.platform.blob_files import BlobFiles
from lucius.platform.blob_path import BlobPath
from lucius.platform.blob_roots import BlobRoots
from lucius.platform.directive import Directive
from lucius.platform.errors import NonRetryable, Retryable, StepFailed
from lucius.platform.local_storage import LEVELS_BELOW_ROOT, NOT_A_WORKSPACE
from lucius.platform.refs import blob_of


def blob_folder(directive: Directive, account_url: str) -> BlobPath:
    """The folder of an attempt whose workspace is in Azure Blob."""
    folder = blob_of(directive.workspace_ref, "workspace_ref", account_url)
    if len(folder.parts) < LEVELS_BELOW_ROOT:
        raise NonRetryable("REF_INVALID", NOT_A_WORKSPACE)
    return folder


class BlobStorage:
    def __init__(self, directive: Directive, blobs: BlobFiles, roots: BlobRoots, *, has_workspace: bool) -> None:
        self._tenant_id = directive.tenant_id
        self._blobs = blobs
        self._roots = roots
        self.folder: BlobPath | None = None
        self._root: BlobPath | None = None
        if has_workspace:
            self.folder = blob_folder(directive, blobs.url)
            self._root = self.folder.above(LEVELS_BELOW_ROOT)

    def open(self, ref: object, what: str, bytes_max: int) -> BinaryIO:
        """A temporary file, which goes when it is closed."""
        path = blob_of(ref, what, self._blobs.url)
        if path.is_folder:
            raise NonRetryable("INPUT_NOT_A_FILE", f"the {what} names the folder {path.as_uri()}")
        if not (self.folder and path.is_below(self.folder.above(LEVELS_BELOW_ROOT - 1))):
            self._roots.check_readable(self._tenant_id, path, what, self._root)
        file = cast(BinaryIO, NamedTemporaryFile(prefix="lucius-"))  # noqa: SIM115 - the caller closes it
        try:
            self._blobs.fetch(path, file, bytes_max)
            file.seek(0)
        except BlobFailed as error:
            file.close()
            raise _unreadable(error, what) from error
        except BaseException:
            file.close()
            raise
        return file

    def write(self, path: BlobPath, content: bytes | Path) -> None:
        """To the attempt's own folder."""
        try:
            self._blobs.write(path, content)
        except BlobFailed as error:
            # Whatever it is, it is not the command's fault, and an operator may mend it before the last attempt.
            raise Retryable("STORAGE_UNAVAILABLE", f"the workspace cannot be written: {error}") from error

    def check_output(self, ref: object, what: str) -> None:
        self._output_path(ref, what)

    def write_output(self, ref: object, what: str, content: Path) -> None:
        path = self._output_path(ref, what)
        try:
            self._blobs.write(path, content)
        except (BlobForbidden, BlobNotFound, BlobRefused) as error:
            raise NonRetryable("OUTPUT_FORBIDDEN", f"the {what} cannot be written: {error}") from error
        except BlobFailed as error:
            raise Retryable("STORAGE_UNAVAILABLE", f"the {what} cannot be written now: {error}") from error

    def _output_path(self, ref: object, what: str) -> BlobPath:
        path = blob_of(ref, what, self._blobs.url)
        if path.is_folder:
            raise NonRetryable("OUTPUT_REF_INVALID", f"the {what} names a folder; it must name a file")
        self._roots.check_writable(self._tenant_id, path, what, self._root)
        return path


def _unreadable(error: BlobFailed, what: str) -> StepFailed:
    if isinstance(error, BlobNotFound):
        return NonRetryable("INPUT_NOT_FOUND", f"the {what} does not exist: {error}")
    if isinstance(error, BlobForbidden | BlobRefused):
        return NonRetryable("INPUT_FORBIDDEN", f"the {what} may not be read: {error}")
    if isinstance(error, BlobTooLarge):
        return NonRetryable("INPUT_TOO_LARGE", f"the {what} is too large: {error}")
    return Retryable("STORAGE_UNAVAILABLE", f"the {what} cannot be read now: {error}")
