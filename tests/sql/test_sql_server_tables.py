"""The tables of runbooks for SQL Server: every column of the contract, keys that can be keys, names that can be names.

Parsed and compiled, by two libraries; no server has made them.
"""

from __future__ import annotations

import re

import pytest
import sqlglot
from sqlalchemy import BigInteger, Boolean, Column, MetaData, Table
from sqlalchemy.dialects import mssql
from sqlalchemy.schema import CreateTable
from sqlglot import ErrorLevel, exp

from lucius.sql.runbook_tables import RUNBOOK_TABLES
from lucius.sql.sql_server import KEY_COLUMNS, KEY_TEXT, to_sql_server

EXECUTION = """step_name:NVARCHAR step_index:INT worker_id:NVARCHAR function_name:NVARCHAR params_json:NVARCHAR(MAX)
    status:NVARCHAR job_id:NVARCHAR result_json:NVARCHAR(MAX) error_message:NVARCHAR(MAX) dispatched_at:DATETIME2
    completed_at:DATETIME2 is_poll_step:BIT poll_interval_sec:INT poll_timeout_sec:INT poll_started_at:DATETIME2
    last_polled_at:DATETIME2 poll_count:INT"""
CONTRACT = {
    "runbooks": """id:INT name:NVARCHAR version:INT yaml_content:NVARCHAR(MAX) data_table_name:NVARCHAR is_active:BIT
        overdue_behavior:NVARCHAR ignore_overdue_applied:BIT rerun_init:BIT created_at:DATETIME2""",
    "batches": """id:INT runbook_id:INT batch_start_time:DATETIME2 status:NVARCHAR detected_at:DATETIME2
        init_dispatched_at:DATETIME2""",
    "batch_members": """id:INT batch_id:INT member_key:NVARCHAR status:NVARCHAR added_at:DATETIME2
        removed_at:DATETIME2 add_dispatched_at:DATETIME2 remove_dispatched_at:DATETIME2""",
    "phase_executions": """id:INT batch_id:INT phase_name:NVARCHAR offset_minutes:INT due_at:DATETIME2
        runbook_version:INT status:NVARCHAR dispatched_at:DATETIME2 completed_at:DATETIME2""",
    "step_executions": f"id:INT phase_execution_id:INT batch_member_id:INT {EXECUTION}",
    "init_executions": f"id:INT batch_id:INT runbook_version:INT {EXECUTION}",
}
"""Tables and columns, as the contract has them."""
HERE = {"INT": "BIGINT", "DATETIME2": "BIGINT"}
"""Numbers have 64 bits, and instants are milliseconds in one."""


FILTER = {exp.And, exp.Column, exp.EQ, exp.Identifier, exp.In, exp.Is, exp.Literal, exp.National, exp.Not, exp.Null}
"""`NOT` stands for `IS NOT NULL` alone."""


def tree_of(sql: str) -> exp.Create:
    tree = sqlglot.parse_one(to_sql_server(sql), dialect="tsql", error_level=ErrorLevel.RAISE)
    assert isinstance(tree, exp.Create)
    return tree


CREATED = [tree_of(sql) for sql in RUNBOOK_TABLES]
TABLES = {tree.this.this.name: tree for tree in CREATED if tree.kind == "TABLE"}
INDEXES = [tree.this for tree in CREATED if tree.kind == "INDEX"]


def columns_of(table: str) -> dict[str, exp.ColumnDef]:
    return {one.name: one for one in TABLES[table].find_all(exp.ColumnDef)}


def type_of(column: exp.ColumnDef) -> str:
    return str(column.args["kind"].sql("tsql"))


@pytest.mark.parametrize("table", CONTRACT)
def test_a_table_has_every_column_of_the_contract(table: str) -> None:
    columns = columns_of(table)
    for one in CONTRACT[table].split():
        name, _, kind = one.partition(":")
        wanted = HERE.get(kind, kind)
        assert type_of(columns[name]).startswith(wanted), name


def test_a_column_that_is_indexed_or_unique_can_be() -> None:
    """SQL Server indexes no column without a length; and in keys letter case counts, as in the other databases."""
    in_keys: set[tuple[str, str]] = set()
    for name, tree in TABLES.items():
        for key in tree.find_all(exp.UniqueColumnConstraint, exp.PrimaryKey):
            in_keys |= {(name, part.name) for part in key.find_all(exp.Identifier)}
        in_keys |= {(name, one.name) for one in columns_of(name).values() if one.find(exp.PrimaryKeyColumnConstraint)}
    for index in INDEXES:
        in_keys |= {(index.args["table"].name, one.name) for one in index.args["params"].find_all(exp.Column)}
    texts = {(table, name) for table, name in in_keys if type_of(columns_of(table)[name]).startswith("NVARCHAR")}
    assert len(texts) > 8
    for table, name in texts:
        assert name in KEY_COLUMNS, f"{table}.{name}"
        assert type_of(columns_of(table)[name]) == "NVARCHAR(256)"
        assert columns_of(table)[name].find(exp.CollateColumnConstraint) is not None
    assert KEY_TEXT.startswith("NVARCHAR(256) COLLATE")


def test_every_condition_of_an_index_is_one_that_a_filter_may_have() -> None:
    """Comparisons and IN lists joined by AND; a filtered index takes neither OR nor NOT nor a function."""
    filters = [index.args["params"].args.get("where") for index in INDEXES]
    filters = [one for one in filters if one is not None]
    assert len(filters) > 15
    for one in filters:
        kinds = {type(part) for part in one.this.walk()}
        assert kinds <= FILTER, one.sql("tsql")


def test_no_name_is_a_reserved_word_of_sql_server() -> None:
    """As SQLAlchemy knows them: it would put such a name in brackets."""
    preparer = mssql.dialect().identifier_preparer
    names = {name for table in TABLES for name in (table, *columns_of(table))}
    names |= {index.name for index in INDEXES}
    assert {name for name in names if preparer.quote(name) != name} == set()
    assert preparer.quote("user") == "[user]"


@pytest.mark.parametrize("name", TABLES)
def test_sqlalchemy_writes_the_same_columns(name: str) -> None:
    """A second opinion on names, types and what may be null."""
    kinds = {"BIGINT": BigInteger, "BIT": Boolean, "NVARCHAR": mssql.NVARCHAR, "VARBINARY": mssql.VARBINARY("max")}
    columns = [
        Column(
            column,
            kinds[type_of(one).partition("(")[0]],
            primary_key=one.find(exp.PrimaryKeyColumnConstraint) is not None,
            nullable=one.find(exp.NotNullColumnConstraint) is None,
        )
        for column, one in columns_of(name).items()
    ]
    compiled = str(CreateTable(Table(name, MetaData(), *columns)).compile(dialect=mssql.dialect()))
    theirs = sqlglot.parse_one(compiled, dialect="tsql", error_level=ErrorLevel.RAISE)
    found = {one.name: type_of(one) for one in theirs.find_all(exp.ColumnDef)}
    assert found.keys() == columns_of(name).keys()
    for column, kind in found.items():
        ours = type_of(columns_of(name)[column])
        assert kind.partition("(")[0] == ours.partition("(")[0], column


def test_every_table_and_index_is_made() -> None:
    text = " ".join(RUNBOOK_TABLES)
    assert len(TABLES) == len(re.findall(r"CREATE TABLE", text))
    assert len(INDEXES) == len(re.findall(r"CREATE (?:UNIQUE )?INDEX", text))
