"""What may be told of a driver's error: that which cannot hold an address, a password or a row.

So it is the error's code and kind, and its words only where the database speaks of the query itself.
"""

from __future__ import annotations

import sqlite3
from typing import Any

_ABOUT_THE_QUERY = "42"
_CANCELLED = "57014"
_READ_ONLY = "25006"
_CHARS_MAX = 200
_WRITES = "the query would do more than read, and sources are read only"
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
        told = text if text.startswith(_SQLITE_WORDS) else ""
        if getattr(origin, "sqlite_errorcode", None) in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
            told = _WRITES
        code = getattr(origin, "sqlite_errorname", None) or type(origin).__name__
        return _joined(code, told)
    state = _state(origin)
    if state is None:
        told = next((words for words in _CONNECTION_WORDS if words in text.lower()), "")
        return _joined(type(origin).__name__, told)
    told = ""
    if state == _READ_ONLY or "data-modifying statements" in text:
        told = _WRITES
    elif state == _CANCELLED:
        told = "somebody cancelled it in the database"
    elif state.startswith(_ABOUT_THE_QUERY):
        told = getattr(getattr(origin, "diag", None), "message_primary", None) or ""
    return _joined(f"{type(origin).__name__}, SQLSTATE {state}", told)


def _joined(kind: str, told: str) -> str:
    return f"{told[:_CHARS_MAX]} ({kind})" if told else f"{kind}; try it by hand to see more"


def _origin(fault: BaseException) -> BaseException:
    """The driver's own error, where SQLAlchemy has wrapped it."""
    origin: Any = getattr(fault, "orig", None)
    return origin if isinstance(origin, BaseException) else fault


def _state(origin: BaseException) -> str | None:
    state = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None)
    return state if isinstance(state, str) else None
