"""Per database: how to make a session read-only and limit its time, and how to interrupt its driver.

SQLite and PostgreSQL are tested against real servers. For MySQL and MariaDB only the statements are tested, without a
server. On every database, nothing is ever committed. But some have no transactions, and MySQL writes files even in a
read-only transaction: except for the first two, queries that contain a keyword for writing are not sent.
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
from lucius.runbooks.sources.limits import SQLITE_VALUE_BYTES_MAX, SourceError

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
_SQLITE_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: SQLITE_VALUE_BYTES_MAX,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 500,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 1_000_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
"""Without these limits a short query such as `zeroblob(1000000000)` could exhaust the memory."""
_SQLITE_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


def connect_options(driver: str, seconds: float) -> dict[str, Any]:
    if driver not in _CONNECT_TIMEOUT_DRIVERS:
        return {}
    return {"connect_timeout": max(2, min(CONNECT_SECONDS_MAX, int(seconds)))}


def sqlite_options(url: URL, variable: str, own_files: Sequence[Path]) -> tuple[URL, Callable[[], sqlite3.Connection]]:
    """A URL without the path, and a function that opens the file read-only. Raises SourceError."""
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
        # The thread that stops a query is not the one that started it.
        connection = sqlite3.connect(
            address, uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False
        )
        connection.execute("PRAGMA query_only=ON")
        for limit, value in _SQLITE_LIMITS.items():
            connection.setlimit(limit, value)
        return connection

    return url.set(database=None), opened


def fence(connection: Connection, stop: Stop, seconds: float) -> None:
    """Make the session read-only and time-limited before the query is sent."""
    dialect = connection.dialect
    if dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.set_authorizer(_sqlite_allows)
        # An interrupt between two statements is lost; the progress handler is called continuously.
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
    """Why a query is not sent to a database that cannot be made fully read-only, or None."""
    if name in _FENCED:
        return None
    word = _WRITING.search(query)
    if word is None:
        return None
    return (
        f"{name} cannot be made fully read-only, so a query for it may not contain the word "
        f"{word[0].upper()}, not even in a string: create a view in the database and query that"
    )


def wake_of(connection: Connection) -> Callable[[], object]:
    """A function that interrupts the driver from another thread."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        return lambda: driver.interrupt()
    if hasattr(driver, "cancel_safe"):
        return lambda: driver.cancel_safe(timeout=_CANCEL_SECONDS)
    if hasattr(driver, "cancel"):
        return lambda: driver.cancel()
    return connection.invalidate


def _sqlite_allows(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow only reads. Above all no ATTACH, which would open another file, perhaps a database of LUCIUS."""
    if action in _SQLITE_ALLOWED:
        return sqlite3.SQLITE_OK
    # Reading a full-text index does these two internally.
    if action == sqlite3.SQLITE_PRAGMA and first == "data_version" and second is None:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
