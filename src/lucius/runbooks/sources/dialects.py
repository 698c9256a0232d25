"""What keeps each database from writing and from running on, and what wakes its driver.

SQLite and PostgreSQL are tested against the real thing. For MySQL and MariaDB the statements alone are tested, not a
server. Of any other database it holds that nothing is ever committed. But some know no transactions, and MySQL writes
files in a transaction that reads only: to all but the first two, a query with a word for writing in it is not sent.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lucius.runbooks.sources.deadline import Stop
from lucius.runbooks.sources.files import check_file
from lucius.runbooks.sources.limits import SourceError

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection

BUSY_SECONDS = 5.0
CONNECT_SECONDS_MAX = 10
_CANCEL_SECONDS = 4.0
_PROGRESS_INSTRUCTIONS = 20_000
_CONNECT_TIMEOUT_DRIVERS = ("psycopg", "psycopg2", "pymysql", "mysqldb")
_FENCED = ("sqlite", "postgresql")
_WRITING = re.compile(
    r"\b(?:insert|update|delete|merge|truncate|drop|create|alter|into|exec|execute|call|grant|revoke)\b", re.IGNORECASE
)
_SQLITE_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


def connect_options(driver: str, seconds: float) -> dict[str, Any]:
    if driver not in _CONNECT_TIMEOUT_DRIVERS:
        return {}
    return {"connect_timeout": max(2, min(CONNECT_SECONDS_MAX, int(seconds)))}


def sqlite_options(url: URL, variable: str, own_files: Sequence[Path]) -> tuple[URL, Callable[[], sqlite3.Connection]]:
    """A URL without the path, and what opens the file read-only. Raises SourceError."""
    path = url.database or ""
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise SourceError(f"{variable} names the SQLite driver {url.drivername!r}: write sqlite:///path")
    if path in ("", ":memory:") or path.startswith("file:") or url.query:
        raise SourceError(
            f"{variable} must name an SQLite file by its plain path, without options: sqlite:////data/members.db"
        )
    check_file(Path(path), own_files, variable)
    address = f"file:{quote(str(Path(path).resolve()))}?mode=ro"

    def opened() -> sqlite3.Connection:
        # The thread that stops a query is not the one that began it.
        connection = sqlite3.connect(
            address, uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False
        )
        connection.execute("PRAGMA query_only=ON")
        return connection

    return url.set(database=None), opened


def fence(connection: Connection, stop: Stop, seconds: float) -> None:
    """Makes the session one that reads only and stops by itself, before the query is sent."""
    dialect = connection.dialect
    if dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.set_authorizer(_sqlite_allows)
        # An interrupt that comes between two statements is lost; this is asked all the time.
        driver.set_progress_handler(stop.is_due, _PROGRESS_INSTRUCTIONS)
        return
    for statement in fence_statements(dialect.name, seconds, is_mariadb=bool(getattr(dialect, "is_mariadb", False))):
        connection.exec_driver_sql(statement)


def fence_statements(name: str, seconds: float, *, is_mariadb: bool = False) -> list[str]:
    millis = max(1, round(seconds * 1000))
    if name == "postgresql":
        return ["SET TRANSACTION READ ONLY", f"SET LOCAL statement_timeout = {millis}"]
    if name in ("mysql", "mariadb"):
        limit = f"max_statement_time = {seconds:g}" if is_mariadb else f"max_execution_time = {millis}"
        return ["SET SESSION TRANSACTION READ ONLY", f"SET SESSION {limit}"]
    return []


def unfenced_fault(name: str, query: str) -> str | None:
    """Why a query is not sent to a database that is not wholly kept from writing, or None."""
    if name in _FENCED:
        return None
    word = _WRITING.search(query)
    if word is None:
        return None
    return (
        f"{name} cannot be kept from every kind of writing, so a query for it may not have the word "
        f"{word[0].upper()} in it, not even in a text: make a view in the database and query that"
    )


def wake_of(connection: Connection) -> Callable[[], object]:
    """What ends the driver's wait, from another thread."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        return lambda: driver.interrupt()
    if hasattr(driver, "cancel_safe"):
        return lambda: driver.cancel_safe(timeout=_CANCEL_SECONDS)
    if hasattr(driver, "cancel"):
        return lambda: driver.cancel()
    return connection.invalidate


def _sqlite_allows(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Reading, and nothing else: no ATTACH above all, which would open another file, perhaps one of LUCIUS's own."""
    if action in _SQLITE_ALLOWED:
        return sqlite3.SQLITE_OK
    # A full-text index does these two for itself when it is read.
    if action == sqlite3.SQLITE_PRAGMA and first == "data_version" and second is None:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
