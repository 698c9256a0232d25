"""Envelope v1: a command as it is posted, read into the parts of a job.

All checks run, so that a refusal lists everything that is wrong. `schemas/envelope.json` publishes the same rules as
far as a schema can state them; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from lucius.domain.canonical import idempotency_hash, idempotency_scope_key
from lucius.domain.errors import CallerError, Fault
from lucius.domain.fields import (
    FieldFault,
    read_callback_urls,
    read_correlation_id,
    read_doc_id,
    read_idempotency_key,
    read_mode,
    read_not_before,
    read_schema_version,
    read_tenant_id,
    read_traceparent,
)
from lucius.domain.job import CommandFields
from lucius.domain.payload import payload_plan, pointer_token, read_payload, searchable_values
from lucius.domain.protocol import Protocol
from lucius.domain.refs import FileFolders, RefPolicy, ref_faults
from lucius.domain.routing import Mode, Routing, normal_form, resolve_mode, route
from lucius.domain.time import Instant

REQUIRED = ("tenant_id", "request_type", "input_ref", "output_ref", "payload", "schema_version")
OPTIONAL = (
    "mode",
    "idempotency_key",
    "doc_id",
    "callback_urls",
    "correlation_id",
    "traceparent",
    "not_before",
)
FIELDS = frozenset(REQUIRED + OPTIONAL)
FAULTS_MAX = 100
NOT_REGISTERED = "this tenant is not registered, and only registered ones are served: add it to the registry (tenants/)"
_NAME_CHARS_MAX = 100
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class EnvelopeRules(Struct, frozen=True, kw_only=True):
    """Limits on envelopes, from the settings and the bus."""

    own_callback_urls: tuple[str, ...] = ()
    """LUCIUS's own addresses: `callback_urls.ack` and `.result` must be one of these or be under one."""
    message_bytes_max: int = 262_144
    artifacts_bytes_max: int = 65_536
    directive_overhead_bytes: int = 8_192
    not_before_max_seconds: float = 30 * 86_400.0


class Terms(Struct, frozen=True, kw_only=True):
    """The registry's rules for the tenant of an envelope, and the settings' rules for its files."""

    admitted: bool = True
    mode: Mode | None = None
    default_mode: Mode = Mode.DEFAULT
    burst_allowed: bool = True
    refs: RefPolicy = RefPolicy()
    files: FileFolders = FileFolders()


class Envelope(CommandFields, frozen=True, kw_only=True):
    """A command that may become a job. Routing is decided, and every step has its parameters."""

    protocol: Protocol
    payloads: tuple[Raw, ...]
    """One per step of the protocol."""
    scope_key: bytes
    """The idempotency claim of the command: see `idempotency_scope_key`."""
    correlation_id: str | None


def tenant_of(document: object) -> str | None:
    """The tenant of an envelope, in normal form, read first for authorization."""
    tenant_id = document.get("tenant_id") if isinstance(document, dict) else None
    try:
        return normal_form(read_tenant_id(tenant_id))
    except FieldFault:
        return None


def read_envelope(
    document: object,
    tenant_id: str | None,
    request_types: Mapping[str, Protocol],
    terms: Terms,
    rules: EnvelopeRules,
    now: Instant,
) -> Envelope:
    """The envelope in `document`. Raises `CallerError` with every fault. `tenant_id` comes from `tenant_of`, and
    `terms` are that tenant's."""
    if not isinstance(document, dict):
        raise CallerError.of("ENVELOPE_INVALID", "the body must be a JSON object: an envelope")
    reader = _Reader(document)
    reader.check_names()
    if tenant_id is None:
        reader.read("tenant_id", read_tenant_id)
    if not terms.admitted:
        reader.add("TENANT_FORBIDDEN", "/tenant_id", NOT_REGISTERED)
    schema_version = reader.read("schema_version", read_schema_version)
    idempotency_key = reader.read("idempotency_key", read_idempotency_key)
    doc_id = reader.read("doc_id", read_doc_id)
    callback_urls = reader.read("callback_urls", lambda value: read_callback_urls(value, rules.own_callback_urls))
    correlation_id = reader.read("correlation_id", read_correlation_id)
    traceparent = reader.read("traceparent", read_traceparent)
    not_before = reader.read("not_before", lambda value: read_not_before(value, now, rules.not_before_max_seconds))
    routing = reader.routing(tenant_id, doc_id, terms)
    input_ref = reader.ref("input_ref", terms.refs, terms.files.readable)
    output_ref = reader.ref("output_ref", terms.refs, terms.files.writable)
    protocol, payloads = reader.work(request_types)
    if protocol is not None:
        reader.check_directives(protocol, payloads, len(input_ref) + len(output_ref), rules)
    reader.finish()
    if tenant_id is None or schema_version is None or routing is None or protocol is None:
        raise AssertionError("an envelope without a fault has all its required fields")
    hash_ = idempotency_hash(
        tenant_id,
        document["request_type"],
        document["input_ref"],
        document["output_ref"],
        document["payload"],
        schema_version,
    )
    return Envelope(
        tenant_id=tenant_id,
        request_type=document["request_type"],
        protocol=protocol,
        routing=routing,
        input_ref=Raw(input_ref),
        output_ref=Raw(output_ref),
        payloads=payloads,
        schema_version=schema_version,
        idempotency_key=idempotency_key,
        idempotency_hash=hash_,
        scope_key=idempotency_scope_key(tenant_id, idempotency_key, hash_),
        doc_id=doc_id,
        callback_urls=callback_urls or {},
        correlation_id=correlation_id,
        traceparent=traceparent,
        not_before=not_before,
        searchable=searchable_values(document["payload"], payload_plan(protocol)),
    )


