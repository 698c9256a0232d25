"""Two states of a registry compared, document by document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import unified_diff

from msgspec import Struct

SUMMARY_CHARS_MAX = 1_000


class Difference(Struct, frozen=True):
    """One document that is not the same in both states."""

    identity: str
    before: bytes | None
    """None if it is not there."""
    after: bytes | None

    @property
    def change(self) -> str:
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"

    def lines(self, before_name: str, after_name: str) -> list[str]:
        """As a unified diff."""
        return text_diff(self.before or b"", self.after or b"", before_name, after_name)


def text_diff(before: bytes, after: bytes, before_name: str, after_name: str) -> list[str]:
    old, new = (content.decode("utf-8", "replace").splitlines() for content in (before, after))
    return list(unified_diff(old, new, before_name, after_name, lineterm=""))


def compare(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[Difference]:
    """Documents by identity."""
    found = [Difference(one, before.get(one), after.get(one)) for one in sorted({*before, *after})]
    return [one for one in found if one.before != one.after]


def summary_of(differences: Iterable[Difference]) -> str:
    """`2 added, 1 removed: protocols:SCAN:2, …`"""
    found = list(differences)
    counts = [(sum(one.change == change for one in found), change) for change in ("added", "changed", "removed")]
    counted = ", ".join(f"{count} {change}" for count, change in counts if count)
    text = f"{counted}: {', '.join(one.identity for one in found)}" if found else "nothing changed"
    return text if len(text) <= SUMMARY_CHARS_MAX else text[: SUMMARY_CHARS_MAX - 1] + "…"
