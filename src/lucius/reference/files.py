"""Refs become paths here, and nowhere else.

Only `file://` is served. A path with `..` in it is refused wherever it comes from, before and after percent-decoding,
and what a service writes stays under its workspace even where a symbolic link points out of it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lucius.reference.failure import StepFailed

INPUT_BYTES_MAX = 64 * 1024 * 1024
SCHEME_SEPARATOR = "://"


def ref_uri(ref: Any, what: str) -> str:
    """A ref is a URI, or an object with one."""
    uri = ref.get("uri") if isinstance(ref, Mapping) else ref
    if not isinstance(uri, str) or not uri:
        raise StepFailed("REF_INVALID", f"the {what} names no URI")
    return uri


def is_file_ref(ref: Any) -> bool:
    uri = ref.get("uri") if isinstance(ref, Mapping) else ref
    return isinstance(uri, str) and uri.lower().startswith("file:")


def path_of(ref: Any, what: str) -> Path:
    """The local path that a `file://` ref stands for."""
    uri = ref_uri(ref, what)
    parts = urlsplit(uri)
    if parts.scheme.lower() != "file":
        scheme = f"the scheme {parts.scheme!r}" if parts.scheme else "no scheme"
        raise StepFailed("REF_SCHEME_UNSUPPORTED", f"the {what} has {scheme}; these services read file:// only")
    if parts.netloc not in ("", "localhost"):
        raise StepFailed("REF_INVALID", f"the {what} names the host {parts.netloc!r}; only local files are served")
    if parts.query or parts.fragment:
        raise StepFailed("REF_INVALID", f"the {what} has a query or a fragment, which a file cannot have")
    return _safe(unquote(parts.path, errors="strict"), what)


def _safe(text: str, what: str) -> Path:
    if "\0" in text or not text.startswith("/"):
        raise StepFailed("REF_INVALID", f"the {what} is not an absolute path")
    if ".." in text.split("/"):
        raise StepFailed("PATH_FORBIDDEN", f"the {what} climbs out of its folder with '..'")
    return Path(text)


def read_bytes(ref: Any, what: str) -> bytes:
    """The file behind a ref; what is wrong with it is said plainly."""
    path = path_of(ref, what)
    try:
        size = path.stat().st_size
        if size > INPUT_BYTES_MAX:
            raise StepFailed("INPUT_TOO_LARGE", f"the {what} has {size} bytes; at most {INPUT_BYTES_MAX} are read")
        if not path.is_file():
            raise StepFailed("INPUT_NOT_A_FILE", f"the {what} {path.name!r} is not a regular file")
        with path.open("rb") as file:
            return file.read(INPUT_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StepFailed("INPUT_NOT_FOUND", f"the {what} {path.name!r} does not exist") from error
    except PermissionError as error:
        raise StepFailed("INPUT_FORBIDDEN", f"the {what} {path.name!r} may not be read") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Readers see the old file or the new one, whole; after a crash too, because the bytes are synced first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def publish(output_ref: Any, result: Path) -> bool:
    """Copy the result to the command's `output_ref` if that is a file; says whether it did.

    A directive does not say which step is the last, so every service publishes, and the last one's result stays.
    """
    if not is_file_ref(output_ref):
        return False
    if ref_uri(output_ref, "output_ref").endswith("/"):
        raise StepFailed("OUTPUT_REF_INVALID", "the output_ref names a folder; it must name a file")
    path = path_of(output_ref, "output_ref")
    if path.is_dir():
        raise StepFailed("OUTPUT_REF_INVALID", "the output_ref names a folder; it must name a file")
    try:
        write_atomically(path, result.read_bytes())
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        reason = error.strerror or "refused"
        raise StepFailed("OUTPUT_FORBIDDEN", f"the output_ref cannot be written: {reason}") from error
    return True


class Workspace:
    """The folder of one attempt. Paths inside it are relative, and stay inside it."""

    def __init__(self, workspace_ref: str) -> None:
        is_uri = SCHEME_SEPARATOR in workspace_ref
        self.root = path_of(workspace_ref, "workspace_ref") if is_uri else _safe(workspace_ref, "workspace_ref")

    def path(self, relative: str) -> Path:
        if not relative or relative.startswith("/") or "\0" in relative or ".." in relative.split("/"):
            raise StepFailed("PATH_FORBIDDEN", f"{relative!r} is not a path inside the workspace")
        root = self.root.resolve()
        target = (root / relative).resolve()
        if target == root or not target.is_relative_to(root):
            raise StepFailed("PATH_FORBIDDEN", f"{relative!r} leads out of the workspace")
        return target

    def write(self, relative: str, content: str) -> Path:
        target = self.path(relative)
        write_atomically(target, content.encode("utf-8"))
        return target
