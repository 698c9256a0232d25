"""The file of API keys: a YAML list of flat objects, read event by event.

Every value is a string or a list of strings, so nothing is resolved or nested, and every fault has its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from lucius.auth.principal import ROLES, Principal
from lucius.domain.fields import FieldFault, read_tenant_id
from lucius.domain.routing import normal_form

BYTES_MAX = 1_048_576
TENANTS_MAX = 1_000

LIMIT_ITEMS_MAX = 1_000

_REQUIRED = ("name", "sha256", "tenants", "roles")
_LIMITS = ("services", "worker_ids")
_FIELDS = (*_REQUIRED, *_LIMITS)
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[!-~](?:[ -~]{0,126}[!-~])?")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Field = tuple[int, str | list[tuple[int, str]]]
"""A value and its first line; the items of a list have their own lines."""


class KeysFault(Exception):
    """An invalid key file, with the file, the line and the error."""

    def __init__(self, file: str, line: int, detail: str) -> None:
        super().__init__(f"{file}:{line}: {detail}")


class _Invalid(Exception):
    def __init__(self, line: int, detail: str) -> None:
        super().__init__(detail)
        self.line = line


def read_keys(path: Path) -> dict[bytes, Principal]:
    """The principals in a key file, by the digest of their key. Raises `KeysFault`."""
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise KeysFault(path.name, 1, f"the file cannot be read: {error.strerror}") from None
    return parse_keys(path.name, content)


def parse_keys(name: str, content: bytes) -> dict[bytes, Principal]:
    """The same of a content that was read from somewhere; `name` is for faults."""
    try:
        if len(content) > BYTES_MAX:
            raise _Invalid(1, f"the file has more than {BYTES_MAX} bytes")
        return _principals(_events(content.decode()))
    except UnicodeDecodeError:
        raise KeysFault(name, 1, "the file is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise KeysFault(name, mark.line + 1 if mark else 1, error.problem or "this is not YAML") from None
    except yaml.YAMLError:
        raise KeysFault(name, 1, "this is not YAML") from None
    except _Invalid as error:
        raise KeysFault(name, error.line, str(error)) from None


def _principals(events: Iterator[yaml.Event]) -> dict[bytes, Principal]:
    principals: dict[bytes, Principal] = {}
    names: set[str] = set()
    for line, fields in _entries(events):
        digest, principal = _principal(line, fields)
        if digest in principals:
            raise _Invalid(fields["sha256"][0], "duplicate key: this sha256 is already listed")
        if principal.name in names:
            line, name = fields["name"]
            raise _Invalid(line, f"duplicate name {name}")
        names.add(principal.name)
        principals[digest] = principal
    return principals


# --- Parsing ---------------------------------------------------------------------------------------------------------


def _events(text: str) -> Iterator[yaml.Event]:
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _Invalid(_line(event), "anchors and aliases are not supported; write the value out")
        if getattr(event, "tag", None) is not None:
            raise _Invalid(_line(event), "tags are not supported; write a plain value")
        yield event


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 1


def _entries(events: Iterator[yaml.Event]) -> Iterator[tuple[int, dict[str, Field]]]:
    next(events)
    if isinstance(next(events), yaml.StreamEndEvent):
        return
    start = next(events)
    if not isinstance(start, yaml.SequenceStartEvent):
        raise _Invalid(_line(start), "the file must contain a list of keys")
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        if not isinstance(event, yaml.MappingStartEvent):
            raise _Invalid(_line(event), f"a key must be an object with {', '.join(_FIELDS)}")
        yield _line(event), _entry(events)
    next(events)
    if not isinstance(end := next(events), yaml.StreamEndEvent):
        raise _Invalid(_line(end), "the file must contain a single document")


def _entry(events: Iterator[yaml.Event]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        name = event.value if isinstance(event, yaml.ScalarEvent) else "this"
        if name not in _FIELDS:
            raise _Invalid(_line(event), f"{name[:64]} is not a field of a key; the fields are {', '.join(_FIELDS)}")
        if name in fields:
            raise _Invalid(_line(event), f"duplicate field {name}")
        fields[name] = _field(events)
    return fields


def _field(events: Iterator[yaml.Event]) -> Field:
    event = next(events)
    line = _line(event)
    if isinstance(event, yaml.ScalarEvent):
        return line, event.value
    if not isinstance(event, yaml.SequenceStartEvent):
        raise _Invalid(line, "this must be a string or a list of strings")
    items: list[tuple[int, str]] = []
    while not isinstance(item := next(events), yaml.SequenceEndEvent):
        if not isinstance(item, yaml.ScalarEvent):
            raise _Invalid(_line(item), "this must be a string")
        items.append((_line(item), item.value))
    return line, items


# --- Validation ------------------------------------------------------------------------------------------------------


def _principal(line: int, fields: dict[str, Field]) -> tuple[bytes, Principal]:
    for field in _REQUIRED:
        if field not in fields:
            raise _Invalid(line, f"{field} is missing")
    name_line, name = fields["name"]
    digest_line, digest = fields["sha256"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _Invalid(name_line, "a name must have 1 to 128 printable ASCII characters")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise _Invalid(digest_line, "sha256 must be the key's SHA-256 in 64 hex digits")
    services, worker_ids = (_limit(field, fields) for field in _LIMITS)
    tenants, roles = _tenants(*fields["tenants"]), _roles(*fields["roles"])
    return bytes.fromhex(digest), Principal(f"key:{name}", tenants, roles, services, worker_ids)


def _tenants(line: int, value: str | list[tuple[int, str]]) -> frozenset[str] | None:
    if value == "*":
        return None
    if isinstance(value, str) or not 1 <= len(value) <= TENANTS_MAX:
        raise _Invalid(line, f'tenants must be "*" or a list of 1 to {TENANTS_MAX} tenant ids')
    for item_line, tenant in value:
        try:
            read_tenant_id(tenant)
        except FieldFault as fault:
            raise _Invalid(item_line, str(fault)) from None
    return frozenset(normal_form(tenant) for _, tenant in value)


def _limit(field: str, fields: dict[str, Field]) -> frozenset[str] | None:
    """A key that names only one of the two fields may take nothing of the other kind."""
    if field not in fields:
        return None if not any(other in fields for other in _LIMITS) else frozenset()
    line, value = fields[field]
    if value == "*":
        return None
    if isinstance(value, str) or not 1 <= len(value) <= LIMIT_ITEMS_MAX:
        raise _Invalid(line, f'{field} must be "*" or a list of 1 to {LIMIT_ITEMS_MAX} names')
    for item_line, item in value:
        if not _NAME.fullmatch(item):
            raise _Invalid(item_line, f"each of {field} must have 1 to 128 printable ASCII characters")
    return frozenset(item for _, item in value)


def _roles(line: int, value: str | list[tuple[int, str]]) -> frozenset[str]:
    if isinstance(value, str) or not value:
        raise _Invalid(line, f"roles must be a list of some of {', '.join(sorted(ROLES))}")
    for item_line, role in value:
        if role not in ROLES:
            raise _Invalid(item_line, f"{role!r:.64} is not a role; the roles are {', '.join(sorted(ROLES))}")
    return frozenset(role for _, role in value)
