"""Refs: the locations of a command's input and output. A ref is data; the orchestrator never opens it.

`REF_INVALID` is a malformed ref, `REF_FORBIDDEN` a ref that is not allowed here. A fault never repeats the URI, which
may contain a secret.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_plus

from msgspec import Struct

from lucius.domain.errors import Fault

URI_CHARS_MAX = 2048
DEFAULT_SCHEMES = ("https", "blob", "s3", "gs")
FOLDER_SCHEMES = frozenset({"file", "blob"})
"""Schemes whose refs may be held to folders."""
BLOB = "blob://"
BUCKET_SCHEMES = frozenset({"blob", "s3", "gs"})
"""Schemes whose authority is a bucket or container, and not a host: the account of a blob is in the settings."""

CREDENTIAL_PARAMETERS = frozenset(
    {
        # Azure: shared access signatures.
        *("sig", "se", "ske", "skoid", "sas", "sastoken", "sas_token", "sharedaccesssignature"),
        # AWS and CloudFront.
        *("x-amz-signature", "x-amz-credential", "x-amz-security-token", "awsaccesskeyid", "key-pair-id"),
        # Google Cloud.
        *("x-goog-signature", "x-goog-credential", "googleaccessid"),
        # Others.
        *("signature", "token", "access_token", "accesstoken", "id_token", "refresh_token", "auth_token", "jwt"),
        *("authorization", "api_key", "apikey", "api-key", "access_key", "accesskey", "secret", "client_secret"),
        *("password", "passwd", "pwd"),
    }
)

_UNUSABLE = re.compile(r"""[\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\\<>"]""")
# Most refs are this simple, and one match accepts them.
_PLAIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9][a-z0-9.-]*)((?:/[A-Za-z0-9_./~=,+-]*)?)")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.~-]+)(?::([0-9]{1,5}))?")
_DOT_SEGMENT = re.compile(r"(?:/|%2f|%5c)(?:\.|%2e){1,2}(?:/|%2f|%5c|$)", re.IGNORECASE)
_PARAMETER_END = re.compile("[&;]")


class RefPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where `input_ref` and `output_ref` may point. An empty allow-list allows every host or container.

    A host may be written `*.example.org`, which matches every host below it. The authority of `blob`, `s3`
    and `gs` is the container; where only hosts are listed, it must be among those.
    """

    schemes: tuple[str, ...] = DEFAULT_SCHEMES
    hosts: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()


class FileFolders(Struct, frozen=True, kw_only=True):
    """The folders that `file` refs of one tenant must be under, as absolute paths; and those of its `blob` refs, as
    `blob://container/path`, if this server knows them. Services enforce the same."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


def ref_faults(ref: object, pointer: str, policy: RefPolicy, folders: tuple[str, ...] = ()) -> list[Fault]:
    """What is wrong with a ref: a URI, or an object with `uri` and whatever else the services understand.

    A `file` ref must be under one of `folders`, and so must a `blob` ref if there is one for blobs.
    """
    if isinstance(ref, dict):
        pointer += "/uri"
        if "uri" not in ref:
            return [Fault("REF_INVALID", pointer, "uri is required in a ref that is an object")]
        ref = ref["uri"]
    if not isinstance(ref, str):
        return [Fault("REF_INVALID", pointer, "a ref is a URI or an object with the member uri")]
    return _uri_faults(ref, pointer, policy, folders)


