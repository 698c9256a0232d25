"""What `schema_versions` says about a database: which migrations are applied, which one is under way, and which
programs can work with it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from lucius.sql.database import Fetch, Run, Script


class Phase(StrEnum):
    EXPANDED = "EXPANDED"
    """The new tables exist; rows are being copied."""
    COPIED = "COPIED"
    APPLIED = "APPLIED"
    CONTRACTED = "CONTRACTED"
    """What only older programs need is removed."""


_TABLE = """CREATE TABLE IF NOT EXISTS schema_versions (
    version BIGINT PRIMARY KEY, name TEXT NOT NULL,
    oldest_program BIGINT, phase TEXT, position TEXT, rows_copied BIGINT)"""
_ADDED = ("oldest_program BIGINT", "phase TEXT", "position TEXT", "rows_copied BIGINT")
"""Columns that a table of schema version 10 or earlier may lack. Its rows are applied migrations without a phase."""

_COLUMNS_IN_POSTGRES = """SELECT attname FROM pg_attribute
    JOIN pg_class ON pg_class.oid = attrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = current_schema() AND relname = 'schema_versions' AND attnum > 0 AND NOT attisdropped"""
_COLUMNS_IN_SQLITE = "SELECT name FROM pragma_table_info('schema_versions')"
_ROWS = "SELECT version, oldest_program, phase, position, rows_copied FROM schema_versions WHERE version > 0"
_VERSIONS = "SELECT version FROM schema_versions WHERE version > 0"


class VersionRow(NamedTuple):
    version: int
    oldest: int
    phase: Phase
    position: str | None = None
    rows_copied: int = 0

    @property
    def is_applied(self) -> bool:
        return self.phase in (Phase.APPLIED, Phase.CONTRACTED)


class SchemaState(NamedTuple):
    rows: tuple[VersionRow, ...]

    @property
    def version(self) -> int:
        """The latest migration that is applied; 0 if there are no tables."""
        return max((row.version for row in self.rows if row.is_applied), default=0)

    @property
    def underway(self) -> VersionRow | None:
        return next((row for row in self.rows if not row.is_applied), None)

    def row(self, version: int) -> VersionRow | None:
        return next((row for row in self.rows if row.version == version), None)

    def too_new_for(self, program: int) -> str | None:
        """Why a program of this schema version must not use the database, if that is because of a later migration."""
        later = [row for row in self.rows if row.version > program and row.oldest > program]
        if not later:
            return None
        oldest = max(row.oldest for row in later)
        is_at = f"is at schema version {self.version}"
        if self.underway in later:
            is_at = f"is being upgraded to schema version {later[-1].version}"
        return f"{is_at}, which needs a program of version {oldest} or later; this program is at {program}"

    def mismatch(self, program: int) -> str | None:
        """Why a program of this schema version cannot work with the database, and what to do about it."""
        too_new = self.too_new_for(program)
        if too_new is not None:
            return f"{too_new}: upgrade LUCIUS"
        underway = self.underway
        if underway is not None and underway.version <= program:
            return (
                f"is in the middle of the upgrade to schema version {underway.version}: run 'lucius db upgrade' to"
                " complete it, or wait if it is still running"
            )
        if self.version < program:
            return f"is at schema version {self.version}, this program needs {program}: run 'lucius db upgrade'"
        return None


def read_state(is_shared: bool) -> Script[SchemaState]:
    """Only reads: a role that serves need not be allowed to create tables."""
    columns = yield from _columns(is_shared)
    if not columns:
        return SchemaState(())
    if "phase" not in columns:
        rows = yield Fetch(_VERSIONS)
        found = [VersionRow(row[0], row[0], Phase.APPLIED) for row in rows]
    else:
        rows = yield Fetch(_ROWS)
        found = [
            VersionRow(
                row[0], row[0] if row[1] is None else row[1], Phase(row[2] or Phase.APPLIED), row[3], row[4] or 0
            )
            for row in rows
        ]
    return SchemaState(tuple(sorted(found)))


def make_table(is_shared: bool) -> Script[None]:
    """Create `schema_versions`, or add the columns that an earlier version did not have."""
    yield Run(_TABLE)
    columns = yield from _columns(is_shared)
    for column in _ADDED:
        if column.split()[0] not in columns:
            yield Run(f"ALTER TABLE schema_versions ADD COLUMN {column}")


def record(version: int, name: str, oldest: int, phase: Phase) -> Run:
    return Run(
        "INSERT INTO schema_versions (version, name, oldest_program, phase) VALUES ($1, $2, $3, $4)",
        [(version, name, oldest, str(phase))],
    )


def record_copied(version: int, phase: Phase, position: str | None, rows_copied: int) -> Run:
    return Run(
        "UPDATE schema_versions SET phase = $2, position = $3, rows_copied = $4 WHERE version = $1",
        [(version, str(phase), position, rows_copied)],
    )


def record_phase(version: int, phase: Phase, oldest: int) -> Run:
    return Run(
        "UPDATE schema_versions SET phase = $2, oldest_program = $3, position = NULL WHERE version = $1",
        [(version, str(phase), oldest)],
    )


def forget(version: int) -> Run:
    return Run("DELETE FROM schema_versions WHERE version = $1", [(version,)])


def _columns(is_shared: bool) -> Script[set[str]]:
    rows = yield Fetch(_COLUMNS_IN_POSTGRES if is_shared else _COLUMNS_IN_SQLITE)
    return {row[0] for row in rows}
