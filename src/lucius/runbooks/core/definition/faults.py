"""Faults in a runbook's text, and their lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct


class Fault(Struct, frozen=True):
    line: int
    pointer: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


class RunbookInvalid(Exception):
    """A text that is not a valid runbook; `faults` has everything found, in line order."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


class Finding(Struct, frozen=True):
    """A fault before its line is known."""

    pointer: str
    message: str
    unknown: str | None = None
    """An unknown name; the message suggests the closest of `known`."""
    known: Sequence[str] = ()


Found = list[Finding]