def _uri_faults(uri: str, pointer: str, policy: RefPolicy, folders: tuple[str, ...]) -> list[Fault]:
    plain = _PLAIN.fullmatch(uri)
    is_plain = plain and len(uri) <= URI_CHARS_MAX and "/." not in uri
    if plain and is_plain and plain[1] in policy.schemes and plain[1] not in FOLDER_SCHEMES:
        if not policy.hosts and not policy.containers:
            return []
        return _place_faults(plain[1], plain[2].rstrip("."), plain[3], pointer, policy)
    if not uri or len(uri) > URI_CHARS_MAX:
        return [Fault("REF_INVALID", pointer, f"the URI has {len(uri)} characters; 1 to {URI_CHARS_MAX} are allowed")]
    if _UNUSABLE.search(uri):
        detail = 'the URI holds a control character, white space or one of \\ < > "; percent-encode it'
        return [Fault("REF_INVALID", pointer, detail)]
    parts = _URI.fullmatch(uri)
    if parts is None:
        return [Fault("REF_INVALID", pointer, "a ref is an absolute URI: scheme://host/path")]
    scheme, authority, path, query, fragment = parts.groups()
    scheme = scheme.lower()
    faults: list[Fault] = []
    if scheme not in policy.schemes:
        allowed = ", ".join(policy.schemes)
        faults.append(
            Fault("REF_FORBIDDEN", pointer, f"the scheme {scheme[:32]} is not allowed here; allowed: {allowed}")
        )
    if "@" in authority:
        detail = "the URI holds credentials (before the @); secrets do not belong in a ref"
        faults.append(Fault("REF_FORBIDDEN", pointer, detail))
        authority = authority.rpartition("@")[2]
    for parameters in (query, fragment):
        if parameters and (name := _credential_in(parameters)):
            detail = f"the URI holds credentials (the parameter {name}); secrets do not belong in a ref"
            faults.append(Fault("REF_FORBIDDEN", pointer, detail))
    if ("." in path or "%" in path) and _DOT_SEGMENT.search(path):
        faults.append(Fault("REF_INVALID", pointer, "the path of the URI holds the segment . or .."))
    place = _place(scheme, authority)
    if place is None:
        return [*faults, Fault("REF_INVALID", pointer, _authority_detail(scheme))]
    if policy.hosts or policy.containers:
        faults += _place_faults(scheme, place, path, pointer, policy)
    if scheme == "file" and not faults:
        faults += _folder_faults(path, pointer, tuple(one for one in folders if not one.startswith(BLOB)))
    if scheme == "blob" and not faults and (blobs := tuple(one for one in folders if one.startswith(BLOB))):
        faults += _folder_faults(f"{BLOB}{authority}{path}", pointer, blobs)
    return faults


def _folder_faults(path: str, pointer: str, folders: tuple[str, ...]) -> list[Fault]:
    """Compares text only. Links are detected, and refused, when the file is opened."""
    try:
        path = unquote(path, errors="strict")
    except UnicodeDecodeError:
        return [Fault("REF_INVALID", pointer, "the path of the URI is not percent-encoded UTF-8")]
    if "\0" in path:
        return [Fault("REF_INVALID", pointer, "the path of the URI holds a null character")]
    if any(path.startswith(f"{folder}/") for folder in folders):
        return []
    allowed = ", ".join(f"{folder}/" for folder in folders) or "none"
    return [Fault("REF_FORBIDDEN", pointer, f"the file must be under a folder of the tenant: {allowed}")]


def _credential_in(parameters: str) -> str | None:
    for parameter in _PARAMETER_END.split(parameters):
        name = unquote_plus(parameter.partition("=")[0]).strip().lower()
        if name in CREDENTIAL_PARAMETERS:
            return name
    return None


def _place(scheme: str, authority: str) -> str | None:
    """The host or bucket in lower case, or None if it is not one."""
    if scheme == "file":
        return "localhost" if authority.lower() in ("", "localhost") else None
    match = _HOST.fullmatch(authority)
    if match is None or (match[2] and int(match[2]) > 65535):
        return None
    return match[1].lower().rstrip(".") or None


def _authority_detail(scheme: str) -> str:
    if scheme == "file":
        return "a file URI names no host: file:///path"
    return "the URI does not name a host" if scheme not in BUCKET_SCHEMES else "the URI does not name a bucket"


def _place_faults(scheme: str, place: str, path: str, pointer: str, policy: RefPolicy) -> list[Fault]:
    is_bucket = scheme in BUCKET_SCHEMES
    faults: list[Fault] = []
    if policy.hosts and not (is_bucket and policy.containers) and not _is_listed(place, policy.hosts):
        what = "bucket" if is_bucket else "host"
        faults.append(Fault("REF_FORBIDDEN", pointer, f"the {what} {place} is not among those allowed here"))
    if policy.containers:
        container = place if is_bucket else path[1:].partition("/")[0]
        if container not in policy.containers:
            detail = f"the container {container[:100]!r} is not among those allowed here"
            faults.append(Fault("REF_FORBIDDEN", pointer, detail))
    return faults


def _is_listed(host: str, hosts: tuple[str, ...]) -> bool:
    for entry in hosts:
        entry = entry.lower()
        if host == entry or (entry.startswith("*.") and host.endswith(entry[1:])):
            return True
    return False
