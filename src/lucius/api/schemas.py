"""The words that component schemas are put together from."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def text(**extra: Any) -> Schema:
    return {"type": "string", **extra}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def object_(required: dict[str, Schema], optional: dict[str, Schema] | None = None, **extra: Any) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties, **extra}


def list_(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


MOMENT = text(format="date-time", examples=["2026-01-31T08:15:30.250Z"])
WHOLE: Schema = {"type": "integer", "minimum": 0}


def page(item: str, **more: Schema) -> Schema:
    return object_({"items": list_(ref(item)), "next": or_null(text()), **more})
