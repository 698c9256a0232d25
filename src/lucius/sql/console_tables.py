"""The table of the console: who is signed in, and the links that sign in."""

from __future__ import annotations

CONSOLE_TABLES = (
    """CREATE TABLE console_tokens (
        token_hash TEXT PRIMARY KEY, kind TEXT NOT NULL, key_hash TEXT NOT NULL, created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL) /* clustered */""",
    "CREATE INDEX console_tokens_by_end ON console_tokens (expires_at)",
    "CREATE INDEX console_tokens_by_key ON console_tokens (key_hash, kind, created_at)",
)
