"""The commands of a run: one template, and for each command its own key, correlation id and tenant."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INPUT_REF = "s3://load.invalid/input"
OUTPUT_REF = "s3://load.invalid/output"
OUTPUT_NAME = "load-output.json"
"""Every job of a tenant writes the same file, so that a run leaves one file behind and not thousands."""
TEXT = "load"
DEPTH_MAX = 16

Json = dict[str, Any]


@dataclass(frozen=True)
class Files:
    """Refs that services on this machine can open: an input for all, and an output in each tenant's folder."""

    input_path: Path
    tenants_folder: Path

    def refs(self, tenant_id: str) -> tuple[str, str]:
        return self.input_path.as_uri(), (self.tenants_folder / tenant_id / OUTPUT_NAME).as_uri()


class Commands:
    """Numbered from 1. The number is in the correlation id, by which a simulated service recognizes its directive."""

    def __init__(self, template: Mapping[str, Any], tenants: int | None, files: Files | None = None) -> None:
        self._template = dict(template)
        self._tenants = tenants
        self._files = files
        # The run's name is unique, whatever the seed: a repeated key would be the same job.
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
        if self._files is not None:
            made["input_ref"], made["output_ref"] = self._files.refs(str(made["tenant_id"]))
        return made

    def body(self, number: int) -> bytes:
        return json.dumps(self.envelope(number), ensure_ascii=False, separators=(",", ":")).encode()

    def number_of(self, correlation_id: object) -> int | None:
        """The number of the command that a directive belongs to; None if it is from another run."""
        if not isinstance(correlation_id, str) or not correlation_id.startswith(self._prefix):
            return None
        number = correlation_id.removeprefix(self._prefix)
        return int(number) if number.isdecimal() else None


def built_in(request_type: str, protocol: Mapping[str, Any]) -> Json:
    """A small command that the protocol should accept, with refs that cannot be opened unless `Files` replace them."""
    return {
        "schema_version": "1",
        "tenant_id": "load-1",
        "request_type": request_type,
        "input_ref": INPUT_REF,
        "output_ref": OUTPUT_REF,
        "payload": smallest_payload(protocol),
    }


def smallest_payload(protocol: Mapping[str, Any]) -> Json:
    """The minimum that each step's schema requires, at the place where the step reads it."""
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
    """A value that a simple schema accepts. Some keywords are not supported (patterns, say); the server decides."""
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        return {}
    for keyword in ("examples", "enum", "anyOf", "oneOf"):
        if schema.get(keyword):
            return smallest(schema[keyword][0], depth + 1) if keyword.endswith("Of") else schema[keyword][0]
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
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
    """Each service once, in step order."""
    return list(dict.fromkeys(str(step.get("service")) for step in protocol.get("steps") or ()))
