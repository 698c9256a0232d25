"""The part of a driver's error that may be shown: nothing that could contain an address, a password or a row.

That is its code and kind, and its message only if it is about the query itself.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from lucius.runbooks.sources.limits import SQLITE_VALUE_BYTES_MAX

_ABOUT_THE_QUERY = "42"
_CANCELLED = "57014"
_READ_ONLY = "25006"
_CHARS_MAX = 200
_WRITES = "the query would write, and sources are read-only"
_SQLITE_WORDS = (
    "no such ",
    "near ",
    "ambiguous column name",
    "incomplete input",
    "unrecognized token",
    "wrong number of arguments",
    "You can only execute one statement",
    "database is locked",
    "database disk image is malformed",
    "file is not a database",
    "unable to open database file",
    "Expression tree is too large",
    "too many terms in compound SELECT",
    "LIKE or GLOB pattern too complex",
)
_CONNECTION_WORDS = (
    "password authentication failed",
    "no password supplied",
    "connection refused",
    "could not translate host name",
    "failed to resolve host",
    "no such file or directory",
    "timeout expired",
    "timed out",
    "too many connections",
    "starting up",
    "does not exist",
    "certificate verify failed",
    "ssl",
)


def reason(fault: BaseException) -> str:
    origin = _origin(fault)
    text = str(origin)
    if isinstance(origin, sqlite3.Error):
        message = text if text.startswith(_SQLITE_WORDS) else ""
        if getattr(origin, "sqlite_errorcode", None) in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
            message = _WRITES
        elif getattr(origin, "sqlite_errorcode", None) == sqlite3.SQLITE_TOOBIG:
            message = f"a value or a row has more than {SQLITE_VALUE_BYTES_MAX} bytes: shorten it in the query"
        code = getattr(origin, "sqlite_errorname", None) or type(origin).__name__
        return _joined(code, message)
    state = _state(origin)
    if state is None:
        message = next((words for words in _CONNECTION_WORDS if words in text.lower()), "")
        return _joined(type(origin).__name__, message)
    message = ""
    if state == _READ_ONLY or "data-modifying statements" in text:
        message = _WRITES
    elif state == _CANCELLED:
        message = "it was cancelled in the database"
    elif state.startswith(_ABOUT_THE_QUERY):
        message = getattr(getattr(origin, "diag", None), "message_primary", None) or ""
    return _joined(f"{type(origin).__name__}, SQLSTATE {state}", message)


def _joined(kind: str, message: str) -> str:
    return f"{message[:_CHARS_MAX]} ({kind})" if message else f"{kind}; run it manually for details"


def _origin(fault: BaseException) -> BaseException:
    """The driver's own error, if SQLAlchemy has wrapped it."""
    origin: Any = getattr(fault, "orig", None)
    return origin if isinstance(origin, BaseException) else fault


def _state(origin: BaseException) -> str | None:
    state = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None)
    return state if isinstance(state, str) else None
