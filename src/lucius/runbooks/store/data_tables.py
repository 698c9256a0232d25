"""Dynamic data tables: one per runbook version, with a column for each column of the data source.

Names come from outside, so `definition.names` checks them and they are quoted; no other outside text reaches SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.ports.database import Fetch, Run, Script
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.definition.names import columns_faults, quoted
from lucius.runbooks.core.records import BY_HAND, FROM_SOURCE

SYSTEM_COLUMNS = ("_member_key", "_batch_time", "_first_seen_at", "_last_seen_at", "_is_current", "_digest", "_origin")

_TABLES = (
    "SELECT data_table_name, columns_json FROM runbooks WHERE name = $1 AND version <= $2 AND columns_json IS NOT NULL"
    " ORDER BY version DESC"
)
_SET_COLUMNS = "UPDATE runbooks SET columns_json = $2 WHERE id = $1 AND columns_json IS NULL"
_COLUMNS = "SELECT columns_json FROM runbooks WHERE id = $1"
COLUMNS_OF_TABLE = (
    "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1"
    " ORDER BY ordinal_position"
)
"""Only where the database is shared, which is PostgreSQL."""

Data = Mapping[str, Any]
"""A member's columns; multi-valued ones are lists."""


class DataRow(Struct, frozen=True):
    key: str
    batch_time: Instant | None
    values: tuple[str | None, ...]
    digest: str


class DataTable:
    """One table, by name and columns."""

    def __init__(self, name: str, columns: Sequence[str], is_own: bool = True) -> None:
        """`is_own`: made by LUCIUS, and not by a scheduler that knows only the contract."""
        faults = columns_faults(columns)
        if faults:
            raise ValueError("; ".join(faults))
        self.columns = tuple(columns)
        self.is_own = is_own
        self._name = quoted(name)
        self._quoted = [quoted(column) for column in columns]

    def create(self) -> Script[None]:
        own = "".join(f", {column} TEXT" for column in self._quoted)
        yield Run(
            f"CREATE TABLE IF NOT EXISTS {self._name} (_row_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            " _member_key TEXT NOT NULL UNIQUE, _batch_time BIGINT, _first_seen_at BIGINT NOT NULL,"
            " _last_seen_at BIGINT NOT NULL, _is_current BOOLEAN NOT NULL, _digest TEXT NOT NULL,"
            f" _origin TEXT NOT NULL{own})"
        )

    def add(self, rows: Iterable[DataRow], now: Instant, origin: str = FROM_SOURCE) -> Script[None]:
        names = ", ".join([*SYSTEM_COLUMNS, *self._quoted])
        marks = ", ".join(f"${place}" for place in range(1, len(SYSTEM_COLUMNS) + len(self.columns) + 1))
        values = [(r.key, r.batch_time, now, now, True, r.digest, origin, *r.values) for r in rows]
        if values:
            yield Run(
                f"INSERT INTO {self._name} ({names}) VALUES ({marks}) ON CONFLICT (_member_key) DO NOTHING",
                values,
            )

    def change(self, rows: Iterable[DataRow], now: Instant, origin: str = FROM_SOURCE) -> Script[None]:
        """New values for existing members."""
        sets = "".join(f", {column} = ${place}" for place, column in enumerate(self._quoted, 6))
        values = [(r.key, r.batch_time, now, r.digest, origin, *r.values) for r in rows]
        if values:
            yield Run(
                f"UPDATE {self._name} SET _batch_time = $2, _last_seen_at = $3, _is_current = TRUE, _digest = $4,"
                f" _origin = $5{sets} WHERE _member_key = $1",
                values,
            )

    def known(self) -> Script[dict[str, tuple[str, Instant | None, bool]]]:
        """Digest, batch time and whether it is current, of every member that came from the source."""
        rows = yield Fetch(
            f"SELECT _member_key, _digest, _batch_time, _is_current FROM {self._name} WHERE _origin = $1",
            [FROM_SOURCE],
        )
        return {row[0]: (row[1], row[2], bool(row[3])) for row in rows}

    def exists(self, keys: Sequence[str]) -> Script[set[str]]:
        rows = yield Fetch(
            f"SELECT _member_key FROM {self._name} WHERE _member_key = ANY($1::text[])",
            [list(keys)],
        )
        return {row[0] for row in rows}

    def drop(self, keys: Sequence[str]) -> Script[None]:
        """These members are no longer in the source; their last values stay."""
        if keys:
            yield Run(
                f"UPDATE {self._name} SET _is_current = FALSE WHERE _member_key = $1 AND _origin = 'source'",
                [(key,) for key in keys],
            )

    def bounds(self) -> Script[tuple[int, int]]:
        rows = yield Fetch(f"SELECT MIN(_row_id), MAX(_row_id) FROM {self._name}")
        return (rows[0][0] or 0, rows[0][1] or -1)

    def seen(self, first: int, last: int, now: Instant, runbook_name: str) -> Script[None]:
        """Mark current members among these rows as seen again, except missing ones."""
        yield Run(
            f"UPDATE {self._name} SET _last_seen_at = $3 WHERE _row_id >= $1 AND _row_id < $2"
            " AND _is_current = TRUE AND _origin = 'source' AND NOT EXISTS (SELECT 1 FROM runbook_absences a"
            f" WHERE a.runbook_name = $4 AND a.member_key = {self._name}._member_key)",
            [(first, last, now, runbook_name)],
        )

    def data(self, keys: Sequence[str]) -> Script[dict[str, tuple[str | None, ...]]]:
        return {key: tuple(values) for key, (_, *values) in (yield from self.rows(keys)).items()}

    def rows(self, keys: Sequence[str], only_current: bool = False) -> Script[dict[str, tuple[Any, ...]]]:
        """Origin and values of each member; `only_current`: of those in the latest reading of the source."""
        names = ", ".join(["_member_key", "_origin" if self.is_own else f"'{FROM_SOURCE}'", *self._quoted])
        current = " AND _is_current = TRUE" if only_current else ""
        rows = yield Fetch(
            f"SELECT {names} FROM {self._name} WHERE _member_key = ANY($1::text[]){current}",
            [list(keys)],
        )
        return {row[0]: tuple(row[1:]) for row in rows}


