"""A source of each kind, with real files and a real server behind it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lucius.runbooks.sources import sql
from lucius.runbooks.sources.deadline import THREAD_NAME


@pytest.fixture
def members_db(tmp_path: Path) -> Path:
    path = tmp_path / "members 100%.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE members (upn TEXT, moves TEXT, size INTEGER)")
        connection.executemany(
            "INSERT INTO members VALUES (?, ?, ?)",
            [(f"user{number}@contoso.com", "2026-03-15", number) for number in range(5)],
        )
    connection.close()
    return path


@pytest.fixture
def psycopg_url(postgres_url: str) -> str:
    return "postgresql+psycopg" + postgres_url[postgres_url.index("://") :]


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shape of a query is not looked at, so that what the database itself refuses is seen."""
    monkeypatch.setattr(sql, "query_fault", lambda query: None)


@pytest.fixture
def source_threads_end() -> Iterator[None]:
    """After the test, no thread of a read is left."""
    yield
    threads = [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
