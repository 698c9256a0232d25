"""Workspace I/O: the folder of one attempt, and the way in and out of it.

`<root>/<tenant>/<jobId>/<step type>/<attempt>/` belongs to one attempt alone, so two attempts at the same step never
write the same file. What a service writes stays in that folder even where a symbolic link points out of it; what it
reads may lie anywhere but in the workspace of another tenant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lucius.platform.directive import Directive
from lucius.platform.errors import NonRetryable
from lucius.platform.file_rules import FileRules
from lucius.platform.refs import absolute, is_file_ref, path_of, read_file, real_path, ref_uri, write_atomically

READ_BYTES_MAX = 64 * 1024 * 1024
LEVELS_BELOW_ROOT = 4
"""Tenant, job, step type, attempt."""


class Workspace:
    def __init__(
        self, directive: Directive, check: Callable[[], None] = lambda: None, rules: FileRules | None = None
    ) -> None:
        """`check` raises if the attempt is no longer current: then nothing is written any more."""
        self._directive = directive
        self._check = check
        self._rules = rules or FileRules()
        ref = directive.workspace_ref
        self.folder = path_of(ref, "workspace_ref") if "://" in ref else absolute(ref, "workspace_ref")

    def path(self, relative: str) -> Path:
        """A path inside the folder; nothing is made."""
        if not relative or relative.startswith("/") or "\0" in relative or ".." in relative.split("/"):
            raise NonRetryable("PATH_FORBIDDEN", f"{relative!r} is not a path inside the workspace")
        folder = real_path(self.folder, "workspace_ref")
        target = real_path(folder / relative, "path")
        if target == folder or not target.is_relative_to(folder):
            raise NonRetryable("PATH_FORBIDDEN", f"{relative!r} leads out of the workspace")
        return target

    def write(self, relative: str, content: str | bytes) -> Path:
        """Write a file whole, or not at all; raises `WorkStopped` if the attempt is no longer current."""
        target = self.path(relative)
        self._check()
        write_atomically(target, content.encode("utf-8") if isinstance(content, str) else content)
        return target

    def write_json(self, relative: str, content: Any) -> Path:
        return self.write(relative, json.dumps(content, ensure_ascii=False, indent=2) + "\n")

    def read_input(self, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """What the command's `input_ref` names."""
        return self.read(self._directive.input_ref, "input_ref", bytes_max)

    def read(self, ref: Any, what: str = "ref", bytes_max: int = READ_BYTES_MAX) -> bytes:
        """The file behind a ref, such as an artifact that an earlier step left."""
        path = path_of(ref, what)
        self._keep_to_tenant(path, what)
        return read_file(path, what, bytes_max)

    def publish(self, result: Path) -> bool:
        """Copy a result to the command's `output_ref` if that is a file; says whether it did."""
        ref = self._directive.output_ref
        if not is_file_ref(ref):
            return False
        path = path_of(ref, "output_ref")
        self._keep_to_tenant(path, "output_ref")
        if ref_uri(ref, "output_ref").endswith("/") or path.is_dir():
            raise NonRetryable("OUTPUT_REF_INVALID", "the output_ref names a folder; it must name a file")
        content = result.read_bytes()
        self._check()
        try:
            write_atomically(path, content)
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            reason = error.strerror or "refused"
            raise NonRetryable("OUTPUT_FORBIDDEN", f"the output_ref cannot be written: {reason}") from error
        return True

    def _keep_to_tenant(self, path: Path, what: str) -> None:
        """A client names refs freely; none may lead into what other tenants' jobs have left behind."""
        self._rules.check(path, what)
        parents = real_path(self.folder, "workspace_ref").parents
        if len(parents) < LEVELS_BELOW_ROOT:
            return
        tenant, root = parents[LEVELS_BELOW_ROOT - 2], parents[LEVELS_BELOW_ROOT - 1]
        real = real_path(path, what)
        if len(root.parts) > 1 and real.is_relative_to(root) and not real.is_relative_to(tenant):
            raise NonRetryable("PATH_FORBIDDEN", f"the {what} lies in the workspace of another tenant")
