"""Refs become paths here, and nowhere else.

Only `file://` is served. A path with `..` in it is refused wherever it comes from, before and after percent-decoding.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lucius.platform.errors import NonRetryable

SCHEME_SEPARATOR = "://"


def ref_uri(ref: Any, what: str) -> str:
    """A ref is a URI, or an object with one."""
    uri = ref.get("uri") if isinstance(ref, Mapping) else ref
    if not isinstance(uri, str) or not uri:
        raise NonRetryable("REF_INVALID", f"the {what} names no URI")
    return uri


def is_file_ref(ref: Any) -> bool:
    uri = ref.get("uri") if isinstance(ref, Mapping) else ref
    return isinstance(uri, str) and uri.lower().startswith("file:")


def path_of(ref: Any, what: str) -> Path:
    """The local path that a `file://` ref stands for."""
    uri = ref_uri(ref, what)
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise NonRetryable("REF_INVALID", f"the {what} is not a URI: {error}") from error
    if parts.scheme.lower() != "file":
        scheme = f"the scheme {parts.scheme!r}" if parts.scheme else "no scheme"
        raise NonRetryable("REF_SCHEME_UNSUPPORTED", f"the {what} has {scheme}; this service reads file:// only")
    if parts.netloc not in ("", "localhost"):
        raise NonRetryable("REF_INVALID", f"the {what} names the host {parts.netloc!r}; only local files are served")
    if parts.query or parts.fragment:
        raise NonRetryable("REF_INVALID", f"the {what} has a query or a fragment, which a file cannot have")
    try:
        return absolute(unquote(parts.path, errors="strict"), what)
    except UnicodeDecodeError as error:
        raise NonRetryable("REF_INVALID", f"the {what} is not percent-encoded UTF-8") from error


def absolute(text: str, what: str) -> Path:
    if "\0" in text or not text.startswith("/"):
        raise NonRetryable("REF_INVALID", f"the {what} is not an absolute path")
    if ".." in text.split("/"):
        raise NonRetryable("PATH_FORBIDDEN", f"the {what} climbs out of its folder with '..'")
    return Path(text)


def real_path(path: Path, what: str) -> Path:
    """Where a path leads when every link on the way is followed."""
    try:
        return path.resolve()
    except (RuntimeError, OSError) as error:  # Links in a circle are a RuntimeError up to Python 3.12.
        raise NonRetryable("REF_INVALID", f"the {what} leads nowhere: {error}") from error


def read_file(path: Path, what: str, bytes_max: int) -> bytes:
    """The file's content; what is wrong with it is said plainly."""
    try:
        size = path.stat().st_size
        if size > bytes_max:
            raise NonRetryable("INPUT_TOO_LARGE", f"the {what} has {size} bytes; at most {bytes_max} are read")
        if not path.is_file():
            raise NonRetryable("INPUT_NOT_A_FILE", f"the {what} {path.name!r} is not a regular file")
        with path.open("rb") as file:
            return file.read(bytes_max)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NonRetryable("INPUT_NOT_FOUND", f"the {what} {path.name!r} does not exist") from error
    except PermissionError as error:
        raise NonRetryable("INPUT_FORBIDDEN", f"the {what} {path.name!r} may not be read") from error


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Readers see the old file or the new one, whole; after a crash too, because the bytes are synced first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".lucius-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
