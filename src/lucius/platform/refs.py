"""Converts refs to paths, the only place that does.

Only `file://` is supported. A path with `..` in it is always refused, before and after percent-decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lucius.platform.errors import NonRetryable

NAME_BYTES_MAX = 255


def ref_uri(ref: Any, what: str) -> str:
    """A ref is a URI, or an object with one."""
    uri = ref.get("uri") if isinstance(ref, Mapping) else ref
    if not isinstance(uri, str) or not uri:
        raise NonRetryable("REF_INVALID", f"the {what} has no URI")
    return uri


def is_file_ref(ref: Any) -> bool:
    uri = ref.get("uri") if isinstance(ref, Mapping) else ref
    return isinstance(uri, str) and uri.lower().startswith("file:")


def path_of(ref: Any, what: str, does: str = "reads") -> Path:
    """The local path of a `file://` ref; `does` says in an error what the service would do with it."""
    uri = ref_uri(ref, what)
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise NonRetryable("REF_INVALID", f"the {what} is not a URI: {error}") from error
    if parts.scheme.lower() != "file":
        scheme = f"the scheme {parts.scheme!r}" if parts.scheme else "no scheme"
        text = f"the {what} {uri} has {scheme}; this service {does} file:// only"
        raise NonRetryable("REF_SCHEME_UNSUPPORTED", text)
    if parts.netloc not in ("", "localhost"):
        raise NonRetryable("REF_INVALID", f"the {what} names the host {parts.netloc!r}; only local files are supported")
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
        raise NonRetryable("PATH_FORBIDDEN", f"the {what} contains '..'")
    try:
        longest = max(len(name.encode("utf-8")) for name in text.split("/"))
    except UnicodeEncodeError as error:
        raise NonRetryable("REF_INVALID", f"the {what} is not valid Unicode") from error
    if longest > NAME_BYTES_MAX:
        raise NonRetryable("REF_INVALID", f"the {what} has a name of {longest} bytes; at most {NAME_BYTES_MAX} fit")
    return Path(text)
