"""A small schema with one migration of each kind, for tests of how migrations are applied."""

from __future__ import annotations

from lucius.sql.database import Fetch, Run, Script
from lucius.sql.migration import CopyMismatch, Migration, Moved

STEP_ROWS = 3


class CopyNotes:
    """From `notes` to `notes_new`, where texts are in capitals."""

    def total(self) -> Script[int]:
        rows = yield Fetch("SELECT COUNT(*) FROM notes")
        return int(rows[0][0])

    def step(self, position: str | None) -> Script[Moved]:
        rows = yield Fetch(
            "SELECT note_id, body FROM notes WHERE note_id > $1 ORDER BY note_id LIMIT $2",
            (int(position or 0), STEP_ROWS),
        )
        if rows:
            yield Run(
                "INSERT INTO notes_new (note_id, capitals) VALUES ($1, $2)", [(row[0], row[1].upper()) for row in rows]
            )
        return Moved(str(rows[-1][0]) if len(rows) == STEP_ROWS else None, len(rows))

    def compare(self, position: str | None) -> Script[Moved]:
        rows = yield Fetch(
            """SELECT COUNT(*) FROM notes FULL JOIN notes_new ON notes.note_id = notes_new.note_id
                WHERE notes.note_id IS NULL OR notes_new.note_id IS NULL OR UPPER(body) <> capitals"""
        )
        if rows[0][0]:
            raise CopyMismatch(f"{rows[0][0]} notes differ")
        return Moved(None, 0)


FIRST = Migration(1, "notes", ("CREATE TABLE notes (note_id BIGINT PRIMARY KEY, body TEXT NOT NULL)",))
STAGED = Migration(
    2,
    "notes in capitals",
    ("CREATE TABLE notes_new (note_id BIGINT PRIMARY KEY, capitals TEXT NOT NULL)",),
    copy=CopyNotes(),
    swap=("ALTER TABLE notes RENAME TO notes_old", "ALTER TABLE notes_new RENAME TO notes"),
    abandon=("DROP TABLE notes_new",),
    contract=("DROP TABLE notes_old",),
)
ADDITIVE = Migration(3, "authors of notes", ("ALTER TABLE notes ADD COLUMN author TEXT",), oldest_program=2)

AT_1, AT_2, AT_3 = (FIRST,), (FIRST, STAGED), (FIRST, STAGED, ADDITIVE)
