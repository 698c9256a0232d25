"""The content of a registry: documents from files or from App Configuration, read as a whole.

Every registry is an adapter that finds documents; what they mean, and what is wrong with them, is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import sha256

import msgspec
from msgspec import Struct

from lucius.domain.protocol import Protocol
from lucius.domain.refs import DEFAULT_SCHEMES, RefPolicy
from lucius.ports.registry import Globals, Problem, RegistrySnapshot, Tenant
from lucius.registries.documents import DocumentFault, read_globals, read_protocol, read_tenant
from lucius.registries.overrides import Overrides
from lucius.registries.runbook_grants import owner_faults
from lucius.yaml_text import YamlFault, YamlText, read_yaml

DOCUMENTS_MAX = 20_000


class Kind(StrEnum):
    """In the order in which documents are read: tenants build on the global settings."""

    GLOBALS = "globals"
    PROTOCOL = "protocols"
    TENANT = "tenants"


class Document(Struct, frozen=True):
    kind: Kind
    place: str
    """The file or key that it is in, for problems."""
    content: bytes
    identity: str | None = None
    """What it must turn out to be, if its place says so: see `Contents.documents`."""


class Contents(Struct, frozen=True):
    snapshot: RegistrySnapshot
    documents: dict[str, Document]
    """By identity: `globals`, `protocols:ID:VERSION` or `tenants:ID`."""
    protocols: dict[str, Protocol]
    """Every version, by identity."""
    version_lines: dict[str, int]
    """The line of each protocol's version, by identity."""
    problems: tuple[Problem, ...]


class Rules(Struct, frozen=True):
    """What applies to documents besides their own text."""

    overrides: Overrides = Overrides()
    file_scheme_allowed: bool = False

    @property
    def refs(self) -> RefPolicy:
        return RefPolicy(schemes=(*DEFAULT_SCHEMES, "file") if self.file_scheme_allowed else DEFAULT_SCHEMES)


def read_contents(
    documents: Sequence[Document], rules: Rules, source: str, problems: Iterable[Problem] = (), mark: str = ":"
) -> Contents:
    """All faults are collected. `source` is where protocols would be, `problems` what was wrong with the source
    itself, `mark` what separates a place from a line."""
    reading = _Reading(rules.refs, list(problems), mark)
    if len(documents) > DOCUMENTS_MAX:
        reading.add(source, 1, f"there are {len(documents)} documents; at most {DOCUMENTS_MAX} are read")
    else:
        for kind in Kind:
            for document in documents:
                if document.kind is kind:
                    reading.read(document)
        reading.check_owners()
        if not reading.protocols and not reading.problems:
            reading.add(source, 1, "there is no protocol here, so no command could be accepted")
    protocols, request_types = reading.by_request_type()
    settings = rules.overrides.applied_to(reading.settings)
    content = (protocols, {name: one.id for name, one in request_types.items()}, reading.tenants, settings)
    version = sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:16]
    return Contents(
        RegistrySnapshot(version, protocols, request_types, reading.tenants, settings),
        reading.documents,
        {identity: protocol for identity, (protocol, _, _) in reading.protocols.items()},
        {identity: text.line_of("/version") for identity, (_, _, text) in reading.protocols.items()},
        tuple(reading.problems),
    )


def protocol_identity(protocol: Protocol) -> str:
    return f"{Kind.PROTOCOL}:{protocol.id}:{protocol.version}"


def tenant_identity(tenant: Tenant) -> str:
    return f"{Kind.TENANT}:{tenant.id}"


class _Reading:
    """One pass over all documents."""

    def __init__(self, refs: RefPolicy, problems: list[Problem], mark: str) -> None:
        self._refs = refs
        self._mark = mark
        self.protocols: dict[str, tuple[Protocol, Document, YamlText]] = {}
        self.tenants: dict[str, Tenant] = {}
        self._tenant_places: dict[str, tuple[str, YamlText]] = {}
        self.settings = Globals(refs=refs)
        self.documents: dict[str, Document] = {}
        self.problems = problems

    def read(self, document: Document) -> None:
        try:
            text = read_yaml(document.content)
        except YamlFault as fault:
            self.add(document.place, fault.line, fault.detail)
            return
        try:
            self._take(document, text)
        except DocumentFault as faults:
            for pointer, detail in faults.faults:
                self.add(document.place, text.line_of(pointer), detail)

    def _take(self, document: Document, text: YamlText) -> None:
        if document.kind is Kind.GLOBALS:
            self.settings = read_globals(text.value, self._refs)
            self.documents[document.kind] = document
            return
        if document.kind is Kind.PROTOCOL:
            protocol = read_protocol(text.value)
            identity, twice = protocol_identity(protocol), f"version {protocol.version} of {protocol.id} is in {{}} too"
            self._check_identity(document, identity)
            if identity not in self.documents:
                self.protocols[identity] = (protocol, document, text)
        else:
            tenant = read_tenant(text.value, self.settings.refs)
            identity, twice = tenant_identity(tenant), f"another file already defines the tenant {tenant.id}"
            self._check_identity(document, identity)
            self.tenants.setdefault(tenant.id, tenant)
            self._tenant_places.setdefault(tenant.id, (document.place, text))
        if identity in self.documents:
            self.add(document.place, text.line_of("/id"), twice.format(self.documents[identity].place))
        self.documents.setdefault(identity, document)

    def _check_identity(self, document: Document, found: str) -> None:
        if document.identity not in (None, found):
            raise DocumentFault([("/id", f"this is {found}, which belongs under its own key")])

    def check_owners(self) -> None:
        for tenant_id, pointer, detail in owner_faults({name: one.runbooks for name, one in self.tenants.items()}):
            place, text = self._tenant_places[tenant_id]
            self.add(place, text.line_of(pointer), detail)

    def by_request_type(self) -> tuple[dict[str, Protocol], dict[str, Protocol]]:
        """The newest version of each protocol, by id and by request type. Two protocols with the same type are a
        fault."""
        newest: dict[str, tuple[Protocol, Document, YamlText]] = {}
        for found in sorted(self.protocols.values(), key=lambda one: (one[0].id, one[0].version)):
            newest[found[0].id] = found
        request_types: dict[str, Protocol] = {}
        for protocol, document, text in newest.values():
            for index, request_type in enumerate(protocol.request_types):
                if request_type in request_types:
                    detail = f"the request type {request_type} is already served by {request_types[request_type].id}"
                    self.add(document.place, text.line_of(f"/request_types/{index}"), detail)
                request_types.setdefault(request_type, protocol)
        return {name: found[0] for name, found in newest.items()}, request_types

    def add(self, place: str, line: int, detail: str) -> None:
        self.problems.append(Problem(place, line, detail, self._mark))
