"""Converts refs to places, the only module that does: a file on this machine, a blob, or an address to read from.

A path with `..` in it is always refused, before and after percent-decoding. Of a refused ref nothing is repeated that
may be a secret: what stands before an `@`, or after a `?`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from lucius.platform.blob_path import CONTAINER, NAME_CHARACTERS_MAX, BlobPath
from lucius.platform.errors import NonRetryable

NAME_BYTES_MAX = 255
URI_CHARACTERS_MAX = 2_048
_PLAIN_FILE = re.compile(r"file://(/[A-Za-z0-9._~/-]*)")
"""A ref without host, query, fragment and anything encoded, as most are: its path is what stands there."""
_NO_BLOB_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff\ufffe\uffff]")


def ref_uri(ref: Any, what: str) -> str:
    """A ref is a URI, or an object with one."""
    uri = ref.get("uri") if isinstance(ref, Mapping) else ref
    if not isinstance(uri, str) or not uri:
        raise NonRetryable("REF_INVALID", f"the {what} has no URI")
    return uri


def is_file_ref(ref: Any) -> bool:
    uri = ref.get("uri") if isinstance(ref, Mapping) else ref
    return isinstance(uri, str) and uri.lower().startswith("file:")


def is_blob_uri(uri: str, account_url: str) -> bool:
    """`blob://container/…`, or an address of the account itself."""
    scheme = uri.partition(":")[0].lower()
    return scheme == "blob" or (scheme in ("https", "http") and _below(account_url, uri) is not None)


def path_of(ref: Any, what: str, does: str = "reads") -> Path:
    """The local path of a `file://` ref; `does` says in an error what the service would do with it."""
    plain = _PLAIN_FILE.fullmatch(ref) if isinstance(ref, str) and len(ref) <= URI_CHARACTERS_MAX else None
    if plain is not None:
        return absolute(plain[1], what)
    parts = split(ref, what)
    if parts.scheme != "file":
        raise scheme_unsupported(parts, what, does, "file://")
    if parts.netloc not in ("", "localhost"):
        raise NonRetryable("REF_INVALID", f"the {what} names the host {parts.netloc!r}; only local files are supported")
    _check_bare(parts, what, "file")
    return absolute(_decoded(parts.path, what), what)


def blob_of(ref: Any, what: str, account_url: str) -> BlobPath:
    """The blob of a ref that `is_blob_uri`; its name is empty if the ref names a whole container."""
    parts = split(ref, what)
    _check_bare(parts, what, "blob")
    if parts.scheme == "blob":
        container, path = parts.netloc, parts.path.removeprefix("/")
    else:
        below = _below(account_url, parts.geturl())
        container, _, path = (below or "").partition("/")
    if not CONTAINER.fullmatch(container):
        raise NonRetryable("REF_INVALID", f"the {what} does not name a container; a blob is blob://container/path")
    return BlobPath(container, _blob_name(_decoded(path, what), what))


def split(ref: Any, what: str) -> SplitResult:
    uri = ref_uri(ref, what)
    if len(uri) > URI_CHARACTERS_MAX:
        raise NonRetryable("REF_INVALID", f"the {what} has {len(uri)} characters; at most {URI_CHARACTERS_MAX}")
    try:
        parts = urlsplit(uri)
        parts.port  # noqa: B018 - raises if it is none
    except ValueError as error:
        raise NonRetryable("REF_INVALID", f"the {what} is not a URI: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise NonRetryable("REF_INVALID", f"the {what} has credentials in it; secrets do not belong in a ref")
    return parts._replace(scheme=parts.scheme.lower())


def scheme_unsupported(parts: SplitResult, what: str, does: str, supported: str) -> NonRetryable:
    scheme = f"the scheme {parts.scheme!r}" if parts.scheme else "no scheme"
    shown = f"{parts._replace(query='', fragment='').geturl()} " if parts.scheme else ""
    return NonRetryable("REF_SCHEME_UNSUPPORTED", f"the {what} {shown}has {scheme}; this service {does} {supported}")


def _check_bare(parts: SplitResult, what: str, thing: str) -> None:
    if parts.query or parts.fragment:
        raise NonRetryable("REF_INVALID", f"the {what} has a query or a fragment, which a {thing} cannot have")


def _decoded(path: str, what: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError as error:
        raise NonRetryable("REF_INVALID", f"the {what} is not percent-encoded UTF-8") from error


def _below(account_url: str, uri: str) -> str | None:
    """What follows the account's own address; hosts are compared as the network compares them."""
    if not account_url:
        return None
    try:
        own, asked = urlsplit(account_url), urlsplit(uri)
        same = (_port(own), own.scheme, _host(own)) == (_port(asked), asked.scheme.lower(), _host(asked))
    except ValueError:
        return None
    folder = f"{own.path.rstrip('/')}/"
    return asked.path.removeprefix(folder) if same and asked.path.startswith(folder) else None


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme.lower() == "https" else 80)


def _host(parts: SplitResult) -> str:
    return (parts.hostname or "").rstrip(".")


def _blob_name(name: str, what: str) -> str:
    """Azure, or what lies before it, may equate a name with another if it has dots or empty parts."""
    if _NO_BLOB_NAME.search(name) or len(name) > NAME_CHARACTERS_MAX:
        text = f"a blob's name has at most {NAME_CHARACTERS_MAX} characters, none of them \\ or a control character"
        raise NonRetryable("REF_INVALID", f"the {what} cannot be used: {text}")
    parts = name.removesuffix("/").split("/") if name else []
    if ".." in parts:
        raise NonRetryable("PATH_FORBIDDEN", f"the {what} contains '..'")
    if any(not part or part.endswith(".") for part in parts):
        raise NonRetryable("REF_INVALID", f"the {what} has a part in its path that is empty or ends with a dot")
    return name


def absolute(text: str, what: str) -> Path:
    if "\0" in text or not text.startswith("/"):
        raise NonRetryable("REF_INVALID", f"the {what} is not an absolute path")
    if ".." in text.split("/"):
        raise NonRetryable("PATH_FORBIDDEN", f"the {what} contains '..'")
    try:
        longest = max(map(len, text.encode("utf-8").split(b"/")))
    except UnicodeEncodeError as error:
        raise NonRetryable("REF_INVALID", f"the {what} is not valid Unicode") from error
    if longest > NAME_BYTES_MAX:
        raise NonRetryable("REF_INVALID", f"the {what} has a name of {longest} bytes; at most {NAME_BYTES_MAX} fit")
    return Path(text)
