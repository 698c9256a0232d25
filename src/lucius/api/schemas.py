"""Builders for the component schemas that are not generated from types."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def text(**extra: Any) -> Schema:
    return {"type": "string", **extra}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def object_(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def list_(item: Schema) -> Schema:
    return {"type": "array", "items": item}
