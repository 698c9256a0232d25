"""The file of API keys: a YAML list of flat objects, read event by event.

Every value in it is text or a list of texts, so nothing is resolved, nothing nests, and a fault knows its line.
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

_FIELDS = ("name", "sha256", "tenants", "roles")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[!-~](?:[ -~]{0,126}[!-~])?")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Field = tuple[int, str | list[tuple[int, str]]]
"""A value and the line it begins on; the items of a list have lines of their own."""


class KeysFault(Exception):
    """A key file that cannot be used; says which file, which line, and what is wrong there."""

    def __init__(self, file: str, line: int, detail: str) -> None:
        super().__init__(f"{file}:{line}: {detail}")


class _Wrong(Exception):
    def __init__(self, line: int, detail: str) -> None:
        super().__init__(detail)
        self.line = line


def read_keys(path: Path) -> dict[bytes, Principal]:
    """The principals in a key file, by the digest of their key. Raises `KeysFault`."""
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            raise _Wrong(1, f"the file has more than {BYTES_MAX} bytes")
        return _principals(_events(content.decode()))
    except OSError as error:
        raise KeysFault(path.name, 1, f"the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeysFault(path.name, 1, "the file is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise KeysFault(path.name, mark.line + 1 if mark else 1, error.problem or "this is not YAML") from None
    except yaml.YAMLError:
        raise KeysFault(path.name, 1, "this is not YAML") from None
    except _Wrong as wrong:
        raise KeysFault(path.name, wrong.line, str(wrong)) from None


def _principals(events: Iterator[yaml.Event]) -> dict[bytes, Principal]:
    principals: dict[bytes, Principal] = {}
    names: set[str] = set()
    for line, fields in _entries(events):
        digest, principal = _principal(line, fields)
        if digest in principals:
            raise _Wrong(fields["sha256"][0], "this key stands twice")
        if principal.name in names:
            raise _Wrong(fields["name"][0], f"the name {principal.name} stands twice")
        names.add(principal.name)
        principals[digest] = principal
    return principals


# --- The form --------------------------------------------------------------------------------------------------------


def _events(text: str) -> Iterator[yaml.Event]:
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _Wrong(_line(event), "anchors and aliases are not read; write the value out")
        if getattr(event, "tag", None) is not None:
            raise _Wrong(_line(event), "tags are not read; write a plain value")
        yield event


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 1


def _entries(events: Iterator[yaml.Event]) -> Iterator[tuple[int, dict[str, Field]]]:
    next(events)
    if isinstance(next(events), yaml.StreamEndEvent):
        return
    start = next(events)
    if not isinstance(start, yaml.SequenceStartEvent):
        raise _Wrong(_line(start), "the file must hold a list of keys")
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        if not isinstance(event, yaml.MappingStartEvent):
            raise _Wrong(_line(event), f"a key is an object with {', '.join(_FIELDS)}")
        yield _line(event), _entry(events)
    next(events)
    if not isinstance(end := next(events), yaml.StreamEndEvent):
        raise _Wrong(_line(end), "the file must hold one document")


def _entry(events: Iterator[yaml.Event]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        name = event.value if isinstance(event, yaml.ScalarEvent) else "this"
        if name not in _FIELDS:
            raise _Wrong(_line(event), f"{name[:64]} is not a field of a key; there are {', '.join(_FIELDS)}")
        if name in fields:
            raise _Wrong(_line(event), f"the field {name} stands twice")
        fields[name] = _field(events)
    return fields


def _field(events: Iterator[yaml.Event]) -> Field:
    event = next(events)
    line = _line(event)
    if isinstance(event, yaml.ScalarEvent):
        return line, event.value
    if not isinstance(event, yaml.SequenceStartEvent):
        raise _Wrong(line, "this must be text or a list of texts")
    items: list[tuple[int, str]] = []
    while not isinstance(item := next(events), yaml.SequenceEndEvent):
        if not isinstance(item, yaml.ScalarEvent):
            raise _Wrong(_line(item), "this must be text")
        items.append((_line(item), item.value))
    return line, items


# --- The sense -------------------------------------------------------------------------------------------------------


def _principal(line: int, fields: dict[str, Field]) -> tuple[bytes, Principal]:
    for field in _FIELDS:
        if field not in fields:
            raise _Wrong(line, f"{field} is missing")
    name_line, name = fields["name"]
    digest_line, digest = fields["sha256"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _Wrong(name_line, "a name has 1 to 128 printable ASCII characters")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise _Wrong(digest_line, "sha256 must be the key's SHA-256 in 64 hex digits")
    return bytes.fromhex(digest), Principal(name, _tenants(*fields["tenants"]), _roles(*fields["roles"]))


def _tenants(line: int, value: str | list[tuple[int, str]]) -> frozenset[str] | None:
    if value == "*":
        return None
    if isinstance(value, str) or not 1 <= len(value) <= TENANTS_MAX:
        raise _Wrong(line, f'tenants must be "*" or a list of 1 to {TENANTS_MAX} tenant ids')
    for item_line, tenant in value:
        try:
            read_tenant_id(tenant)
        except FieldFault as fault:
            raise _Wrong(item_line, str(fault)) from None
    return frozenset(normal_form(tenant) for _, tenant in value)


def _roles(line: int, value: str | list[tuple[int, str]]) -> frozenset[str]:
    if isinstance(value, str) or not value:
        raise _Wrong(line, f"roles must be a list of some of {', '.join(sorted(ROLES))}")
    for item_line, role in value:
        if role not in ROLES:
            raise _Wrong(item_line, f"{role!r:.64} is not a role; there are {', '.join(sorted(ROLES))}")
    return frozenset(role for _, role in value)
