"""A version of a protocol never changes: jobs were accepted under it, and say so for as long as they are kept."""

from __future__ import annotations

from collections.abc import Mapping

from lucius.domain.protocol import Protocol
from lucius.ports.registry import Problem
from lucius.registries.contents import Contents

VERSIONS_MAX = 20_000


class KnownVersions:
    """The versions that were in force in this process, also those that were removed since. The oldest are forgotten."""

    def __init__(self) -> None:
        self._protocols: dict[str, Protocol] = {}

    def add(self, contents: Contents) -> None:
        self._protocols |= contents.protocols
        for identity in list(self._protocols)[:-VERSIONS_MAX]:
            del self._protocols[identity]

    def changed_in(self, contents: Contents, mark: str = ":") -> list[Problem]:
        return changed_versions(self._protocols, contents, mark)


def changed_versions(known: Mapping[str, Protocol], contents: Contents, mark: str = ":") -> list[Problem]:
    """Protocols that mean something else than the known one of the same version. Comments and layout may change.
    `mark` separates a place from a line."""
    problems = []
    for identity, protocol in contents.protocols.items():
        if known.get(identity, protocol) != protocol:
            detail = (
                f"version {protocol.version} of {protocol.id} has changed, and jobs may have been accepted under it:"
                f" restore it, and give the change a new version"
            )
            place, line = contents.documents[identity].place, contents.version_lines[identity]
            problems.append(Problem(place, line, detail, mark))
    return problems
