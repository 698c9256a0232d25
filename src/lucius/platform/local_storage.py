"""Files on this machine, for one directive: its own folder in the workspace, and the tenant's roots."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from lucius.platform.directive import Directive
from lucius.platform.errors import NonRetryable
from lucius.platform.file_roots import FileRoots, Place
from lucius.platform.refs import absolute, path_of, ref_uri
from lucius.platform.safe_files import open_file, write_file

LEVELS_BELOW_ROOT = 4
"""Tenant, job, step type, attempt."""
NOT_A_WORKSPACE = "the workspace_ref is not <root>/<tenant>/<job>/<step type>/<attempt>/"


class LocalStorage:
    def __init__(self, directive: Directive, files: FileRoots, *, has_workspace: bool) -> None:
        self._tenant_id = directive.tenant_id
        self._files = files
        self.folder: Path | None = None
        self._root: Path | None = None
        if has_workspace:
            ref = directive.workspace_ref
            folder = path_of(ref, "workspace_ref") if "://" in ref else absolute(ref, "workspace_ref")
            if len(folder.parents) < LEVELS_BELOW_ROOT:
                raise NonRetryable("REF_INVALID", NOT_A_WORKSPACE)
            self.folder, self._root = folder, folder.parents[LEVELS_BELOW_ROOT - 1]

    def open(self, ref: object, what: str, bytes_max: int) -> BinaryIO:
        path = path_of(ref, what)
        if self.folder is not None and path.is_relative_to(self.folder.parents[LEVELS_BELOW_ROOT - 2]):
            place = self._own_place(path)
        else:
            place = self._files.place_to_read(self._tenant_id, path, what, self._root)
        return open_file(place, what, bytes_max, ref_uri(ref, what))

    def write(self, path: Path, content: bytes | Path) -> None:
        """To the attempt's own folder."""
        write_file(self._own_place(path), "path in the workspace", content)

    def check_output(self, ref: object, what: str) -> None:
        self._output_place(ref, what)

    def write_output(self, ref: object, what: str, content: Path) -> None:
        place = self._output_place(ref, what)
        try:
            write_file(place, what, content)
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            reason = error.strerror or "refused"
            raise NonRetryable("OUTPUT_FORBIDDEN", f"the {what} cannot be written: {reason}") from error

    def _output_place(self, ref: object, what: str) -> Place:
        place = self._files.place_to_write(self._tenant_id, path_of(ref, what, "writes"), what, self._root)
        if ref_uri(ref, what).endswith("/") or not place.names:
            raise NonRetryable("OUTPUT_REF_INVALID", f"the {what} names a folder; it must name a file")
        return place

    def _own_place(self, path: Path) -> Place:
        assert self._root is not None
        return Place(self._root, path.relative_to(self._root).parts, self._files.is_private(self._root))
