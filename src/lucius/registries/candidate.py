"""A protocol that somebody wants to publish: would the registry accept it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from lucius.domain.protocol import Protocol
from lucius.ports.registry import Problem, RegistrySnapshot
from lucius.registries.contents import Document, Rules, read_contents
from lucius.registries.versions import changed_versions
from lucius.yaml_text import read_yaml


class Candidate(Struct, frozen=True):
    problems: tuple[Problem, ...]
    """Everything that keeps the registry from taking effect with it."""
    identity: str = ""
    """Empty if the document cannot be read."""
    protocol: Protocol | None = None
    is_published: bool = False
    """Whether the registry has this very version already."""
    newest_version: int = 0
    """The version of this protocol that new jobs would get."""


def check_candidate(
    known: Sequence[Document], document: Document, rules: Rules, source: str, mark: str = ":"
) -> Candidate:
    """`known` is what the registry holds, `source` where it is, `mark` what separates its places from lines. A known
    document in the place of the candidate is the candidate itself."""
    alone = read_contents([document], rules, source)
    if alone.problems:
        return Candidate(alone.problems)
    ((identity, protocol),) = alone.protocols.items()
    others = [one for one in known if one.place != document.place]
    registry = read_contents(others, rules, source, mark=mark)
    published = registry.protocols.get(identity)
    # A registry without any protocol is invalid, but not with this one.
    problems = [one for one in registry.problems if one.place != source]
    problems += _taken_request_types(registry.snapshot, protocol, document)
    if published is not None:
        problems += changed_versions({identity: published}, alone)
    current = registry.snapshot.protocols.get(protocol.id, protocol)
    newest_version = max(current.version, protocol.version)
    return Candidate(tuple(problems), identity, protocol, published == protocol, newest_version)


def _taken_request_types(snapshot: RegistrySnapshot, protocol: Protocol, document: Document) -> Iterator[Problem]:
    text = read_yaml(document.content)
    for index, request_type in enumerate(protocol.request_types):
        other = snapshot.request_types.get(request_type)
        if other is not None and other.id != protocol.id:
            detail = f"the request type {request_type} is already served by {other.id}"
            yield Problem(document.place, text.line_of(f"/request_types/{index}"), detail)
