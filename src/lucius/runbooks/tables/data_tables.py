"""Dynamic data tables: one a runbook's version, a column for each of the data source's.

Names come from outside, so they are checked by `definition.names` and quoted; no other text of anybody's reaches SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.definition.model import Runbook
from lucius.runbooks.definition.names import columns_faults, quoted
from lucius.sql.database import Fetch, Run, Script

SYSTEM_COLUMNS = ("_member_key", "_batch_time", "_first_seen_at", "_last_seen_at", "_is_current", "_digest", "_origin")
FROM_SOURCE = "source"
BY_HAND = "manual"

_TABLES = (
    "SELECT data_table_name, columns_json FROM runbooks WHERE name = $1 AND version <= $2 AND columns_json IS NOT NULL"
    " ORDER BY version DESC"
)
_SET_COLUMNS = "UPDATE runbooks SET columns_json = $2 WHERE id = $1 AND columns_json IS NULL"
_COLUMNS = "SELECT columns_json FROM runbooks WHERE id = $1"

Data = Mapping[str, Any]
"""A member's columns, those with several values as lists."""


class DataRow(Struct, frozen=True):
    key: str
    batch_time: Instant | None
    values: tuple[str | None, ...]
    digest: str


class DataTable:
    """One table, by its name and its columns."""

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        faults = columns_faults(columns)
        if faults:
            raise ValueError("; ".join(faults))
        self.columns = tuple(columns)
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
        """New values for members that are there already."""
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
        """These members are no longer in the source; what was known of them stays."""
        if keys:
            yield Run(
                f"UPDATE {self._name} SET _is_current = FALSE WHERE _member_key = $1 AND _origin = 'source'",
                [(key,) for key in keys],
            )

    def bounds(self) -> Script[tuple[int, int]]:
        rows = yield Fetch(f"SELECT MIN(_row_id), MAX(_row_id) FROM {self._name}")
        return (rows[0][0] or 0, rows[0][1] or -1)

    def seen(self, first: int, last: int, now: Instant) -> Script[None]:
        """Current members among these rows were seen again."""
        yield Run(
            f"UPDATE {self._name} SET _last_seen_at = $3 WHERE _row_id >= $1 AND _row_id < $2"
            " AND _is_current = TRUE AND _origin = 'source'",
            [(first, last, now)],
        )

    def data(self, keys: Sequence[str]) -> Script[dict[str, tuple[str | None, ...]]]:
        names = ", ".join(["_member_key", *self._quoted])
        rows = yield Fetch(
            f"SELECT {names} FROM {self._name} WHERE _member_key = ANY($1::text[])",
            [list(keys)],
        )
        return {row[0]: tuple(row[1:]) for row in rows}


def open_table(runbook_id: int, table: str, columns: Sequence[str]) -> Script[DataTable]:
    """The table of a runbook's version, made the first time that its columns are known; from then on they stay."""
    known = (yield Fetch(_COLUMNS, [runbook_id]))[0][0]
    if known is None:
        known = (yield Fetch(f"{_COLUMNS} FOR UPDATE", [runbook_id]))[0][0]
    if known is not None:
        return DataTable(table, msgspec.json.decode(known))
    created = DataTable(table, columns)
    yield from created.create()
    yield Run(_SET_COLUMNS, [(runbook_id, msgspec.json.encode(list(columns)).decode())])
    return created


def last_known(runbook: Runbook, version: int, keys: Sequence[str]) -> Script[dict[str, Data]]:
    """What was last known of these members, current or not: in this version's table, or in the newest before it."""
    found: dict[str, Data] = {}
    several = {column.name for column in runbook.source.multi_valued} if runbook.source else set()
    for name, columns in (yield Fetch(_TABLES, (runbook.name, version))):
        missing = [key for key in keys if key not in found]
        if not missing:
            break
        table = DataTable(name, msgspec.json.decode(columns))
        for key, values in (yield from table.data(missing)).items():
            found[key] = {
                column: msgspec.json.decode(value) if column in several and value is not None else value
                for column, value in zip(table.columns, values, strict=True)
            }
    return found
