"""The tables of the console: who is signed in, the links that sign in, saved views, and lanes over the last hour."""

from __future__ import annotations

CONSOLE_TABLES = (
    """CREATE TABLE console_tokens (
        token_hash TEXT PRIMARY KEY, kind TEXT NOT NULL, key_hash TEXT NOT NULL, created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL) /* clustered */""",
    "CREATE INDEX console_tokens_by_end ON console_tokens (expires_at)",
    "CREATE INDEX console_tokens_by_key ON console_tokens (key_hash, kind, created_at)",
)

CONSOLE_PERSONS_AND_VIEWS = (
    "ALTER TABLE console_tokens ADD COLUMN person TEXT",
    """CREATE TABLE console_views (
        owner_hash TEXT NOT NULL, name TEXT NOT NULL, page TEXT NOT NULL, query TEXT NOT NULL,
        created_at BIGINT NOT NULL, PRIMARY KEY (owner_hash, page, name)) /* clustered */""",
    """CREATE TABLE lane_samples (
        minute BIGINT PRIMARY KEY, oldest_seconds TEXT NOT NULL) /* clustered */""",
)
