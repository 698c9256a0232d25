"""From PostgreSQL's dialect, in which every statement is written, to SQLite's."""

from __future__ import annotations

import re
from functools import lru_cache

_RULES = (
    (re.compile(r"= ANY\((\$\d+)(?:::\w+\[\])?\)"), r"IN (SELECT value FROM json_each(\1))"),
    (re.compile(r"\s+FOR UPDATE(?: SKIP LOCKED)?"), ""),
    (re.compile(r"::[a-z]+(?:\[\])?"), ""),
    (re.compile(r"BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"), "INTEGER PRIMARY KEY AUTOINCREMENT"),
    (re.compile(r"\bBYTEA\b"), "BLOB"),
    (re.compile(r"\bDOUBLE PRECISION\b"), "REAL"),
    (re.compile(r"/\* clustered \*/"), "WITHOUT ROWID"),
    (re.compile(r"\$(\d+)"), r"?\1"),
)


@lru_cache(maxsize=512)
def to_sqlite(sql: str) -> str:
    for pattern, replacement in _RULES:
        sql = pattern.sub(replacement, sql)
    return sql
