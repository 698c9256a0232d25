"""A payload's JSON Schema, told to people: each field with its type, its limits and what it means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lucius.cli.tables import Column, Table
from lucius.cli.wording import text_of

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
    """The fields of an object's schema; None where it has none to name."""
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    _add_fields(schema, "", 0, rows, notes)
    if not rows:
        return None
    columns = (Column("Field"), Column("Required"), Column("Type"))
    return Table(columns, rows, "Meaning", notes)


def _add_fields(schema: Any, before: str, depth: int, rows: list[tuple[str, ...]], notes: list[str]) -> None:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or depth >= DEPTH_MAX:
        return
    required = schema.get("required") or ()
    for name, field in properties.items():
        if len(rows) >= FIELDS_MAX:
            return
        field = field if isinstance(field, Mapping) else {}
        path = f"{before}{name}"
        rows.append((text_of(path), "yes" if name in required else "", text_of(type_text(field))))
        parts = [str(field.get("description") or ""), limits_text(field)]
        notes.append(text_of(" ".join(part for part in parts if part)))
        _add_fields(field, f"{path}.", depth + 1, rows, notes)
        _add_fields(field.get("items"), f"{path}[].", depth + 1, rows, notes)


def type_text(schema: Any) -> str:
    """`string`, `integer or null`, `list of string`, `"text" or "json"`; `any` where nothing is said."""
    if not isinstance(schema, Mapping):
        return "any"
    if "const" in schema:
        return _json(schema["const"])
    if isinstance(schema.get("enum"), list):
        return " or ".join(_json(one) for one in schema["enum"])
    for choice in ("anyOf", "oneOf"):
        if isinstance(schema.get(choice), list):
            return " or ".join(dict.fromkeys(type_text(one) for one in schema[choice]))
    kinds = schema.get("type")
    names = kinds if isinstance(kinds, list) else [kinds] if kinds else []
    told = [f"list of {type_text(schema.get('items'))}" if name == "array" else str(name) for name in names]
    return " or ".join(told) or "any"


def limits_text(schema: Mapping[str, Any]) -> str:
    """What the schema asks beyond the type, in brackets; for a list, also of its items."""
    told = _limits(schema)
    items = schema.get("items")
    if isinstance(items, Mapping):
        told += [f"each {one}" for one in _limits(items)]
    if "default" in schema:
        told.append(f"{_json(schema['default'])} if left out")
    return f"({', '.join(told)})" if told else ""


def _limits(schema: Mapping[str, Any]) -> list[str]:
    told = []
    for least, most, unit in RANGES:
        if least in schema and most in schema:
            told.append(f"{schema[least]} to {schema[most]}{unit}")
        elif least in schema or most in schema:
            told.append(f"at {'least' if least in schema else 'most'} {schema.get(least, schema.get(most))}{unit}")
    return told + [words.format(schema[name]) for name, words in OTHER_LIMITS if name in schema]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
