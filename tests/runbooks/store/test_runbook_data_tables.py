"""Dynamic data tables on both databases: whatever the columns are called, and whatever became of them since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from lucius.runbooks.core.definition.reading import read_runbook
from lucius.runbooks.core.records import BY_HAND
from lucius.runbooks.store import trail
from lucius.runbooks.store.data_tables import DataRow, DataTable, last_known, open_table
from lucius.sql.database import Database, Fetch, Run, Script

NOW = 1_800_000_000_000
ODD = ("UserPrincipalName", "größe (MB)", "a/b-c.d@e#f", "select", "Straße 2", "日本")
RUNBOOK = read_runbook(b"""
name: odd names
data_source:
  type: csv
  connection: LUCIUS_SOURCE_X
  primary_key: Upn
  batch_time: immediate
  multi_valued_columns: [{name: Aliases, format: semicolon_delimited}]
phases:
  - {name: go, offset: T-0, steps: [{name: a, worker_id: w, function: F}]}
""")
PUBLISH = (
    "INSERT INTO runbooks (name, version, yaml_content, data_table_name, is_active, overdue_behavior,"
    " ignore_overdue_applied, rerun_init, created_at, created_by)"
    " VALUES ('odd names', $1, 'y', $2, FALSE, 'rerun', FALSE, FALSE, 0, 'me')"
)


@pytest.fixture(params=["sqlite_database", "postgres_database"])
def database(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def row(key: str, *values: str | None, digest: str = "d") -> DataRow:
    return DataRow(key, NOW, values, digest)


async def fetch(database: Database, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    def script() -> Script[list[tuple[Any, ...]]]:
        return [tuple(line) for line in (yield Fetch(sql, args))]

    return await database.read(script)


async def publish(database: Database, version: int) -> int:
    def script() -> Script[int]:
        yield Run(PUBLISH, [(version, f"runbook_odd_names_v{version}")])
        return (yield Fetch("SELECT id FROM runbooks WHERE version = $1", [version]))[0][0]

    return await database.write(script)


async def filled(database: Database, version: int, columns: Sequence[str], *rows: DataRow) -> DataTable:
    runbook_id = await publish(database, version)

    def script() -> Script[DataTable]:
        table = yield from open_table(runbook_id, f"runbook_odd_names_v{version}", columns)
        yield from table.add(rows, NOW)
        return table

    return await database.write(script)


async def test_a_table_has_the_contracts_columns_and_those_of_the_source(database: Database) -> None:
    await filled(database, 1, ODD, row("u1", "u1", "5", None, "x", "", "ü"))
    own = "_row_id, _member_key, _batch_time, _first_seen_at, _last_seen_at, _is_current"
    [found] = await fetch(database, f"SELECT {own} FROM runbook_odd_names_v1")
    assert found == (1, "u1", NOW, NOW, NOW, True)
    quoted = ", ".join(f'"{column}"' for column in ODD)
    [values] = await fetch(database, f"SELECT {quoted} FROM runbook_odd_names_v1")
    assert values == ("u1", "5", None, "x", "", "ü")


async def test_members_come_change_and_go(database: Database) -> None:
    table = await filled(database, 1, ("Upn", "Size"), row("u1", "u1", "1"), row("u2", "u2", "2"))

    def script() -> Script[Any]:
        yield from table.add([row("u1", "u1", "not this")], NOW + 1)
        yield from table.change([row("u2", "u2", "22", digest="e")], NOW + 2)
        yield from table.drop(["u1"])
        known = yield from table.known()
        data = yield from table.data(["u1", "u2", "nobody"])
        return known, data, (yield from table.exists(["u2", "nobody"])), (yield from table.bounds())

    known, data, exists, bounds = await database.write(script)
    assert known == {"u1": ("d", NOW, False), "u2": ("e", NOW, True)}
    assert data == {"u1": ("u1", "1"), "u2": ("u2", "22")}, "who is gone keeps what was known last"
    assert exists == {"u2"}
    assert bounds == (1, 2)


async def test_only_who_is_current_is_seen_again(database: Database) -> None:
    table = await filled(database, 1, ("Upn",), *(row(f"u{n}", f"u{n}") for n in range(1, 5)))

    def script() -> Script[None]:
        yield from table.drop(["u2"])
        yield from table.change([row("u3", "u3")], NOW, BY_HAND)
        yield from table.seen(1, 4, NOW + 9, "moves")

    await database.write(script)
    seen = await fetch(database, "SELECT _member_key FROM runbook_odd_names_v1 WHERE _last_seen_at = $1", NOW + 9)
    assert seen == [("u1",)], "u2 is gone, u3 was put in by hand, u4 lies beyond the page"


async def test_a_tables_columns_stay_as_they_were_first(database: Database) -> None:
    runbook_id = await publish(database, 1)

    def script() -> Script[list[tuple[str, ...]]]:
        tables = []
        for columns in (("Upn", "Size"), ("Upn", "Other"), ("Upn",)):
            tables.append((yield from open_table(runbook_id, "runbook_odd_names_v1", columns)))
        return [table.columns for table in tables]

    assert await database.write(script) == [("Upn", "Size")] * 3
    [(kept,)] = await fetch(database, "SELECT columns_json FROM runbooks WHERE version = 1")
    assert msgspec.json.decode(kept) == ["Upn", "Size"]


async def test_what_was_last_known_is_found_over_versions(database: Database) -> None:
    await filled(database, 1, ("Upn", "Size"), row("u1", "u1", "1"), row("u2", "u2", "2"))
    await publish(database, 2)  # It was replaced before its source was ever read.
    await filled(database, 3, ("Upn", "Aliases"), row("u2", "u2", '["a","b"]'), row("u4", "u4", None))

    def known(version: int, *keys: str) -> Any:
        return database.read(lambda: last_known(RUNBOOK, version, keys))

    assert await known(3, "u1", "u2", "u3", "u4") == {
        "u1": {"Upn": "u1", "Size": "1"},
        "u2": {"Upn": "u2", "Aliases": ["a", "b"]},
        "u4": {"Upn": "u4"},
    }, "a CSV has no nulls: it did not have the column"
    assert await known(2, "u2", "u4") == {"u2": {"Upn": "u2", "Size": "2"}}, "later versions are not looked at"
    assert await known(3) == {}


@pytest.mark.parametrize(
    "name",
    [
        'x"; DROP TABLE batches; --',
        "a'b",
        "a;b",
        "a\x00b",
        "$1",
        "::text",
        "_row_id",
        "_member_key",
        "",
        " a",
        "a" * 64,
    ],
)
def test_a_column_that_could_say_more_than_a_name_makes_no_table(name: str) -> None:
    with pytest.raises(ValueError):
        DataTable("runbook_odd_names_v1", ("Upn", name))


@pytest.mark.parametrize("name", ['x" (a TEXT); --', "a\nb", "", "a" * 64])
def test_nor_does_such_a_table_name(name: str) -> None:
    with pytest.raises(ValueError):
        DataTable(name, ("Upn",))


async def test_values_are_values_whatever_they_look_like(database: Database) -> None:
    hostile = ["'; DROP TABLE batches; --", '" OR 1=1', "{{Upn}}", "$1 %s ?1 :x", "\\", "\U0001f600\u202e"]
    table = await filled(database, 1, ("Upn", "Text"), *(row(text, text, text) for text in hostile))
    data = await database.read(lambda: table.data(hostile))
    assert data == {text: (text, text) for text in hostile}
    assert await fetch(database, "SELECT COUNT(*) FROM batches") == [(0,)]


# --- The trail -------------------------------------------------------------------------------------------------------


async def test_the_trail_keeps_who_did_what_to_whom(database: Database) -> None:
    entries = [
        trail.entry(NOW, "batch-cancelled", "ann'; --", "odd names", 7, reason="müde", count=2),
        trail.entry(NOW + 1, "member-removed", trail.SCHEDULER, "odd names", 7, 9, member="u1"),
        trail.entry(NOW + 2, "runbook-published", "ann", "odd names", version=3),
    ]

    def script() -> Script[None]:
        yield from trail.write(entries)

    await database.write(script)
    found = await fetch(
        database,
        "SELECT at, kind, actor, runbook_name, batch_id, batch_member_id, detail FROM runbook_events ORDER BY id",
    )
    assert [line[:6] for line in found] == [
        (NOW, "batch-cancelled", "ann'; --", "odd names", 7, None),
        (NOW + 1, "member-removed", "scheduler", "odd names", 7, 9),
        (NOW + 2, "runbook-published", "ann", "odd names", None, None),
    ]
    details = [msgspec.json.decode(line[6]) for line in found]
    assert details == [{"reason": "müde", "count": 2}, {"member": "u1"}, {"version": 3}]
