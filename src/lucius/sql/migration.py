"""What a migration consists of, and how one can fail.

A plain migration has only `statements` and is applied in one transaction. A staged one expands the schema beside what
is there, copies rows in small transactions, swaps old and new in one transaction, and leaves the old tables for
`lucius db contract`. See decision 0033.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from msgspec import Struct

from lucius.sql.database import Script


class SchemaError(Exception):
    """The tables cannot be used or changed as requested; the message says what to do."""


class SchemaMismatch(SchemaError):
    """The database is at a schema version that this program cannot work with."""


class ProgramsRunning(SchemaError):
    """Programs are running that could not work with the schema after the change."""


class CopyMismatch(SchemaError):
    """The copied rows differ from the original ones. Nothing was swapped."""


class Moved(NamedTuple):
    position: str | None
    """Where the next step continues; None if nothing is left."""
    rows: int


class Copy(Protocol):
    """Moves rows from the old tables to the new ones. Keeps no state: another process may continue after a crash."""

    def total(self) -> Script[int]:
        """How many rows there are to move."""
        ...

    def step(self, position: str | None) -> Script[Moved]:
        """Move a bounded number of rows. The position is stored in the same transaction as the rows."""
        ...

    def compare(self, position: str | None) -> Script[Moved]:
        """Compare a bounded number of rows once everything is copied. Raises `CopyMismatch`."""
        ...


class Migration(Struct, frozen=True):
    version: int
    name: str
    statements: tuple[str, ...]
    for_sharing: tuple[str, ...] = ()
    """Only where several processes share the database; a single owner keeps this in memory."""
    copy: Copy | None = None
    swap: tuple[str, ...] = ()
    """Puts the new tables in the place of the old ones."""
    abandon: tuple[str, ...] = ()
    """Removes what `statements` made, for an upgrade that is given up before its swap."""
    contract: tuple[str, ...] = ()
    """Removes what only older programs need."""
    oldest_program: int | None = None
    """The oldest program, by its schema version, that can work with the database once this is applied. None: only
    programs that know this migration."""

    @property
    def oldest(self) -> int:
        return self.version if self.oldest_program is None else self.oldest_program

    @property
    def is_staged(self) -> bool:
        return self.copy is not None or bool(self.swap)

    def expand(self, is_shared: bool) -> tuple[str, ...]:
        return self.statements + (self.for_sharing if is_shared else ())
