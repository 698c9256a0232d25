"""Key-values and their revisions, without HTTP and with time as an argument."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lucius.testing.appconfig.filters import Pattern

SIZE_BYTES_MAX = 10_240
"""A key-value with everything that belongs to it: App Configuration's own limit."""
REVISIONS_MAX = 100_000


class Refusal(Exception):
    """What the server answers with an error status."""

    def __init__(self, status: int, title: str, detail: str = "") -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.detail = detail


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: str
    label: str | None
    value: str
    content_type: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    locked: bool = False
    etag: str = ""
    modified_at: float = 0.0

    @property
    def size_bytes(self) -> int:
        parts = [self.key, self.label or "", self.value, self.content_type]
        parts += [text for tag in self.tags.items() for text in tag]
        return sum(len(part.encode()) for part in parts)


class KeyValues:
    def __init__(self) -> None:
        self._current: dict[tuple[str, str | None], KeyValue] = {}
        self._revisions: list[KeyValue] = []
        self._writes = 0

    def __iter__(self) -> Iterator[KeyValue]:
        return iter(sorted(self._current.values(), key=lambda one: (one.key, one.label or "")))

    def find(self, key: str, label: str | None) -> KeyValue | None:
        return self._current.get((key, label))

    def select(self, keys: Pattern, labels: Pattern) -> list[KeyValue]:
        return [one for one in self if keys.matches(one.key) and labels.matches(one.label)]

    def revisions(self, keys: Pattern, labels: Pattern) -> list[KeyValue]:
        """The newest first."""
        found = [one for one in self._revisions if keys.matches(one.key) and labels.matches(one.label)]
        return found[::-1]

    def set(self, wanted: KeyValue, now: float) -> KeyValue:
        """Raises `Refusal`."""
        if not wanted.key or wanted.key in (".", "..") or "%" in wanted.key:
            raise Refusal(400, "Invalid request parameter 'key'", f"{wanted.key!r} is not a key")
        if wanted.size_bytes > SIZE_BYTES_MAX:
            raise Refusal(413, "Payload too large", f"A key-value has at most {SIZE_BYTES_MAX} bytes.")
        self._check_unlocked(wanted.key, wanted.label)
        return self._write(wanted, now)

    def delete(self, key: str, label: str | None) -> KeyValue | None:
        self._check_unlocked(key, label)
        return self._current.pop((key, label), None)

    def lock(self, key: str, label: str | None, locked: bool, now: float) -> KeyValue:
        found = self.find(key, label)
        if found is None:
            raise Refusal(404, "Not found")
        return self._write(replace(found, locked=locked), now)

    def clear(self) -> None:
        self._current.clear()
        self._revisions.clear()

    def _check_unlocked(self, key: str, label: str | None) -> None:
        found = self.find(key, label)
        if found is not None and found.locked:
            raise Refusal(409, f"Modifing key '{key}' is not allowed", "The key is read-only.")

    def _write(self, wanted: KeyValue, now: float) -> KeyValue:
        self._writes += 1
        etag = hashlib.sha256(f"{self._writes}:{wanted.key}:{wanted.label}".encode()).hexdigest()[:32]
        written = replace(wanted, etag=etag, modified_at=now)
        self._current[written.key, written.label] = written
        self._revisions = [*self._revisions[-REVISIONS_MAX + 1 :], written]
        return written


def etag_of(page: list[KeyValue]) -> str:
    """Of a page of a list: changes with every key-value on it."""
    return hashlib.sha256("\n".join(f"{one.key}:{one.label}:{one.etag}" for one in page).encode()).hexdigest()[:32]


def check_conditions(headers: Mapping[str, str], found: KeyValue | None) -> None:
    """`If-Match` and `If-None-Match` of a write; raises `Refusal`."""
    wanted, unwanted = headers.get("if-match"), headers.get("if-none-match")
    etag = found.etag if found is not None else None
    if wanted is not None and not _holds(wanted, etag):
        raise Refusal(412, "Precondition failed", "The key-value is not the one that If-Match names.")
    if unwanted is not None and _holds(unwanted, etag):
        raise Refusal(412, "Precondition failed", "There is a key-value that If-None-Match excludes.")


def _holds(condition: str, etag: str | None) -> bool:
    names = [part.strip().strip('"') for part in condition.split(",")]
    return etag is not None and ("*" in names or etag in names)


def as_json(one: KeyValue, moment: str) -> dict[str, Any]:
    return {
        "etag": one.etag,
        "key": one.key,
        "label": one.label,
        "content_type": one.content_type or None,
        "value": one.value,
        "tags": dict(one.tags),
        "locked": one.locked,
        "last_modified": moment,
    }
