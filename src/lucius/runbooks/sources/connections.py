"""Addresses of sources by name: from the environment, and from a file that is read again when it changes.

The file has a line `NAME=address` for each connection; empty lines and lines that begin with # are comments. A name in
the environment comes first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from lucius.runbooks.core.grants import Grants
from lucius.runbooks.sources.files import Stamp, stamp_of
from lucius.runbooks.sources.limits import SourceError

FILE_BYTES_MAX = 1_048_576
_NAME = re.compile(r"LUCIUS_SOURCE_[A-Z0-9_]{1,100}")
_FILE = "the file that LUCIUS_SOURCES_FILE names"


class Connections(Mapping[str, str]):
    """Looking up a name that is not in the environment raises SourceError if the file cannot be used."""

    def __init__(self, environ: Mapping[str, str], file: Path | None) -> None:
        self._environ = environ
        self._file = file
        self._read: tuple[Stamp, dict[str, str]] | None = None

    def __getitem__(self, name: str) -> str:
        value = self._environ.get(name, "")
        return value if value.strip() else self._listed()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._environ, *self._listed()]))

    def __len__(self) -> int:
        return len({*self._environ, *self._listed()})

    def _listed(self) -> dict[str, str]:
        if self._file is None:
            return {}
        try:
            stamp = stamp_of(self._file.stat())
            if self._read is None or self._read[0] != stamp:
                with self._file.open("rb") as opened:
                    content = opened.read(FILE_BYTES_MAX + 1)
                    stamp = stamp_of(os.fstat(opened.fileno()))
                self._read = (stamp, _parsed(content))
        except OSError as fault:
            reason = os.strerror(fault.errno) if fault.errno else type(fault).__name__
            raise SourceError(f"{_FILE} cannot be read: {reason}") from None
        return self._read[1]


def _parsed(content: bytes) -> dict[str, str]:
    if len(content) > FILE_BYTES_MAX:
        raise SourceError(f"{_FILE} has more than {FILE_BYTES_MAX} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"{_FILE} is not UTF-8") from None
    if text and not text.endswith("\n"):
        raise SourceError(
            f"{_FILE} may be half written: the last line has no line break at its end, so it may be cut off"
        )
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, address = (part.strip() for part in line.partition("="))
        fault = _fault(name, equals, address, found)
        if fault:
            raise SourceError(f"{_FILE} cannot be used: line {number}: {fault}")
        found[name] = address
    return found


def _fault(name: str, equals: str, address: str, found: Mapping[str, str]) -> str:
    """Shows no address: it may contain a password."""
    if not equals:
        return "expected NAME=address"
    if not _NAME.fullmatch(name):
        return "the name must be LUCIUS_SOURCE_ followed by A-Z 0-9 _"
    if name in found:
        return f"duplicate connection {name}"
    return "" if address else f"{name} has no address"


class GrantedConnections(Mapping[str, str]):
    """The connections as one runbook may use them. Looking up another one raises SourceError."""

    def __init__(self, connections: Mapping[str, str], grants: Grants, runbook: str) -> None:
        self._connections = connections
        self._grants = grants
        self._runbook = runbook

    def __getitem__(self, name: str) -> str:
        refusal = self._grants.connection_refusal(self._runbook, name)
        if refusal is not None:
            raise SourceError(refusal)
        return self._connections[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._connections if self._grants.connection_refusal(self._runbook, name) is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
