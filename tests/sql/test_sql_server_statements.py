"""Every statement of runbooks in Transact-SQL: gathered from the source, so that none is forgotten, and parsed.

No SQL Server is at hand: what is shown is that a parser of its dialect takes them, not that a server does.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import ErrorLevel, exp

import lucius.runbooks
from lucius.runbooks.store.data_tables import DataRow, DataTable
from lucius.runbooks.store.executions import SELECT
from lucius.sql.database import Fetch, Run, Script
from lucius.sql.sql_server import NoSqlServerForm, to_sql_server

ROOT = Path(lucius.runbooks.__file__).parent
STATEMENT = re.compile(r"(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE) ")
CONDITION = re.compile(r"[ep]\.\w+ (?:=|IN)(?!.*\?)")
SAMPLE = DataTable("runbook_odd_names_v1", ("UserPrincipalName", "größe (MB)", "a/b-c.d@e#f"))


def statements() -> dict[str, str]:
    """Each statement by where it stands."""
    found: dict[str, str] = {}
    for path in _files():
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = importlib.import_module(".".join(["lucius.runbooks", *(p for p in parts if p != "__init__")]))
        place = "/".join(parts)
        for name, text in _values(vars(module)):
            _add(found, f"{place} {name}", text)
        for line, text in _written(ast.parse(path.read_text("utf-8")), vars(module)):
            _add(found, f"{place} line {line}", text)
    for name, script in _of_data_tables().items():
        found |= {f"data table {name}": sql for sql in _run(script)}
    return found


def unresolved() -> list[str]:
    """Texts that are statements and that hold something which only running code knows."""
    found = []
    for path in _files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr) and _opening(node) and _evaluated(node, _module(path)) is None:
                found.append(str(path.relative_to(ROOT)))
    return found


def _files() -> list[Path]:
    """But for rehearsals, which run in memory and nowhere else."""
    return [path for path in sorted(ROOT.rglob("*.py")) if "rehearsal" not in path.parts]


def _module(path: Path) -> dict[str, Any]:
    parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    return vars(importlib.import_module(".".join(["lucius.runbooks", *parts])))


def _opening(node: ast.JoinedStr) -> bool:
    first = node.values[0]
    return isinstance(first, ast.Constant) and STATEMENT.match(str(first.value)) is not None


def _add(found: dict[str, str], place: str, text: str) -> None:
    if STATEMENT.match(text):
        found[place] = text
    elif CONDITION.match(text):
        # A condition of `executions.select`, which puts it behind one of three.
        for table, select in SELECT.items():
            found[f"{place} on {table}"] = f"{select} WHERE {text}"


def _values(names: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in names.items():
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict) and not name.startswith("__"):
            yield from ((f"{name}[{key}]", text) for key, text in value.items() if isinstance(text, str))
        elif isinstance(value, tuple):
            yield from ((f"{name}[{at}]", text) for at, text in enumerate(value) if isinstance(text, str))


def _written(node: ast.AST, names: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Texts in the source, put together as far as the module's own names go."""
    if isinstance(node, ast.JoinedStr | ast.BinOp) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        text = _evaluated(node, names)
        if text is not None:
            yield node.lineno, text
            return
        if isinstance(node, ast.JoinedStr):
            return
    for child in ast.iter_child_nodes(node):
        yield from _written(child, names)