class _Reader:
    """Reads one document and collects its faults. An optional field that is null counts as absent."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._faults: list[Fault] = []

    def add(self, code: str, pointer: str, detail: str) -> None:
        self._faults.append(Fault(code, pointer, detail))

    def finish(self) -> None:
        faults = self._faults
        if not faults:
            return
        error = CallerError(faults)
        if len(faults) > FAULTS_MAX:
            detail = f"at least {len(faults)} faults were found; the most serious {FAULTS_MAX} are listed"
            error.faults = (*error.faults[:FAULTS_MAX], Fault(error.code, "", detail))
        raise error

    def check_names(self) -> None:
        names = self._document.keys()
        for name in names:
            if name not in FIELDS:
                detail = f"{name[:_NAME_CHARS_MAX]} is not a field of an envelope"
                self.add("ENVELOPE_INVALID", "/" + pointer_token(name), detail)
        for name in REQUIRED:
            if name not in names:
                self.add("ENVELOPE_INVALID", "/" + name, f"{name} is required")

    def read(self, name: str, read: Callable[[Any], T]) -> T | None:
        """The field's value; None if it is missing or invalid. `check_names` has recorded missing fields."""
        value = self._document.get(name)
        if value is None and (name in OPTIONAL or name not in self._document):
            return None
        try:
            return read(value)
        except FieldFault as fault:
            self._faults += fault.under("/" + name)
            return None

    def routing(self, tenant_id: str | None, doc_id: str | None, terms: Terms) -> Routing | None:
        noted = len(self._faults)
        requested = self.read("mode", read_mode)
        if len(self._faults) > noted:
            return None
        mode, source, reason = resolve_mode(requested, terms.mode, terms.default_mode)
        if mode is Mode.BURST:
            if not terms.burst_allowed:
                self.add("MODE_FORBIDDEN", "/mode", f"this tenant may not use BURST ({reason})")
            if self._document.get("doc_id") is None:
                self.add("DOC_ID_REQUIRED", "/doc_id", f"BURST needs a doc_id ({reason})")
        if tenant_id is None:
            return None
        return route(tenant_id, None if doc_id is None else normal_form(doc_id), mode, source, reason)

    def ref(self, name: str, policy: RefPolicy, folders: tuple[str, ...]) -> bytes:
        if name not in self._document:
            return b""
        ref = self._document[name]
        self._faults += ref_faults(ref, "/" + name, policy, folders)
        return _encode(ref)

    def work(self, request_types: Mapping[str, Protocol]) -> tuple[Protocol | None, tuple[Raw, ...]]:
        """The protocol of the request type, and each step's part of the payload."""
        request_type = self._document.get("request_type")
        protocol = None
        if isinstance(request_type, str):
            protocol = request_types.get(request_type)
            if protocol is None:
                detail = f"no protocol serves the request type {request_type[:_NAME_CHARS_MAX]!r}"
                self.add("REQUEST_TYPE_UNKNOWN", "/request_type", detail)
        elif "request_type" in self._document:
            self.add("ENVELOPE_INVALID", "/request_type", "request_type must be a string")
        payload = self._document.get("payload")
        if not isinstance(payload, dict):
            if "payload" in self._document:
                self.add("ENVELOPE_INVALID", "/payload", "payload must be a JSON object")
            return protocol, ()
        if protocol is None:
            return None, ()
        payloads, faults = read_payload(payload, payload_plan(protocol))
        self._faults += faults
        return protocol, payloads

    def check_directives(
        self, protocol: Protocol, payloads: tuple[Raw, ...], refs_bytes: int, rules: EnvelopeRules
    ) -> None:
        """Check that every directive of the job fits the bus, whatever earlier steps return."""
        for index, payload in enumerate(payloads):
            rest = index * rules.artifacts_bytes_max + rules.directive_overhead_bytes
            size = len(payload) + refs_bytes + rest
            if size > rules.message_bytes_max:
                detail = (
                    f"the directive of step {protocol.steps[index].id} could have {size} bytes ({rest} of them kept "
                    f"for earlier steps' artifacts and the frame); the bus takes {rules.message_bytes_max}"
                )
                self.add("PAYLOAD_INVALID", "/payload", detail)
