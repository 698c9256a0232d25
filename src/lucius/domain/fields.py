"""The plain fields of an envelope, one reader each: returns the value in its stored form or raises `FieldFault`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from lucius.domain.errors import Fault
from lucius.domain.refs import URI_CHARS_MAX
from lucius.domain.routing import MODE_ALIASES, Mode
from lucius.domain.time import Instant, InstantOutOfRange, after, from_datetime

TENANT_ID_CHARS_MAX = 128
DOC_ID_CHARS_MAX = 256
IDEMPOTENCY_KEY_CHARS_MAX = 256
CORRELATION_ID_CHARS_MAX = 128

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NOT_IN_A_KEY = re.compile(r"[\x00-\x1f\x7f-\x9f/\\#?]")
_VERSION_SPOKEN = re.compile(r"1(?:\.(?:0|[1-9][0-9]{0,8}))?")
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})(?:\.[0-9]{1,9}){0,3}")
_CORRELATION_ID = re.compile(r"[\x20-\x7e]+")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_WEB_ADDRESS = re.compile(r"(?i:https?)://(?:\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]\\]+)(?::([0-9]{1,5}))?(?:[/?][^\s#\\]*)?")
_CALLBACKS = ("completed", "ack", "result")


class FieldFault(Exception):
    """Faults of one field: pairs of a pointer below the field and a sentence."""

    def __init__(self, detail: str, code: str = "ENVELOPE_INVALID") -> None:
        super().__init__(detail)
        self.code = code
        self.places = [("", detail)]

    @classmethod
    def at(cls, places: list[tuple[str, str]]) -> FieldFault:
        fault = cls(places[0][1])
        fault.places = places
        return fault

    def under(self, pointer: str) -> list[Fault]:
        return [Fault(self.code, pointer + place, detail) for place, detail in self.places]


def read_tenant_id(value: Any) -> str:
    tenant_id = _trimmed(value, "tenant_id", TENANT_ID_CHARS_MAX)
    if _NOT_IN_A_KEY.search(value):
        raise FieldFault("tenant_id must not hold control characters or any of / \\ # ?")
    if tenant_id in (".", ".."):
        raise FieldFault("tenant_id must not be . or ..: it names a folder of the workspace")
    if tenant_id == "*":
        raise FieldFault("tenant_id must not be *, which is every tenant where tenants are listed")
    return tenant_id


def read_doc_id(value: Any) -> str:
    doc_id = _trimmed(value, "doc_id", DOC_ID_CHARS_MAX)
    if _CONTROL.search(value):
        raise FieldFault("doc_id must not hold control characters")
    return doc_id


def _trimmed(value: Any, name: str, chars_max: int) -> str:
    if not isinstance(value, str):
        raise FieldFault(f"{name} must be a string")
    trimmed = value.strip()
    if not 1 <= len(trimmed) <= chars_max:
        raise FieldFault(f"{name} must have 1 to {chars_max} characters after trimming; it has {len(trimmed)}")
    return trimmed


def read_idempotency_key(value: Any) -> str:
    if not isinstance(value, str):
        raise FieldFault("idempotency_key must be a string")
    if not 1 <= len(value) <= IDEMPOTENCY_KEY_CHARS_MAX:
        raise FieldFault(f"idempotency_key must have 1 to {IDEMPOTENCY_KEY_CHARS_MAX} characters")
    if _CONTROL.search(value):
        raise FieldFault("idempotency_key must not hold control characters")
    return value


def read_correlation_id(value: Any) -> str:
    if not isinstance(value, str):
        raise FieldFault("correlation_id must be a string")
    if not (1 <= len(value) <= CORRELATION_ID_CHARS_MAX and _CORRELATION_ID.fullmatch(value)):
        raise FieldFault(f"correlation_id must have 1 to {CORRELATION_ID_CHARS_MAX} printable ASCII characters")
    return value


def is_traceparent(value: Any) -> bool:
    return isinstance(value, str) and _TRACEPARENT.fullmatch(value) is not None


def read_traceparent(value: Any) -> str:
    if not is_traceparent(value):
        raise FieldFault("traceparent must have the form of W3C Trace Context: 00-<32 hex>-<16 hex>-<2 hex>")
    return str(value)


def read_schema_version(value: Any) -> str:
    if not isinstance(value, str):
        raise FieldFault('schema_version must be a string: "1" or "1.<minor>"')
    if _VERSION_SPOKEN.fullmatch(value):
        return value
    match = _VERSION.fullmatch(value)
    if match and match[1] != "1":
        detail = f"schema_version {value} is not supported; this server speaks major version 1"
        raise FieldFault(detail, "SCHEMA_VERSION_UNSUPPORTED")
    raise FieldFault('schema_version must be "1" or "1.<minor>"')


def read_mode(value: Any) -> Mode:
    mode = MODE_ALIASES.get(value) if isinstance(value, str) else None
    if mode is None:
        raise FieldFault(f"mode must be one of {', '.join(MODE_ALIASES)}")
    return mode


def read_not_before(value: Any, now: Instant, ahead_max_seconds: float) -> Instant:
    """A time in the past is accepted: the job starts at once."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise FieldFault("not_before must be a moment with its offset, such as 2026-01-31T08:15:30Z")
    try:
        moment = from_datetime(datetime.fromisoformat(value.upper()))
    except InstantOutOfRange as error:
        raise FieldFault(f"not_before {error}") from None
    except ValueError:
        raise FieldFault("not_before is not a moment that exists") from None
    if moment > after(now, ahead_max_seconds):
        raise FieldFault(f"not_before is more than {ahead_max_seconds / 86_400:g} days ahead")
    return moment


def read_callback_urls(value: Any, own_urls: tuple[str, ...]) -> dict[str, str]:
    """`completed` may be any address, checked when it is called. `ack` and `result` must be LUCIUS's own."""
    if not isinstance(value, dict):
        raise FieldFault("callback_urls must be an object")
    places: list[tuple[str, str]] = []
    urls: dict[str, str] = {}
    for name, url in value.items():
        if name not in _CALLBACKS:
            token = name.replace("~", "~0").replace("/", "~1")
            places.append((f"/{token}", f"{name[:100]} is not a callback; there are {', '.join(_CALLBACKS)}"))
        elif url is None:
            continue
        elif not _is_web_address(url):
            detail = (
                f"{name} must be an http or https address without credentials, of at most {URI_CHARS_MAX} characters"
            )
            places.append((f"/{name}", detail))
        elif name != "completed" and not _is_own(url, own_urls):
            places.append((f"/{name}", f"{name} may only name an address of LUCIUS itself; leave it out"))
        else:
            urls[name] = url
    if places:
        raise FieldFault.at(places)
    return urls


def _is_web_address(url: Any) -> bool:
    if not isinstance(url, str) or len(url) > URI_CHARS_MAX or _CONTROL.search(url):
        return False
    match = _WEB_ADDRESS.fullmatch(url)
    return match is not None and int(match[1] or 0) <= 65_535


def _is_own(url: str, own_urls: tuple[str, ...]) -> bool:
    roots = [own.rstrip("/") for own in own_urls]
    return any(url == root or url.startswith(root + "/") for root in roots)
