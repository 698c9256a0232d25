"""SQL text stands in the packages that are for it, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import lucius

ROOT = Path(lucius.__file__).parent
PLACES = ("sql/", "ledgers/sql/", "buses/sql/", "runbooks/store/", "notifications/")
ELSEWHERE = {
    "platform/sqlite_store.py": "the platform kit imports nothing of LUCIUS and has a SQLite file of its own",
    "runbooks/sources/": "statements about the databases of others, in their dialects",
}
STATEMENT = re.compile(
    r"\s*(?:SELECT\s.+\sFROM\s|SELECT \d|INSERT INTO\s|UPDATE\s+\S+\s+SET\s|DELETE FROM\s"
    r"|CREATE (?:UNIQUE )?(?:TABLE|INDEX)\s|ALTER TABLE\s|DROP (?:TABLE|INDEX)\s|TRUNCATE\s|PRAGMA\s)",
    re.DOTALL,
)
FRAGMENT = re.compile(r"(?:=|<|>|\bIN|\bANY\(|\bLIMIT)\s*\$\d|\bORDER BY \w|\bLIKE '")


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text of a module but its docstrings, with `{}` for what only running code knows."""
    if isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant):
        return
    if isinstance(tree, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in tree.values)
        yield tree.lineno, "".join(parts)
        return
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree.lineno, tree.value
    for child in ast.iter_child_nodes(tree):
        yield from texts(child)


def sql_texts(source: str) -> list[int]:
    return [line for line, text in texts(ast.parse(source)) if STATEMENT.match(text) or FRAGMENT.search(text)]


def test_sql_text_is_found() -> None:
    source = '''
def f(table):
    """SELECT in a docstring FROM nobody."""
    a = "SELECT id FROM jobs"
    b = f"UPDATE {table} SET status = 'x'"
    c = "e.batch_id = $1 ORDER BY e.id"
    d = "error_message LIKE 'init step %'"
    e = "select a plan from the list"
'''
    assert sql_texts(source) == [4, 5, 6, 7]


def test_sql_text_stands_only_where_sql_belongs() -> None:
    allowed = (*PLACES, *ELSEWHERE)
    found = {
        f"{place}:{line}"
        for path in sorted(ROOT.rglob("*.py"))
        if not (place := path.relative_to(ROOT).as_posix()).startswith(allowed)
        for line in sql_texts(path.read_text("utf-8"))
    }
    assert found == set()


def test_every_place_has_sql_text() -> None:
    """A place that has none any more is to be taken off the list."""
    with_sql = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if sql_texts(path.read_text("utf-8"))]
    for place in (*PLACES, *ELSEWHERE):
        assert any(path.startswith(place) for path in with_sql), place
