from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lucius.runbooks.sources.deadline import Stop
from lucius.runbooks.sources.dialects import fence, fence_statements, unfenced_fault, wake_of
from lucius.runbooks.sources.limits import SourceError, SourceLimits
from lucius.runbooks.sources.sql import read_sql


@pytest.mark.parametrize("query", ["SELECT 1; DROP TABLE a", "SELECT ';'", "DELETE FROM a", "", "SELECT '\0'"])
def test_the_shape_of_a_query_is_checked_before_an_address_is_looked_at(query: str) -> None:
    with pytest.raises(SourceError, match="query"):
        read_sql("s3cret", query, "MEMBERS_DB", SourceLimits(), [], Stop(30))


def test_an_address_that_would_commit_by_itself_is_refused() -> None:
    with pytest.raises(SourceError, match="MEMBERS_DB sets autocommit"):
        read_sql("mssql+pyodbc://u:p@h/d?AutoCommit=true", "SELECT 1", "MEMBERS_DB", SourceLimits(), [], Stop(30))


def test_a_word_for_writing_is_not_sent_to_a_database_that_cannot_be_fenced() -> None:
    writing = "WITH a AS (SELECT 1) delete FROM b"
    assert "may not contain the word DELETE" in (unfenced_fault("databricks", writing) or "")
    assert "may not contain the word INTO" in (unfenced_fault("mssql", "SELECT a INTO b FROM c") or "")
    assert unfenced_fault("mssql", "SELECT created, updated, replace(a, 'x', 'y') FROM b") is None
    assert "word INTO" in (unfenced_fault("mysql", "SELECT a FROM b INTO OUTFILE 'c'") or "")
    assert [unfenced_fault(name, writing) for name in ("sqlite", "postgresql")] == [None, None]


def test_mysql_and_mariadb_are_told_to_read_only_and_to_stop() -> None:
    read_only = "SET SESSION TRANSACTION READ ONLY"
    assert fence_statements("mysql", 1.5) == [read_only, "SET SESSION max_execution_time = 1500"]
    assert fence_statements("mysql", 1.5, is_mariadb=True) == [read_only, "SET SESSION max_statement_time = 1.5"]
    assert fence_statements("mariadb", 30, is_mariadb=True) == [read_only, "SET SESSION max_statement_time = 30"]


def test_the_statements_are_sent_and_a_driver_that_cannot_cancel_loses_its_connection() -> None:
    sent: list[str] = []
    connection: Any = SimpleNamespace(
        dialect=SimpleNamespace(name="mysql", is_mariadb=False),
        connection=SimpleNamespace(driver_connection=object()),
        exec_driver_sql=sent.append,
        invalidate=lambda: sent.append("invalidated"),
    )
    fence(connection, Stop(30), 30)
    wake_of(connection)()
    assert sent == [*fence_statements("mysql", 30), "invalidated"]


def test_a_database_that_is_not_known_gets_no_statement() -> None:
    assert fence_statements("mssql", 30) == []
