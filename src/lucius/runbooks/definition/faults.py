"""What is wrong with a runbook's text, and where."""

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
    """A text that is no runbook; `faults` are all that was found, in the order of the lines."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


class Finding(Struct, frozen=True):
    """A fault before its line is known."""

    pointer: str
    message: str
    unknown: str | None = None
    """A name that is nowhere to be found; the nearest of `known` is added to the message, should it be shown."""
    known: Sequence[str] = ()


Found = list[Finding]
