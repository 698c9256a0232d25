"""Payloads: where each step's parameters are in a command's payload, and whether they match the step's schema."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
from msgspec import Raw, Struct

from lucius.domain.errors import Fault
from lucius.domain.protocol import Protocol
from lucius.domain.search import SearchValue, search_values

ERRORS_MAX = 1_000
_DETAIL_CHARS_MAX = 300
_encode = msgspec.json.Encoder().encode
_EMPTY: dict[str, Any] = {}
HIDDEN = "value"
"""What faults say instead of a value that is hidden."""
_EMPTY_RAW = Raw(b"{}")


class PayloadSchemaError(ValueError):
    """A step's schema is not usable."""


class StepPayload(Struct, frozen=True):
    """One step's part of the payload, with its compiled schema."""

    step_id: str
    pointer: str
    tokens: tuple[str, ...]
    validator: jsonschema_rs.Draft202012Validator
    searchable: tuple[str, ...]
    hides_values: bool = False
    """Whether faults name no values of the payload."""


class PayloadPlan(Struct, frozen=True):
    """A protocol's payload, ready to be checked. Compiling takes some hundred microseconds, once per protocol."""

    protocol: Protocol
    steps: tuple[StepPayload, ...]
    members: frozenset[str] | None
    """The members that the steps read; None if a step reads the whole payload."""
    is_searchable: bool
    """Whether any step declares searchable fields."""


def pointer_tokens(pointer: str) -> tuple[str, ...]:
    """The reference tokens of a JSON pointer (RFC 6901). Raises ValueError if it is not one."""
    if not pointer:
        return ()
    if not pointer.startswith("/") or "~" in pointer.replace("~0", "").replace("~1", ""):
        raise ValueError(f"{pointer!r} is not a JSON pointer")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


def pointer_token(name: str | int) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def compile_schema(schema: dict[str, Any], mask: str | None = None) -> jsonschema_rs.Draft202012Validator:
    """Raises `PayloadSchemaError`; a reference to another document is an error and is not fetched. `mask` stands for
    values in errors."""
    try:
        return jsonschema_rs.Draft202012Validator(schema, offline=True, mask=mask)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        message = getattr(error, "message", None) or str(error)
        raise PayloadSchemaError(message.splitlines()[0][:_DETAIL_CHARS_MAX]) from error


def payload_plan(protocol: Protocol) -> PayloadPlan:
    """The plan of this protocol object, cached: only the first command after a change compiles it."""
    key = (protocol.id, protocol.version)
    plan = _PLANS.get(key)
    if plan is None or plan.protocol is not protocol:
        plan = _PLANS[key] = _compiled(protocol)
    return plan


_PLANS: dict[tuple[str, int], PayloadPlan] = {}


def private_plan(protocol: Protocol) -> PayloadPlan:
    """A plan whose faults have no values of the payload, for people who look at payloads of others. Not cached."""
    return _compiled(protocol, hides_values=True)


def _compiled(protocol: Protocol, hides_values: bool = False) -> PayloadPlan:
    steps = tuple(
        StepPayload(
            step.id,
            step.payload_pointer,
            pointer_tokens(step.payload_pointer),
            compile_schema(step.payload_schema, HIDDEN if hides_values else None),
            step.searchable,
            hides_values,
        )
        for step in protocol.steps
    )
    whole = any(not step.tokens for step in steps)
    members = None if whole else frozenset(step.tokens[0] for step in steps)
    return PayloadPlan(protocol, steps, members, any(step.searchable for step in steps))


def read_payload(payload: dict[str, Any], plan: PayloadPlan) -> tuple[tuple[Raw, ...], list[Fault]]:
    """Each step's parameters, and everything that is wrong with them. Missing parameters are `{}`."""
    faults: list[Fault] = []
    if plan.members is not None and not payload.keys() <= plan.members:
        faults += [
            Fault(
                "PAYLOAD_INVALID", f"/payload/{pointer_token(name)}", f"no step of {plan.protocol.id} reads this field"
            )
            for name in payload
            if name not in plan.members
        ]
    shares: list[Raw] = []
    for step in plan.steps:
        share = _at(payload, step.tokens)
        if not step.validator.is_valid(share):
            faults += _schema_faults(step, share)
        shares.append(Raw(_encode(share)) if share is not _EMPTY else _EMPTY_RAW)
    return tuple(shares), faults


def searchable_values(payload: dict[str, Any], plan: PayloadPlan) -> tuple[SearchValue, ...]:
    """By which values of this payload its job can be found, each once."""
    if not plan.is_searchable:
        return ()
    found = [value for step in plan.steps for value in search_values(_at(payload, step.tokens), step.searchable)]
    return tuple(dict.fromkeys(found))


def _at(payload: Any, tokens: tuple[str, ...]) -> Any:
    for token in tokens:
        if isinstance(payload, dict):
            if token not in payload:
                return _EMPTY
            payload = payload[token]
        elif isinstance(payload, list) and token.isascii() and token.isdigit() and int(token) < len(payload):
            payload = payload[int(token)]
        else:
            return _EMPTY
    return payload


def _schema_faults(step: StepPayload, share: Any) -> list[Fault]:
    """One fault per missing and per unknown member, pointing at the member itself and not at the object around it."""
    root = "/payload" + step.pointer
    # Complete errors are expensive (8 microseconds each), and a large payload can have tens of thousands.
    plain = step.validator.evaluate(share).errors()
    if len(plain) > ERRORS_MAX:
        return [
            Fault(
                "PAYLOAD_INVALID",
                root + error["instanceLocation"],
                f"{HIDDEN} is not allowed here" if step.hides_values else _short(error["error"]),
            )
            for error in plain[:ERRORS_MAX]
        ]
    faults: list[Fault] = []
    for error in step.validator.iter_errors(share):
        place = root + "".join(f"/{pointer_token(part)}" for part in error.instance_path)
        kind = error.kind.as_dict()
        keyword = error.schema_path[-1] if error.schema_path else ""
        if keyword == "required":
            member = pointer_token(kind["property"])
            faults.append(Fault("PAYLOAD_INVALID", f"{place}/{member}", f"{member} is required by step {step.step_id}"))
        elif keyword in ("additionalProperties", "unevaluatedProperties") and "unexpected" in kind:
            faults += [
                Fault(
                    "PAYLOAD_INVALID", f"{place}/{pointer_token(name)}", f"step {step.step_id} does not know this field"
                )
                for name in kind["unexpected"]
            ]
        else:
            faults.append(Fault("PAYLOAD_INVALID", place, _short(error.message)))
    return faults


def _short(detail: str) -> str:
    """An error contains the invalid value, however large it is."""
    return detail if len(detail) <= _DETAIL_CHARS_MAX else detail[:_DETAIL_CHARS_MAX] + "…"