def _evaluated(node: ast.AST, names: dict[str, Any]) -> str | None:
    """The text that an expression is, where it is made of texts and of the module's names alone."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        value = names.get(node.id)
        return value if isinstance(value, str) else None
    if isinstance(node, ast.FormattedValue):
        return _evaluated(node.value, names)
    if isinstance(node, ast.JoinedStr):
        parts = [_evaluated(part, names) for part in node.values]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [_evaluated(node.left, names), _evaluated(node.right, names)]
    else:
        return None
    return None if None in parts else "".join(map(str, parts))


def _of_data_tables() -> dict[str, Script[Any]]:
    row = DataRow("k", None, ("a", None, "c"), "d")
    return {
        "create": SAMPLE.create(),
        "add": SAMPLE.add([row], 1),
        "change": SAMPLE.change([row], 1),
        "known": SAMPLE.known(),
        "exists": SAMPLE.exists(["k"]),
        "drop": SAMPLE.drop(["k"]),
        "bounds": SAMPLE.bounds(),
        "seen": SAMPLE.seen(1, 2, 3, "moves"),
        "data": SAMPLE.data(["k"]),
    }


def _run(script: Script[Any]) -> list[str]:
    statement: Fetch | Run = next(script)
    script.close()
    return [statement.sql]


POSTGRES_ONLY = re.compile(
    r"\$\d|::|\b(?:ANY|LIMIT|RETURNING|CONFLICT|FOR UPDATE|SKIP LOCKED|BYTEA|BOOLEAN|TRUE|FALSE|GENERATED|ILIKE"
    r"|EXCLUDED|NOW|LATERAL|UNNEST|json_each)\b",
    re.IGNORECASE,
)
ALL = {text: place for place, text in statements().items()}


def parsed(sql: str) -> exp.Expression:
    """The one statement that it is. What the parser does not understand it keeps as a command: that is a failure."""
    trees = sqlglot.parse(sql, dialect="tsql", error_level=ErrorLevel.RAISE)
    assert len(trees) == 1
    tree = trees[0]
    assert isinstance(tree, exp.Expression)
    assert tree.find(exp.Command) is None, sql
    return tree


def without_texts(sql: str) -> str:
    return re.sub(r"'(?:[^']|'')*'|\[[^]]*\]", "''", sql)


def test_the_gathering_finds_what_is_there() -> None:
    kinds = {text.split()[0] for text in ALL}
    assert kinds == {"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE"}
    assert len(ALL) > 120
    folders = {place.split("/")[0] for place in ALL.values() if not place.startswith("data table")}
    assert folders <= {"store", "service"}
    assert len([place for place in ALL.values() if place.startswith("data table")]) == 9


def test_no_statement_is_made_of_what_only_running_code_knows() -> None:
    """But in the store, whose statements are gathered as the running code has them."""
    assert {place.split("/")[0] for place in unresolved()} == {"store"}
    assert unresolved().count("store/data_tables.py") == len(_of_data_tables())


@pytest.mark.parametrize("sql", ALL, ids=ALL.values())
def test_a_statement_parses_as_transact_sql(sql: str) -> None:
    translated = to_sql_server(sql)
    tree = parsed(translated)
    assert not POSTGRES_ONLY.search(without_texts(translated)), translated
    wanted = set(re.findall(r"\$(\d+)", sql))
    assert {str(one.this.this)[1:] for one in tree.find_all(exp.Parameter)} == wanted
    assert {table.name for table in tree.find_all(exp.Table) if table.name} == _tables(sql)


@pytest.mark.parametrize("sql", [text for text in ALL if "LIMIT" in text], ids=lambda sql: ALL[sql])
def test_what_is_limited_is_ordered(sql: str) -> None:
    """SQL Server takes FETCH only after an ORDER BY of the same query."""
    found = [select for select in parsed(to_sql_server(sql)).find_all(exp.Select) if select.args.get("limit")]
    assert len(found) == sql.count("LIMIT")
    for select in found:
        assert isinstance(select.args["limit"], exp.Fetch)
        assert select.args.get("order") is not None
        assert select.args.get("offset") is not None


def _tables(sql: str) -> set[str]:
    names = re.findall(
        r"\b(?:FROM|JOIN|INTO|UPDATE|EXISTS) (?!\()\"?(?:information_schema\.)?(\w+)", without_literals(sql)
    )
    return set(names) - {"SKIP"}


def without_literals(sql: str) -> str:
    return re.sub(r"'[^']*'|FOR UPDATE", "", sql)


# --- The rules, one by one -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("postgres", "server"),
    [
        ("SELECT a FROM t WHERE b = $1 AND c = TRUE", "SELECT a FROM t WHERE b = @p1 AND c = 1"),
        ("SELECT a FROM t WHERE b = 'it''s $1 TRUE'", "SELECT a FROM t WHERE b = N'it''s $1 TRUE'"),
        (
            "SELECT a FROM t WHERE b = ANY($2::bigint[])",
            "SELECT a FROM t WHERE b IN (SELECT value FROM OPENJSON(@p2) WITH (value BIGINT '$'))",
        ),
        (
            "SELECT a FROM t WHERE b = ANY($1::text[])",
            "SELECT a FROM t WHERE b IN (SELECT CAST(value AS NVARCHAR(450)) COLLATE Latin1_General_100_BIN2"
            " FROM OPENJSON(@p1))",
        ),
        (
            "SELECT a FROM t WHERE b = 1 ORDER BY a LIMIT $1 FOR UPDATE SKIP LOCKED",
            "SELECT a FROM t WITH (UPDLOCK, ROWLOCK, READPAST) WHERE b = 1 ORDER BY a"
            " OFFSET 0 ROWS FETCH NEXT @p1 ROWS ONLY",
        ),
        ("SELECT a FROM t WHERE b = 1 FOR UPDATE", "SELECT a FROM t WITH (UPDLOCK, ROWLOCK) WHERE b = 1"),
        (
            "INSERT INTO t (a, b) VALUES ($1, $2) RETURNING id",
            "INSERT INTO t (a, b) OUTPUT inserted.id VALUES (@p1, @p2)",
        ),
        (
            "UPDATE t SET a = $1 WHERE b = $2 RETURNING a, b",
            "UPDATE t SET a = @p1 OUTPUT inserted.a, inserted.b WHERE b = @p2",
        ),
        (
            "INSERT INTO t (a, b) VALUES ($1, 'x') ON CONFLICT (b, a) DO NOTHING",
            "INSERT INTO t (a, b) SELECT @p1, N'x' WHERE NOT EXISTS (SELECT 1 FROM t WITH (UPDLOCK, HOLDLOCK)"
            " WHERE b = N'x' AND a = @p1)",
        ),
        (
            "INSERT INTO t (a, s) VALUES ($1, 'on') ON CONFLICT (a) WHERE s = 'on' DO NOTHING",
            "INSERT INTO t (a, s) SELECT @p1, N'on' WHERE NOT EXISTS (SELECT 1 FROM t WITH (UPDLOCK, HOLDLOCK)"
            " WHERE a = @p1 AND s = N'on')",
        ),
        ('SELECT "größe (MB)" FROM "t"', "SELECT [größe (MB)] FROM [t]"),
        ('SELECT "a]b" FROM t WHERE a = $1::bigint', "SELECT [a]]b] FROM t WHERE a = CAST(@p1 AS BIGINT)"),
        (
            'CREATE TABLE IF NOT EXISTS "t" (a BYTEA, b BOOLEAN, c TEXT, name TEXT)',
            "IF OBJECT_ID(N'[t]', N'U') IS NULL CREATE TABLE [t] (a VARBINARY(MAX), b BIT, c NVARCHAR(MAX),"
            " name NVARCHAR(256) COLLATE Latin1_General_100_BIN2)",
        ),
    ],
)
def test_a_rule(postgres: str, server: str) -> None:
    assert to_sql_server(postgres) == server


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE t SET a = $1 RETURNING a",
        "INSERT INTO t (a) VALUES ($1) ON CONFLICT (a) DO UPDATE SET a = EXCLUDED.a",
        "SELECT a FROM t LIMIT 5",
        "SELECT a FROM t WHERE b = ANY($1)",
        "SELECT a::int FROM t",
        "SELECT a FROM t FOR UPDATE",
        "CREATE TABLE t (a DOUBLE PRECISION)",
    ],
)
def test_what_no_rule_knows_is_refused(sql: str) -> None:
    with pytest.raises(NoSqlServerForm):
        to_sql_server(sql)
