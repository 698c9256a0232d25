"""A payload's JSON Schema as a table: each field with its type, limits and meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lucius.cli.output.formatting import text_of
from lucius.cli.output.tables import Column, Table

FIELDS_MAX = 200
DEPTH_MAX = 6

RANGES = (("minLength", "maxLength", " characters"), ("minItems", "maxItems", " items"), ("minimum", "maximum", ""))
OTHER_LIMITS = (
    ("exclusiveMinimum", "above {}"),
    ("exclusiveMaximum", "below {}"),
    ("multipleOf", "a multiple of {}"),
    ("pattern", "matching {}"),
    ("format", "format {}"),
)


def schema_table(schema: Any) -> Table | None:
    """The fields of an object's schema; None if it names none."""
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    _add_fields(schema, "", 0, rows, notes)
    if not rows:
        return None
    columns = (Column("Field"), Column("Required"), Column("Type"))
    return Table(columns, rows, "Meaning", notes)


def _add_fields(schema: Any, prefix: str, depth: int, rows: list[tuple[str, ...]], notes: list[str]) -> None:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or depth >= DEPTH_MAX:
        return
    required = schema.get("required") or ()
    for name, field in properties.items():
        if len(rows) >= FIELDS_MAX:
            return
        field = field if isinstance(field, Mapping) else {}
        path = f"{prefix}{name}"
        rows.append((text_of(path), "yes" if name in required else "", text_of(type_text(field))))
        parts = [str(field.get("description") or ""), limits_text(field)]
        notes.append(text_of(" ".join(part for part in parts if part)))
        _add_fields(field, f"{path}.", depth + 1, rows, notes)
        _add_fields(field.get("items"), f"{path}[].", depth + 1, rows, notes)


def type_text(schema: Any) -> str:
    """`string`, `integer or null`, `list of string`, `"text" or "json"`; `any` if no type is given."""
    if not isinstance(schema, Mapping):
        return "any"
    if "const" in schema:
        return _json(schema["const"])
    if isinstance(schema.get("enum"), list):
        return " or ".join(_json(value) for value in schema["enum"])
    for choice in ("anyOf", "oneOf"):
        if isinstance(schema.get(choice), list):
            return " or ".join(dict.fromkeys(type_text(option) for option in schema[choice]))
    kinds = schema.get("type")
    names = kinds if isinstance(kinds, list) else [kinds] if kinds else []
    types = [f"list of {type_text(schema.get('items'))}" if name == "array" else str(name) for name in names]
    return " or ".join(types) or "any"


def limits_text(schema: Mapping[str, Any]) -> str:
    """The schema's constraints beyond the type, in parentheses; for a list, also those of its items."""
    limits = _limits(schema)
    items = schema.get("items")
    if isinstance(items, Mapping):
        limits += [f"each {limit}" for limit in _limits(items)]
    if "default" in schema:
        limits.append(f"default {_json(schema['default'])}")
    return f"({', '.join(limits)})" if limits else ""


def _limits(schema: Mapping[str, Any]) -> list[str]:
    limits = []
    for least, most, unit in RANGES:
        if least in schema and most in schema:
            limits.append(f"{schema[least]} to {schema[most]}{unit}")
        elif least in schema or most in schema:
            limits.append(f"at {'least' if least in schema else 'most'} {schema.get(least, schema.get(most))}{unit}")
    return limits + [words.format(schema[name]) for name, words in OTHER_LIMITS if name in schema]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
