"""Fill a SQLite ledger with finished jobs, whatever its schema: real jobs are the templates, and their rows are cloned.

A row belongs to the template if any of its values holds the template's job id. A clone gets a job id of its own
(UUIDv7, in time order, older than now), a fresh idempotency key, fresh ids for every other UUID of the template, fresh
digests for those in unique columns, and instants (`…_at`) moved to its own time. Nothing else may have the file open.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import apsw

Value = None | int | float | str | bytes
Renderer = Callable[["Clone"], Value]
Plan = tuple[tuple[Value, ...], list[tuple[int, Renderer]]]
"""A row of the template, and which of its values differ from clone to clone."""

TABLES_SKIPPED = re.compile(r"sqlite_|message|bus|inflight|slot|schema|version|migration|webhook")
UUID_TEXT = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
DIGEST_TEXT = re.compile(r"[0-9a-f]{64}|[A-Za-z0-9_-]{43}")
CLONES_PER_COMMIT = 20_000
SPACING_MS = 50
"""Between one clone and the next: a million of them lie within the last 14 hours."""


class PrefillError(Exception):
    """The ledger does not look as expected."""


class Template(NamedTuple):
    job_id: str
    idempotency_key: str


class Clone(NamedTuple):
    """What stands in the place of each of the template's marks, in the same order, and how far its time is moved."""

    texts: list[str]
    blobs: list[bytes]
    shift_ms: int


class Marks(NamedTuple):
    """What is the template's alone, and must differ in every clone: as text, and as bytes."""

    job: uuid.UUID
    key: str
    uuids: list[uuid.UUID]
    digests: list[str | bytes]

    @property
    def texts(self) -> list[str]:
        ids = [self.job, *self.uuids]
        digests = [digest for digest in self.digests if isinstance(digest, str)]
        return [self.key, *(str(old) for old in ids), *(old.hex for old in ids), *digests]

    @property
    def blobs(self) -> list[bytes]:
        digests = [digest for digest in self.digests if isinstance(digest, bytes)]
        return [text.encode() for text in self.texts] + [old.bytes for old in [self.job, *self.uuids]] + digests

    def clone(self, created_ms: int) -> Clone:
        job = uuid7(created_ms)
        fresh = Marks(
            job,
            f"filled-{job.hex}",
            [uuid.UUID(bytes=os.urandom(16)) for _ in self.uuids],
            [fresh_digest(old) for old in self.digests],
        )
        return Clone(fresh.texts, fresh.blobs, created_ms - (self.job.int >> 80))


class Table(NamedTuple):
    name: str
    columns: tuple[str, ...]
    unique: frozenset[str]
    rows: list[tuple[Value, ...]]


class Mould(NamedTuple):
    """A template, ready to be cloned: by table, the statement that adds a row and the rows to add."""

    marks: Marks
    statements: dict[str, str]
    plans: dict[str, list[Plan]]


def uuid7(millis: int) -> uuid.UUID:
    """Version and variant as RFC 9562 lays down; the order within a millisecond does not matter here."""
    bits = int.from_bytes(os.urandom(10), "big")
    return uuid.UUID(int=(millis << 80) | (7 << 76) | (bits >> 68 << 64) | (2 << 62) | (bits & (1 << 62) - 1))


def prefill(database_path: Path, templates: list[Template], jobs: int = 1_000_000) -> dict[str, int]:
    """Add that many clones, of each template in turn; answers how many rows each table got."""
    added: dict[str, int] = {}
    with closing(apsw.Connection(str(database_path))) as database:
        # Durability is not wanted while the file is being made; WAL, as the ledger keeps it, comes back at the end.
        database.pragma("journal_mode", "delete")
        database.pragma("journal_mode", "off")
        database.pragma("synchronous", "off")
        database.pragma("cache_size", -400_000)
        moulds = [make_mould(database, template) for template in templates]
        now_ms = time.time_ns() // 1_000_000
        for first in range(0, jobs, CLONES_PER_COMMIT):
            clones = [
                (mould := moulds[at % len(moulds)], mould.marks.clone(now_ms - (jobs - at) * SPACING_MS))
                for at in range(first, min(first + CLONES_PER_COMMIT, jobs))
            ]
            database.execute("BEGIN EXCLUSIVE")
            for name, statement in moulds[0].statements.items():
                before = database.total_changes()
                database.executemany(statement, render(clones, name))
                added[name] = added.get(name, 0) + database.total_changes() - before
            database.execute("COMMIT")
        database.pragma("synchronous", "full")
        database.pragma("journal_mode", "wal")
    with database_path.open("rb") as file:
        # What is still to be written would be written during the measurement.
        os.fsync(file.fileno())
    return added


