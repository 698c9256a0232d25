"""The commands of a run: one template, and for each command a key, a correlation id and a tenant of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

INPUT_REF = "https://example.invalid/load/input"
OUTPUT_REF = "https://example.invalid/load/output"
TEXT = "load"
DEPTH_MAX = 16

Json = dict[str, Any]


class Commands:
    """Numbered from 1. The number stands in the correlation id, by which a played service knows its directive."""

    def __init__(self, template: Mapping[str, Any], tenants: int | None) -> None:
        self._template = dict(template)
        self._tenants = tenants
        # The run's name is never that of another run, whatever the seed: the same key would be the same job.
        self._prefix = f"load-{uuid.uuid4().hex[:16]}-"

    @property
    def request_type(self) -> str:
        return str(self._template.get("request_type"))

    @property
    def tenant_id(self) -> str | None:
        """The one tenant of all commands; None if there are several."""
        return self.envelope(1).get("tenant_id") if self._tenants in (None, 1) else None

    def envelope(self, number: int) -> Json:
        name = f"{self._prefix}{number}"
        made = {**self._template, "idempotency_key": name, "correlation_id": name}
        if self._tenants is not None:
            made["tenant_id"] = f"load-{(number - 1) % self._tenants + 1}"
        return made

    def body(self, number: int) -> bytes:
        return json.dumps(self.envelope(number), ensure_ascii=False, separators=(",", ":")).encode()

    def number_of(self, correlation_id: object) -> int | None:
        """Which command of this run a directive belongs to; None if to another's."""
        if not isinstance(correlation_id, str) or not correlation_id.startswith(self._prefix):
            return None
        number = correlation_id.removeprefix(self._prefix)
        return int(number) if number.isdecimal() else None


def built_in(request_type: str, protocol: Mapping[str, Any]) -> Json:
    """A small command that the protocol should accept, with refs that nobody can open."""
    return {
        "schema_version": "1",
        "tenant_id": "load-1",
        "request_type": request_type,
        "input_ref": INPUT_REF,
        "output_ref": OUTPUT_REF,
        "payload": smallest_payload(protocol),
    }


def smallest_payload(protocol: Mapping[str, Any]) -> Json:
    """What each step's schema requires and no more, each at the place where the step looks for it."""
    payload: Json = {}
    for step in protocol.get("steps") or ():
        value = smallest(step.get("payload_schema"))
        tokens = [part.replace("~1", "/").replace("~0", "~") for part in (step.get("payload_pointer") or "").split("/")]
        if len(tokens) == 1:
            payload |= value if isinstance(value, dict) else {}
            continue
        at = payload
        for token in tokens[1:-1]:
            at = at.setdefault(token, {})
        at[tokens[-1]] = value
    return payload


def smallest(schema: Any, depth: int = 0) -> Any:
    """A value that a plain schema accepts. It does not read them all (patterns, say); the server has the last word."""
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        return {}
    for told in ("examples", "enum", "anyOf", "oneOf"):
        if schema.get(told):
            return smallest(schema[told][0], depth + 1) if told.endswith("Of") else schema[told][0]
    for told in ("const", "default"):
        if told in schema:
            return schema[told]
    kinds = schema.get("type", "object")
    kind = kinds if isinstance(kinds, str) else kinds[0]
    if kind == "object":
        known = schema.get("properties") or {}
        return {name: smallest(known.get(name), depth + 1) for name in schema.get("required") or ()}
    if kind == "array":
        return [smallest(schema.get("items"), depth + 1) for _ in range(schema.get("minItems", 0))]
    if kind == "string":
        return TEXT[: schema.get("maxLength", len(TEXT))].ljust(schema.get("minLength", 0), "x")
    if kind in ("integer", "number"):
        return schema.get("minimum", min(1, schema.get("maximum", 1)))
    return True if kind == "boolean" else None


def services_of(protocol: Mapping[str, Any]) -> list[str]:
    """Each service once, in the order of the steps."""
    return list(dict.fromkeys(str(step.get("service")) for step in protocol.get("steps") or ()))
