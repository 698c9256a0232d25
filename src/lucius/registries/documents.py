"""The documents of a registry: protocols, tenants and global settings, validated before they take effect.

msgspec checks the types, this module the values. A fault has the pointer of the invalid value; the source adds the file
and the line.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from lucius.azure.key_vault import FORM, BadReference, read_reference
from lucius.domain.fields import FieldFault, read_tenant_id
from lucius.domain.notifications import RECIPIENTS_MAX, TENANT_CAUSES, duplicate_names, recipient_faults
from lucius.domain.payload import PayloadSchemaError, compile_schema, pointer_token, pointer_tokens
from lucius.domain.protocol import PolicyOverride, Protocol, StepDefinition
from lucius.domain.refs import RefPolicy
from lucius.domain.routing import MODE_ALIASES, normal_form
from lucius.ports.registry import Globals, Tenant
from lucius.registries.limits import checked_policy, count_faults, seconds_faults
from lucius.registries.runbook_grants import grant_faults

REFERENCE = "keyvault://"
RETENTION_DAYS_MAX = 36_600
STEPS_MAX = 16
REQUEST_TYPES_MAX = 32
SEARCHABLE_MAX = 8
SEARCHABLE_CHARS_MAX = 64

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}")
_REQUEST_TYPE = re.compile(r"[^\x00-\x20\x7f-\xa0]{1,128}")
_ENVIRONMENT_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HOST = re.compile(r"(?:\*\.)?[\w.~-]+|\[[0-9A-Fa-f:.]+\]")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,31}")
_MSGSPEC_PLACE = re.compile(r" - at (?:`key` in )?`\$(.*)`$")
_MSGSPEC_TOKEN = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_MSGSPEC_UNKNOWN = re.compile(r"unknown field `([^`]*)`")

T = TypeVar("T", bound=msgspec.Struct)
Faults = list[tuple[str, str]]
"""Pairs of a JSON pointer into the document and a sentence."""


class DocumentFault(Exception):
    def __init__(self, faults: Faults) -> None:
        super().__init__("; ".join(detail for _, detail in faults))
        self.faults = faults


class _PayloadPart(Struct, forbid_unknown_fields=True):
    pointer: str | None = None
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "additionalProperties": False})
    searchable: list[str] = []


class _StepPart(Struct, forbid_unknown_fields=True):
    id: str
    type: str
    service: str
    payload: _PayloadPart = msgspec.field(default_factory=_PayloadPart)
    policy: PolicyOverride = PolicyOverride()


class _ProtocolDocument(Struct, forbid_unknown_fields=True):
    id: str
    version: int
    request_types: list[str]
    steps: list[_StepPart]
    description: str = ""
    job_deadline_seconds: float | None = None


def read_protocol(value: Any) -> Protocol:
    """Raises `DocumentFault`."""
    document = _convert(value, _ProtocolDocument)
    faults = _protocol_faults(document)
    for index, part in enumerate(value["steps"]):
        faults += checked_policy(part.get("policy"), f"/steps/{index}/policy")
    faults += seconds_faults(value, "job_deadline_seconds", "")
    if faults:
        raise DocumentFault(faults)
    return Protocol(
        id=document.id,
        version=document.version,
        description=document.description,
        request_types=tuple(document.request_types),
        steps=tuple(_step(part, len(document.steps) == 1) for part in document.steps),
        job_deadline_seconds=document.job_deadline_seconds,
    )


def _step(part: _StepPart, alone: bool) -> StepDefinition:
    pointer = part.payload.pointer
    if pointer is None:
        pointer = "" if alone else "/" + pointer_token(part.id)
    return StepDefinition(
        id=part.id,
        type=part.type,
        service=part.service,
        payload_pointer=pointer,
        payload_schema=part.payload.schema,
        searchable=tuple(part.payload.searchable),
        policy=part.policy,
    )


def _protocol_faults(document: _ProtocolDocument) -> Faults:
    faults: Faults = []
    if not _ID.fullmatch(document.id):
        faults.append(("/id", "an id has 1 to 64 letters, digits and any of _ . -"))
    if document.version < 1:
        faults.append(("/version", "a version is 1 or more"))
    if not 1 <= len(document.request_types) <= REQUEST_TYPES_MAX:
        faults.append(("/request_types", f"a protocol serves 1 to {REQUEST_TYPES_MAX} request types"))
    if not 1 <= len(document.steps) <= STEPS_MAX:
        faults.append(("/steps", f"a protocol has 1 to {STEPS_MAX} steps"))
    for index, request_type in enumerate(document.request_types):
        place = f"/request_types/{index}"
        if not _REQUEST_TYPE.fullmatch(request_type):
            faults.append((place, "a request type has 1 to 128 characters, without white space and control characters"))
        elif request_type in document.request_types[:index]:
            faults.append((place, f"the request type {request_type} is given twice"))
    for index, step in enumerate(document.steps):
        if step.id in [other.id for other in document.steps[:index]]:
            faults.append((f"/steps/{index}/id", f"the step id {step.id} is given twice"))
        faults += _step_faults(step, f"/steps/{index}")
    return faults


def _step_faults(step: _StepPart, place: str) -> Faults:
    faults: Faults = []
    for name, text in (("id", step.id), ("type", step.type)):
        if not _ID.fullmatch(text):
            faults.append((f"{place}/{name}", f"a step's {name} has 1 to 64 letters, digits and any of _ . -"))
    if not _SERVICE.fullmatch(step.service):
        detail = "a service names a subscription: 1 to 50 letters, digits and any of _ . -"
        faults.append((f"{place}/service", detail))
    try:
        pointer_tokens(step.payload.pointer or "")
    except ValueError as error:
        faults.append((f"{place}/payload/pointer", str(error)))
    try:
        compile_schema(step.payload.schema)
    except PayloadSchemaError as error:
        faults.append((f"{place}/payload/schema", f"the payload schema cannot be used: {error}"))
    return faults + _searchable_faults(step.payload, f"{place}/payload/searchable")


def _searchable_faults(payload: _PayloadPart, place: str) -> Faults:
    faults: Faults = []
    if len(payload.searchable) > SEARCHABLE_MAX:
        faults.append((place, f"a step has at most {SEARCHABLE_MAX} searchable fields: each is one more row a job"))
    properties = payload.schema.get("properties")
    known: dict[str, Any] = properties if isinstance(properties, dict) else {}
    for index, name in enumerate(payload.searchable):
        fault = _searchable_fault(name, known)
        if name in payload.searchable[:index]:
            fault = f"the searchable field {name} is given twice"
        if fault is not None:
            faults.append((f"{place}/{index}", fault))
    return faults


def _searchable_fault(name: str, properties: dict[str, Any]) -> str | None:
    if not 0 < len(name) <= SEARCHABLE_CHARS_MAX or "=" in name or not name.isprintable():
        return f"a searchable field has a name of 1 to {SEARCHABLE_CHARS_MAX} printable characters without ="
    if name not in properties:
        return f"{name} is not among the properties of the payload's schema"
    schema = properties[name]
    type_ = schema.get("type") if isinstance(schema, dict) else None
    if type_ in ("object", "array"):
        return f"{name} is an {type_}: only texts, numbers and booleans can be searched"
    return None


def read_tenant(value: Any, default_refs: RefPolicy) -> Tenant:
    """Raises `DocumentFault`. Parts of the ref policy that the tenant does not set come from the global settings."""
    tenant = _convert(_with_modes(value), Tenant)
    faults: Faults = []
    try:
        read_tenant_id(tenant.id)
    except FieldFault as fault:
        faults.append(("/id", str(fault)))
    faults += count_faults(value, "max_inflight", "")
    faults += seconds_faults(value, "job_deadline_seconds", "")
    faults += _rate_faults(value)
    faults += checked_policy(value.get("policy"), "/policy")
    if tenant.webhook_secret_env is not None and not _ENVIRONMENT_VARIABLE.fullmatch(tenant.webhook_secret_env):
        faults.append(("/webhook_secret_env", "this is the name of an environment variable, not the secret itself"))
    faults += _webhook_secret_faults(tenant)
    faults += grant_faults(tenant)
    faults += _notification_faults(tenant)
    if tenant.retention_days is not None and not 0 < tenant.retention_days <= RETENTION_DAYS_MAX:
        faults.append(("/retention_days", f"must be more than 0, and at most {RETENTION_DAYS_MAX}"))
    refs = tenant.refs
    if refs is not None:
        faults += _ref_policy_faults(refs)
        refs = _merged_refs(value["refs"], refs, default_refs)
    if faults:
        raise DocumentFault(faults)
    return msgspec.structs.replace(tenant, id=normal_form(tenant.id), refs=refs)


def _webhook_secret_faults(tenant: Tenant) -> Faults:
    if tenant.webhook_secret is None:
        return []
    try:
        is_reference = read_reference(tenant.webhook_secret) is not None
    except BadReference as error:
        return [("/webhook_secret", str(error))]
    if not is_reference:
        return [("/webhook_secret", f"this is a reference to a secret ({FORM}), not the secret itself")]
    if tenant.webhook_secret_env is not None:
        return [("/webhook_secret", "the secret is given twice: leave out webhook_secret or webhook_secret_env")]
    return []


def _notification_faults(tenant: Tenant) -> Faults:
    place, recipients = "/notifications/recipients", tenant.notifications.recipients
    faults: Faults = []
    if len(recipients) > RECIPIENTS_MAX:
        faults.append((place, f"at most {RECIPIENTS_MAX} recipients"))
    faults += [(f"{place}/{index}/name", "duplicate recipient name") for index in duplicate_names(recipients)]
    for index, one in enumerate(recipients):
        names = {"/interval": "/interval_seconds"}
        for pointer, detail in recipient_faults(one, TENANT_CAUSES, REFERENCE):
            faults.append((f"{place}/{index}{names.get(pointer, pointer)}", detail))
    if tenant.notifications.warn_before_seconds <= 0:
        faults.append(("/notifications/warn_before_seconds", "must be more than 0"))
    return faults


def read_globals(value: Any, default_refs: RefPolicy) -> Globals:
    """Raises `DocumentFault`. An empty document means all defaults."""
    value = {} if value is None else value
    settings = _convert(_with_modes(value), Globals)
    faults: Faults = []
    for name in ("max_inflight", "max_inflight_per_tenant"):
        faults += count_faults(value, name, "")
    for mode in settings.max_inflight_per_mode:
        faults += count_faults(value["max_inflight_per_mode"], mode.value, "/max_inflight_per_mode")
    faults += seconds_faults(value, "job_deadline_seconds", "")
    faults += _rate_faults(value)
    faults += checked_policy(value.get("policy"), "/policy")
    faults += _ref_policy_faults(settings.refs)
    if faults:
        raise DocumentFault(faults)
    return msgspec.structs.replace(settings, refs=_merged_refs(value.get("refs", {}), settings.refs, default_refs))


def _merged_refs(stated: dict[str, Any], refs: RefPolicy, default_refs: RefPolicy) -> RefPolicy:
    return msgspec.structs.replace(default_refs, **{name: getattr(refs, name) for name in stated})


def _ref_policy_faults(refs: RefPolicy) -> Faults:
    faults: Faults = []
    if not refs.schemes:
        faults.append(("/refs/schemes", "without a scheme, no ref is allowed"))
    for index, scheme in enumerate(refs.schemes):
        if not _SCHEME.fullmatch(scheme):
            faults.append((f"/refs/schemes/{index}", "a scheme is written in lower case and without ://"))
    for index, host in enumerate(refs.hosts):
        if not _HOST.fullmatch(host):
            faults.append((f"/refs/hosts/{index}", "a host is a name, or *.name; without scheme, port or path"))
    for index, container in enumerate(refs.containers):
        if not container or "/" in container:
            faults.append((f"/refs/containers/{index}", "a container is one name, without /"))
    return faults


def _rate_faults(value: dict[str, Any]) -> Faults:
    rate = value.get("requests_per_second")
    if rate is None or 0 < rate < float("inf"):
        return []
    return [("/requests_per_second", "a rate is a number above zero; leave it out for none")]


def _with_modes(value: Any) -> Any:
    """Modes may be given by their aliases here too."""
    if not isinstance(value, dict):
        return value
    value = dict(value)
    if isinstance(value.get("mode"), str):
        value["mode"] = MODE_ALIASES.get(value["mode"], value["mode"])
    return value


def _convert(value: Any, shape: type[T]) -> T:
    if not isinstance(value, dict):
        raise DocumentFault([("", "the document must be a mapping")])
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise DocumentFault([_located(str(error))]) from None


def _located(message: str) -> tuple[str, str]:
    pointer, place = "", _MSGSPEC_PLACE.search(message)
    if place:
        message = message[: place.start()]
        pointer = "".join("/" + (name or index) for name, index in _MSGSPEC_TOKEN.findall(place[1]))
    unknown = _MSGSPEC_UNKNOWN.search(message)
    if unknown:
        return f"{pointer}/{pointer_token(unknown[1])}", f"{unknown[1]} is not a known field"
    return pointer, message[:1].lower() + message[1:].replace("`", "")
