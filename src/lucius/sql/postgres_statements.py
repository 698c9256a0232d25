"""Statements of scripts, run on a connection to PostgreSQL in as few round trips as the driver allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from lucius.sql.database import Check, Fetch, Row, Run, RunAgain, Together
from lucius.sql.dialect import Part, for_all_rows, in_one_statement

MANY_ROWS = 8
"""From so many rows on, one statement over arrays is cheaper than one a row."""

_types: dict[str, tuple[str, ...] | None] = {}
"""Of the arguments of statements that were run for many rows at once; None if one of them is a list itself."""


async def run(connection: Any, statement: Fetch | Run | Together) -> Sequence[Row]:
    if isinstance(statement, Fetch):
        rows: Sequence[Row] = await connection.fetch(statement.sql, *statement.args)
        return rows
    if isinstance(statement, Together):
        if not statement.is_alone:
            return await _run_together(connection, statement.statements)
        try:
            return await _run_together(connection, statement.statements, in_one=True)
        except (asyncpg.InvalidTextRepresentationError, asyncpg.UniqueViolationError) as error:
            raise RunAgain(str(error)) from error
    if statement.rows == ((),):
        await connection.execute(statement.sql)
    else:
        await _run_many(connection, statement)
    return ()


async def _run_many(connection: Any, statement: Run) -> None:
    sql, rows = statement.sql, statement.rows
    if statement.in_one_statement and len(rows) >= MANY_ROWS:
        whole = await _for_all_rows(connection, sql)
        if whole is not None:
            await connection.execute(whole, *map(list, zip(*rows, strict=True)))
            return
    await connection.executemany(sql, rows)


async def _for_all_rows(connection: Any, sql: str) -> str | None:
    if sql not in _types:
        parameters = (await connection.prepare(sql)).get_parameters()
        has_lists = any(parameter.kind == "array" for parameter in parameters)
        _types[sql] = None if has_lists else tuple(parameter.name for parameter in parameters)
    types = _types[sql]
    return None if types is None else for_all_rows(sql, types)


async def _run_together(
    connection: Any, statements: Sequence[Fetch | Run | Check], in_one: bool = False
) -> list[Sequence[Row]]:
    """As one statement, but for writes that have no form for many rows, or that must lock rows in their order. With
    `in_one` such a write means that nothing is run."""
    parts: list[Part] = []
    args: list[Any] = []
    reads: list[int] = []
    for place, statement in enumerate(statements):
        if isinstance(statement, Fetch):
            parts.append(Part(statement.sql, len(statement.args), returns_rows=True))
            args += statement.args
            reads.append(place)
            continue
        if isinstance(statement, Check):
            parts.append(Part(statement.sql, len(statement.args), returns_rows=False, is_check=True))
            args += statement.args
            continue
        sql, rows = statement.sql, statement.rows
        keeps_order = statement.in_one_statement or sql.startswith("INSERT")
        whole = await _for_all_rows(connection, sql) if keeps_order else None
        if whole is not None:
            columns = [list(column) for column in zip(*rows, strict=True)]
            parts.append(Part(whole, len(columns), returns_rows=False))
            args += columns
        elif len(rows) == 1:
            parts.append(Part(sql, len(rows[0]), returns_rows=False))
            args += rows[0]
        elif in_one:
            raise RunAgain(f"not one statement for several rows: {sql}")
        else:
            await connection.executemany(sql, rows)
    answers: list[Sequence[Row]] = [()] * len(statements)
    if parts:
        (found,) = await connection.fetch(in_one_statement(tuple(parts)), *args)
        if reads:
            for place, rows in zip(reads, found[: len(reads)], strict=True):
                answers[place] = rows
    return answers
