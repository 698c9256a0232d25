"""Workspace I/O: the folder of one attempt, and reading and writing its files.

`<root>/<tenant>/<jobId>/<step type>/<attempt>/` belongs to a single attempt, so two attempts at the same step never
write the same file. The orchestrator names it. Refs chosen by the client, `input_ref` and `output_ref`, are restricted
to the tenant's folders in the service's `FileRoots`, and for reading to files of the tenant's own jobs in the
workspace.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lucius.platform.directive import Directive
from lucius.platform.errors import NonRetryable
from lucius.platform.file_roots import FileRoots, Place
from lucius.platform.refs import absolute, path_of, ref_uri
from lucius.platform.safe_files import read_file, write_file

READ_BYTES_MAX = 64 * 1024 * 1024
LEVELS_BELOW_ROOT = 4
"""Tenant, job, step type, attempt."""


class Workspace:
    def __init__(
        self, directive: Directive, check: Callable[[], None] = lambda: None, files: FileRoots | None = None
    ) -> None:
        """`check` raises if the attempt is no longer current: then nothing more is written."""
        self._directive = directive
        self._check = check
        self._files = files or FileRoots()
        ref = directive.workspace_ref
        self.folder = path_of(ref, "workspace_ref") if "://" in ref else absolute(ref, "workspace_ref")
        if len(self.folder.parents) < LEVELS_BELOW_ROOT:
            raise NonRetryable("REF_INVALID", "the workspace_ref is not <root>/<tenant>/<job>/<step type>/<attempt>/")
        self._root = self.folder.parents[LEVELS_BELOW_ROOT - 1]
        self._tenants_folder = self.folder.parents[LEVELS_BELOW_ROOT - 2]

    def path(self, relative: str) -> Path:
        """A path inside the folder, for code that opens files itself; nothing is created."""
        path = self.folder / relative
        if relative.startswith("/") or "\0" in relative or ".." in path.parts or path == self.folder:
            raise NonRetryable("PATH_FORBIDDEN", f"{relative!r} is not a path inside the workspace")
        return path

    def write(self, relative: str, content: str | bytes) -> Path:
        """Write a file atomically; raises `WorkStopped` if the attempt is no longer current."""
        target = self.path(relative)
        self._check()
        content = content.encode("utf-8") if isinstance(content, str) else content
        write_file(self._place(target), "path in the workspace", content)
        return target

    def write_json(self, relative: str, content: Any) -> Path:
        return self.write(relative, json.dumps(content, ensure_ascii=False, indent=2) + "\n")

    def read_input(self, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """The content of the command's `input_ref`."""
        return self.read(self._directive.input_ref, "input_ref", bytes_max)

    def read(self, ref: Any, what: str = "ref", bytes_max: int = READ_BYTES_MAX) -> bytes:
        """The content of a ref, such as an artifact of an earlier step."""
        path, uri = path_of(ref, what), ref_uri(ref, what)
        if path.is_relative_to(self._tenants_folder):
            return read_file(self._place(path), what, bytes_max, uri)
        place = self._files.place_to_read(self._directive.tenant_id, path, what, self._root)
        return read_file(place, what, bytes_max, uri)

    def check_output(self) -> None:
        """Fail now, not after the work, if the result of the last step could not be published to the `output_ref`."""
        if self._directive.last_step:
            self._output_place()

    def publish(self, result: Path) -> None:
        """Copy a result to the command's `output_ref`. Raises `NonRetryable` if that is not a file that may be
        written."""
        what, place = "output_ref", self._output_place()
        content = result.read_bytes()
        self._check()
        try:
            write_file(place, what, content)
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            reason = error.strerror or "refused"
            raise NonRetryable("OUTPUT_FORBIDDEN", f"the output_ref cannot be written: {reason}") from error

    def _output_place(self) -> Place:
        ref, what = self._directive.output_ref, "output_ref"
        place = self._files.place_to_write(self._directive.tenant_id, path_of(ref, what, "writes"), what, self._root)
        if ref_uri(ref, what).endswith("/") or not place.names:
            raise NonRetryable("OUTPUT_REF_INVALID", "the output_ref names a folder; it must name a file")
        return place

    def _place(self, path: Path) -> Place:
        return Place(self._root, path.relative_to(self._root).parts, self._files.is_private(self._root))
