"""A database as the program of schema version 10 left it when it was killed: jobs in every state, a batch at work.

`recorded/version_10.json` holds every row of every table, and every job as that program read it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import Any

from lucius.sql import schema
from lucius.sql.database import Database, Fetch, Run, Script

RECORDED = Path(__file__).parent / "recorded" / "version_10.json"
MIGRATIONS_BEFORE = schema.MIGRATIONS[:10]


@cache
def recorded() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(RECORDED.read_text())
    return content


async def make(database: Database) -> None:
    """Fill an empty database with what is recorded."""
    await schema.upgrade(database, MIGRATIONS_BEFORE)

    def script() -> Script[None]:
        for table, content in recorded()["tables"].items():
            if table == "schema_versions":
                continue
            columns, rows = content["columns"], content["rows"]
            if table.startswith("runbook_sample"):
                described = ", ".join(_column(name, value) for name, value in zip(columns, rows[0], strict=True))
                yield Run(f'CREATE TABLE "{table}" ({described})')
            marks = ", ".join(f"${place}" for place in range(1, len(columns) + 1))
            names = ", ".join(f'"{name}"' for name in columns)
            booleans = yield from _booleans(database, table)
            override = " OVERRIDING SYSTEM VALUE" if database.is_shared else ""
            values = [
                [bool(one) if name in booleans else value_of(one) for name, one in zip(columns, row, strict=True)]
                for row in rows
            ]
            yield Run(f'INSERT INTO "{table}" ({names}){override} VALUES ({marks})', values)

    await database.write(script)


def _column(name: str, value: Any) -> str:
    return f'"{name}" {"BIGINT" if isinstance(value, int) else "TEXT"}'


def _booleans(database: Database, table: str) -> Script[set[str]]:
    """The columns that only PostgreSQL has as such."""
    if not database.is_shared:
        return set()
    types = "SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND data_type = 'boolean'"
    return {row[0] for row in (yield Fetch(types, [table]))}


def value_of(value: Any) -> Any:
    return b64decode(value["base64"]) if isinstance(value, dict) else value