def make_mould(database: apsw.Connection, template: Template) -> Mould:
    tables = [table for table in read_tables(database, template) if table.rows]
    if not tables:
        raise PrefillError(f"no row of the ledger holds the job {template.job_id}")
    marks = find_marks(tables, template)
    statements = {table.name: insert_statement(table) for table in tables}
    return Mould(marks, statements, {table.name: row_plans(table, marks) for table in tables})


def read_tables(database: apsw.Connection, template: Template) -> list[Table]:
    names = [str(name) for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return [read_table(database, name, template) for name in names if not TABLES_SKIPPED.search(name)]


def read_table(database: apsw.Connection, name: str, template: Template) -> Table:
    info = list(database.execute(f'PRAGMA table_xinfo("{name}")'))
    keys = [str(column[1]) for column in info if column[5]]
    # A lone INTEGER PRIMARY KEY is the row's number, which SQLite gives out itself.
    numbered = {
        str(column[1]) for column in info if column[5] and len(keys) == 1 and str(column[2]).upper() == "INTEGER"
    }
    columns = tuple(str(column[1]) for column in info if not column[6] and column[1] not in numbered)
    unique = set(keys)
    for index in list(database.execute(f'PRAGMA index_list("{name}")')):
        if index[2]:
            unique |= {str(part[2]) for part in database.execute(f'PRAGMA index_info("{index[1]}")')}
    holds = text_forms(template)
    selected = database.execute(f'SELECT {quoted(columns)} FROM "{name}"')
    rows = [row for row in selected if any(form in as_bytes(value) for value in row for form in holds)]
    return Table(name, columns, frozenset(unique), rows)


def text_forms(template: Template) -> tuple[bytes, bytes, bytes]:
    job = uuid.UUID(template.job_id)
    return str(job).encode(), job.hex.encode(), job.bytes


def as_bytes(value: Value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value) if isinstance(value, bytes | bytearray) else b""


def quoted(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def insert_statement(table: Table) -> str:
    return f'INSERT INTO "{table.name}" ({quoted(table.columns)}) VALUES ({", ".join("?" * len(table.columns))})'


def find_marks(tables: list[Table], template: Template) -> Marks:
    uuids: set[str] = set()
    digests: list[str | bytes] = []
    for table in tables:
        for row in table.rows:
            for column, value in zip(table.columns, row, strict=True):
                uuids |= {match.decode() for match in UUID_TEXT.findall(as_bytes(value))}
                if column in table.unique and is_digest(value) and value not in digests:
                    assert isinstance(value, str | bytes)
                    digests.append(value)
    others = [uuid.UUID(text) for text in sorted(uuids - {template.job_id})]
    return Marks(uuid.UUID(template.job_id), template.idempotency_key, others, digests)


def is_digest(value: Value) -> bool:
    """32 bytes, as they are, in hex or in base64 without padding."""
    if isinstance(value, bytes):
        return len(value) == 32
    return isinstance(value, str) and DIGEST_TEXT.fullmatch(value) is not None


def fresh_digest(old: str | bytes) -> str | bytes:
    fresh = os.urandom(32)
    if isinstance(old, bytes):
        return fresh
    return fresh.hex() if len(old) == 64 else urlsafe_b64encode(fresh).rstrip(b"=").decode()


def row_plans(table: Table, marks: Marks) -> list[Plan]:
    answer = []
    for row in table.rows:
        renderers = [value_renderer(column, value, marks) for column, value in zip(table.columns, row, strict=True)]
        answer.append((row, [(at, renderer) for at, renderer in enumerate(renderers) if renderer is not None]))
    return answer


def value_renderer(column: str, value: Value, marks: Marks) -> Renderer | None:
    if isinstance(value, str):
        texts = [(at, old) for at, old in enumerate(marks.texts) if old in value]
        return text_renderer(value, texts) if texts else None
    if isinstance(value, bytes):
        blobs = [(at, old) for at, old in enumerate(marks.blobs) if old in value]
        return blob_renderer(value, blobs) if blobs else None
    if isinstance(value, int) and column.endswith("_at") and value > 10**12:
        return lambda clone: value + clone.shift_ms
    return None


def text_renderer(value: str, marks: list[tuple[int, str]]) -> Renderer:
    if len(marks) == 1 and marks[0][1] == value:
        only = marks[0][0]
        return lambda clone: clone.texts[only]

    def render_text(clone: Clone) -> str:
        text = value
        for at, old in marks:
            text = text.replace(old, clone.texts[at])
        return text

    return render_text


def blob_renderer(value: bytes, marks: list[tuple[int, bytes]]) -> Renderer:
    def render_blob(clone: Clone) -> bytes:
        blob = value
        for at, old in marks:
            blob = blob.replace(old, clone.blobs[at])
        return blob

    return render_blob


def render(clones: list[tuple[Mould, Clone]], table: str) -> Iterator[tuple[Value, ...]]:
    for mould, clone in clones:
        for row, changing in mould.plans[table]:
            values = list(row)
            for at, renderer in changing:
                values[at] = renderer(clone)
            yield tuple(values)
