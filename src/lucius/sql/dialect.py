"""From PostgreSQL's dialect, in which every statement is written, to SQLite's.

SQLite's library gives up Python's interpreter lock for every step of a statement, and whoever gave it up waits for it.
One step a row would mean one such wait a row; so statements over many rows are rewritten to take many in one step.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_RULES = (
    (re.compile(r"= ANY\((\$\d+)(?:::\w+\[\])?\)"), r"IN (SELECT value FROM json_each(\1))"),
    (
        re.compile(r"CROSS JOIN LATERAL json_array_elements\(([^()]*)\) WITH ORDINALITY AS (\w+) \(value, place\)"),
        r"JOIN json_each(\1) AS \2",
    ),
    (re.compile(r"\((\w+)\.place - 1\)"), r"\1.key"),
    # No order inside an aggregate before 3.44: the statement must read along an index that has it.
    (re.compile(r"\bSTRING_AGG\((.*?), ''(?: ORDER BY [\w.]+)?\)"), r"GROUP_CONCAT(\1, '')"),
    (re.compile(r"\bSTRING_AGG\(([\w.]+), ','\)"), r"GROUP_CONCAT(\1, ',')"),
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


CHUNKS = (64, 32, 16, 8, 4, 2)
"""Rows in one statement: few sizes, so that the prepared statements stay few."""

_INSERT = re.compile(r"(INSERT INTO .* VALUES )(\([^()]*\))((?: ON CONFLICT .*)?)", re.DOTALL)
_UPDATE = re.compile(r"(UPDATE [\w\"]+ SET .*?)( WHERE .*)", re.DOTALL)
_ARGUMENT = re.compile(r"\$(\d+)")


@lru_cache(maxsize=512)
def for_many_rows(sql: str, count: int) -> str | None:
    """The statement for `count` rows of arguments, laid end to end; None if it has no such form."""
    insert = _INSERT.fullmatch(sql)
    if insert is not None:
        group = _ARGUMENT.sub("?", insert[2])
        return to_sqlite(f"{insert[1]}{', '.join([group] * count)}{insert[3]}")
    update = _UPDATE.fullmatch(sql)
    if update is None or "RETURNING" in sql:
        return None
    width = max(int(number) for number in _ARGUMENT.findall(sql))
    names = ", ".join(f"a{place}" for place in range(1, width + 1))
    group = f"({', '.join('?' * width)})"
    rows = ", ".join([group] * count)
    head, tail = (_ARGUMENT.sub(r"given.a\1", part) for part in update.groups())
    return to_sqlite(f"WITH given ({names}) AS (VALUES {rows}) {head} FROM given{tail}")


@lru_cache(maxsize=512)
def for_all_rows(sql: str, types: tuple[str, ...]) -> str | None:
    """The statement for any number of rows at once on PostgreSQL, an array for each argument; None if it has none."""
    names = ", ".join(f"a{place}" for place in range(1, len(types) + 1))
    arrays = ", ".join(f"${place}::{name}[]" for place, name in enumerate(types, 1))
    given = f"FROM unnest({arrays}) AS given ({names})"
    insert = _INSERT.fullmatch(sql)
    if insert is not None:
        return f"{insert[1].removesuffix('VALUES ')}SELECT {_given(insert[2][1:-1])} {given}{insert[3]}"
    update = _UPDATE.fullmatch(sql)
    if update is None or "RETURNING" in sql:
        return None
    return f"{_given(update[1])} {given}{_given(update[2])}"


def _given(part: str) -> str:
    return _ARGUMENT.sub(r"given.a\1", part)


class Part(NamedTuple):
    """One statement of several that become one."""

    sql: str
    arguments: int
    returns_rows: bool
    is_check: bool = False
    """Its only row and column say whether anything may be written."""


CHECK_FAILED = "LUCIUS: another process was faster, so this is not written and will be tried anew"
"""What PostgreSQL says, and writes into its log, as the value of which it cannot make a number."""


@lru_cache(maxsize=1024)
def in_one_statement(parts: tuple[Part, ...]) -> str:
    """All of them as one statement of PostgreSQL, with their arguments laid end to end. Its only row has an array of
    rows for each part that returns some. Those parts and the checks are run first, then what else there is, in the
    order of the parts: PostgreSQL begins with the last of the writes that nothing refers to."""
    tables, arrays, checks, given = [], [], [], 0
    for place, part in enumerate(parts):
        tables.append(f"p{place} AS ({_shifted(part.sql, given)})")
        if part.returns_rows:
            arrays.append(f"ARRAY(SELECT ROW(p{place}.*) FROM p{place})")  # noqa: S608 - of names made here
        if part.is_check:
            checks.append(f"(SELECT * FROM p{place})")  # noqa: S608 - of names made here
        given += part.arguments
    if checks:
        arrays.append(f"CAST(CASE WHEN {' AND '.join(checks)} THEN '1' ELSE '{CHECK_FAILED}' END AS integer)")
    return f"WITH {', '.join(reversed(tables))} SELECT {', '.join(arrays) or '1'}"


def _shifted(sql: str, by: int) -> str:
    return _ARGUMENT.sub(lambda found: f"${int(found[1]) + by}", sql) if by else sql