def open_table(runbook_id: int, table: str, columns: Sequence[str]) -> Script[DataTable]:
    """The table of a runbook version, created when its columns are first known; they never change afterwards."""
    known = (yield Fetch(_COLUMNS, [runbook_id]))[0][0]
    if known is None:
        known = (yield Fetch(f"{_COLUMNS} FOR UPDATE", [runbook_id]))[0][0]
    if known is not None:
        return _known_table(table, known)
    created = DataTable(table, columns)
    yield from created.create()
    yield Run(_SET_COLUMNS, [(runbook_id, msgspec.json.encode(list(columns)).decode())])
    return created


def _known_table(name: str, columns_json: str) -> DataTable:
    """Columns of a table that LUCIUS made are a list; those of another scheduler's are under `columns`."""
    known = msgspec.json.decode(columns_json)
    return DataTable(name, known["columns"], is_own=False) if isinstance(known, dict) else DataTable(name, known)


def adopt_table(runbook_id: int, table: str) -> Script[bool]:
    """Look up and keep the columns of a table that another scheduler made; returns whether they are known now."""
    if (yield Fetch(_COLUMNS, [runbook_id]))[0][0] is not None:
        return True
    names = [row[0] for row in (yield Fetch(COLUMNS_OF_TABLE, [table]))]
    if "_member_key" not in names or "_is_current" not in names:
        return False
    own = [name for name in names if name != "_row_id" and name not in SYSTEM_COLUMNS]
    yield Run(_SET_COLUMNS, [(runbook_id, msgspec.json.encode({"columns": own}).decode())])
    return True


def last_known(
    runbook: Runbook, version: int, keys: Sequence[str], only_current: bool = False
) -> Script[dict[str, Data]]:
    """The last known data of these members, current or not: from this version's table, or the newest before it.
    `only_current`: only of members that are in the latest reading of the source, as for who catches up."""
    found: dict[str, Data] = {}
    several = {column.name for column in runbook.source.multi_valued} if runbook.source else set()
    for name, columns in (yield Fetch(_TABLES, (runbook.name, version))):
        missing = [key for key in keys if key not in found]
        if not missing:
            break
        table = _known_table(name, columns)
        for key, (origin, *values) in (yield from table.rows(missing, only_current)).items():
            # A CSV has no nulls: one in its rows is a column that the CSV did not have.
            from_csv = origin == BY_HAND or (runbook.source is not None and runbook.source.type == "csv")
            found[key] = {
                column: msgspec.json.decode(value) if column in several and value is not None else value
                for column, value in zip(table.columns, values, strict=True)
                if value is not None or not from_csv
            }
    return found
