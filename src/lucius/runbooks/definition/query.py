"""What a data source's query may be: one statement that reads. That it only reads is held by the connection, too."""

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
        return "a query is one statement that begins with SELECT or WITH"
    if ";" in statement(query):
        # Even in a text or a comment: where those end is each database's own affair.
        return "a query is one statement: ; may stand at its very end only; where a text needs it, use CHR(59)"
    return None


def statement(query: str) -> str:
    """The query without the semicolon that may end it."""
    return query.strip().removesuffix(";").rstrip()
