"""From PostgreSQL's dialect to SQL Server's, for the statements and tables of runbooks.

Nothing in LUCIUS runs on SQL Server, and no statement made here has ever been run against one. Tests translate every
statement of runbooks and parse the outcome as Transact-SQL; that is all that is known of it. An adapter that builds on
it has to know three things. Arrays are handed over as JSON texts, as SQLite gets them. The session needs
`QUOTED_IDENTIFIER ON` for the filtered indexes. And SQL Server takes `'a'` and `'a '` for equal in any collation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

KEY_TEXT = "NVARCHAR(256) COLLATE Latin1_General_100_BIN2"
"""Texts in a key or an index: SQL Server indexes no `NVARCHAR(MAX)`, and by default no letter case counts for it."""
KEY_COLUMNS = frozenset({"_member_key", "kind", "member_key", "name", "phase_name", "runbook_name", "status"})

_LITERAL = re.compile(r"'(?:[^']|'')*'|\"[^\"]+\"")
_HELD = re.compile(r"\x00(\d+)\x00")

_UPSERT = re.compile(
    r"INSERT INTO (\S+) \(([^()]*)\) VALUES \(([^()]*)\) ON CONFLICT \(([^()]*)\)(?: WHERE (.+?))? DO NOTHING"
)
_LOCK = re.compile(r"( FROM \S+)( WHERE .*?)\s+FOR UPDATE( SKIP LOCKED)?")
_RETURNING_UPDATE = re.compile(r"(UPDATE \w+ SET .*?) (WHERE .*) RETURNING (\w+(?:, \w+)*)")
_CREATE_IF_MISSING = re.compile(r"CREATE TABLE IF NOT EXISTS (\S+)")
_TEXT_COLUMN = re.compile(r"(\w+|\x00\d+\x00) TEXT\b")
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"= ANY\(\$(\d+)::bigint\[\]\)"),
        r"IN (SELECT value FROM OPENJSON(@p\1) WITH (value BIGINT '$'))",
    ),
    (
        re.compile(r"= ANY\(\$(\d+)::text\[\]\)"),
        r"IN (SELECT CAST(value AS NVARCHAR(450)) COLLATE Latin1_General_100_BIN2 FROM OPENJSON(@p\1))",
    ),
    (re.compile(r"\$(\d+)::bigint\b"), r"CAST(@p\1 AS BIGINT)"),
    (re.compile(r"\$(\d+)::text\b"), r"CAST(@p\1 AS NVARCHAR(MAX))"),
    (re.compile(r"\bLIMIT (\$?\w+)"), r"OFFSET 0 ROWS FETCH NEXT \1 ROWS ONLY"),
    (re.compile(r"(INSERT INTO \S+ \([^()]*\)) (VALUES \([^()]*\)) RETURNING (\w+)"), r"\1 OUTPUT inserted.\3 \2"),
    (re.compile(r"BIGINT GENERATED ALWAYS AS IDENTITY"), "BIGINT IDENTITY(1, 1)"),
    (re.compile(r"\bBYTEA\b"), "VARBINARY(MAX)"),
    (re.compile(r"\bBOOLEAN\b"), "BIT"),
    (re.compile(r"\bTRUE\b"), "1"),
    (re.compile(r"\bFALSE\b"), "0"),
    (re.compile(r"\$(\d+)"), r"@p\1"),
)
_LEFT_OVER = re.compile(
    r"\$\d|::|\b(?:ANY|LIMIT|RETURNING|ON CONFLICT|FOR UPDATE|IF NOT EXISTS|BYTEA|BOOLEAN|TEXT|TRUE|FALSE|GENERATED"
    r"|ILIKE|EXCLUDED|USING|NULLS|LATERAL|DOUBLE PRECISION|ARRAY)\b"
)


class NoSqlServerForm(ValueError):
    """The statement says something that these rules do not know how to say to SQL Server."""


@lru_cache(maxsize=512)
def to_sql_server(sql: str) -> str:
    """The statement in Transact-SQL: parsed in tests, never run. Raises `NoSqlServerForm`."""
    held: list[str] = []

    def hold(found: re.Match[str]) -> str:
        held.append(found[0])
        return f"\x00{len(held) - 1}\x00"

    # Texts and quoted names are set aside first: no rule may look into them.
    bare = " ".join(_LITERAL.sub(hold, sql).split())
    for rule in (_absent_only, _locking, _returning_update):
        bare = rule(bare)
    if bare.startswith("CREATE TABLE"):
        bare = _TEXT_COLUMN.sub(_text_column, bare)
    for pattern, replacement in _RULES:
        bare = pattern.sub(replacement, bare)
    bare = _CREATE_IF_MISSING.sub(_if_missing(held), bare)
    left_over = _LEFT_OVER.search(bare)
    if left_over is not None:
        raise NoSqlServerForm(f"no rule for {left_over[0]!r} in: {sql}")
    if "FETCH NEXT" in bare and bare.count("ORDER BY") < bare.count("FETCH NEXT"):
        raise NoSqlServerForm(f"a LIMIT needs an ORDER BY of its own in: {sql}")
    return _HELD.sub(lambda found: _quoted(held[int(found[1])]), bare)


def _absent_only(bare: str) -> str:
    """`ON CONFLICT … DO NOTHING`: insert where there is none yet, and let nobody else insert one meanwhile.

    `IGNORE_DUP_KEY` would do it for whole indexes alone; this form serves the filtered one as well.
    """
    found = _UPSERT.fullmatch(bare)
    if found is None:
        return bare
    table, names, values, key, condition = found.groups()
    value_of = dict(zip(names.split(", "), values.split(", "), strict=True))
    same = [f"{name} = {value_of[name]}" for name in key.split(", ")] + ([condition] if condition else [])
    there = f"SELECT 1 FROM {table} WITH (UPDLOCK, HOLDLOCK) WHERE {' AND '.join(same)}"  # noqa: S608 - constants
    return f"INSERT INTO {table} ({names}) SELECT {values} WHERE NOT EXISTS ({there})"


def _locking(bare: str) -> str:
    """Locks are asked for at the table's name, not at the end."""

    def hinted(found: re.Match[str]) -> str:
        hints = "UPDLOCK, ROWLOCK, READPAST" if found[3] else "UPDLOCK, ROWLOCK"
        return f"{found[1]} WITH ({hints}){found[2]}"

    return _LOCK.sub(hinted, bare)


def _returning_update(bare: str) -> str:
    """What an update returns is named before its condition."""

    def with_output(found: re.Match[str]) -> str:
        columns = ", ".join(f"inserted.{name}" for name in found[3].split(", "))
        return f"{found[1]} OUTPUT {columns} {found[2]}"

    return _RETURNING_UPDATE.sub(with_output, bare)


def _text_column(found: re.Match[str]) -> str:
    return f"{found[1]} {KEY_TEXT if found[1] in KEY_COLUMNS else 'NVARCHAR(MAX)'}"


def _if_missing(held: list[str]) -> Callable[[re.Match[str]], str]:
    def conditional(found: re.Match[str]) -> str:
        name = _HELD.sub(lambda place: _quoted(held[int(place[1])]), found[1])
        text = name.replace("'", "''")
        return f"IF OBJECT_ID(N'{text}', N'U') IS NULL CREATE TABLE {found[1]}"

    return conditional


def _quoted(text: str) -> str:
    """Quoted names in brackets, as the contract writes them; texts as Unicode."""
    if text.startswith("'"):
        return "N" + text
    return f"[{text[1:-1].replace(']', ']]')}]"
