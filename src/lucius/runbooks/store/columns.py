"""Builds statements from a record's fields, so that columns and values match by name.

A record is a struct. Its fields are declared once; a `SELECT` lists the columns in the order of the fields, which makes
`Record(*row)` correct whatever that order is, and an `INSERT` takes the values in the same order (`values_of`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import astuple

values_of = astuple


def columns_of(record: type[Struct], named: Mapping[str, str], alias: str = "") -> str:
    """The columns of a record. `named` maps fields whose column has another name."""
    prefix = f"{alias}." if alias else ""
    return ", ".join(named.get(field) or f"{prefix}{field}" for field in record.__struct_fields__)


def insert_of(
    table: str,
    record: type[Struct],
    named: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
) -> str:
    """An `INSERT` of a record; `constants` are columns that begin with the same value in every row, in SQL."""
    fields, fixed = record.__struct_fields__, constants or {}
    names = [(named or {}).get(field, field) for field in fields]
    marks = [f"${place}" for place in range(1, len(fields) + 1)]
    return f"INSERT INTO {table} ({', '.join([*names, *fixed])}) VALUES ({', '.join([*marks, *fixed.values()])})"
