"""Checks that a data source's query is one read-only statement. The connection also enforces read-only access."""

from __future__ import annotations

import re

QUERY_CHARS_MAX = 20_000

_COMMENT = re.compile(r"(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)+", re.DOTALL)
_READS = re.compile(r"(?:select|with)\b", re.IGNORECASE)


def query_fault(query: str) -> str | None:
    """Why the query is refused, or None."""
    if len(query) > QUERY_CHARS_MAX:
        return f"the query has {len(query)} characters; at most {QUERY_CHARS_MAX} are allowed"
    comment = _COMMENT.match(query)
    if not _READS.match(query, comment.end() if comment else 0):
        return "a query must be one statement that begins with SELECT or WITH"
    if ";" in statement(query):
        # Even in a string or a comment: where those end differs between databases.
        return "a query must be one statement: ; is only allowed at the very end; inside a string, use CHR(59)"
    return None


def statement(query: str) -> str:
    """The query without a trailing semicolon."""
    return query.strip().removesuffix(";").rstrip()
