from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from lucius.domain.time import iso
from lucius.runbooks.core.definition.model import DataSource, MultiValued
from lucius.runbooks.core.source_members import Members
from lucius.runbooks.sources.limits import SourceError
from lucius.runbooks.sources.rows import Rows, read_members

MARCH = "2026-03-15T00:00:00.000Z"


def members_of(columns: tuple[str, ...], *rows: tuple[Any, ...], **more: Any) -> Members:
    return read_members(Rows(columns, list(rows)), DataSource(type="sql", connection="X", primary_key="id", **more))


def text_of(value: Any) -> str | None:
    return members_of(("id", "value"), ("a", value)).members["a"].values[1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is ", "as it is "),
        ("", ""),
        (None, None),
        (7, "7"),
        (1.5, "1.5"),
        (Decimal("2.50"), "2.50"),
        (True, "true"),
        (False, "false"),
        (date(2026, 3, 15), "2026-03-15"),
        (datetime(2026, 3, 15, 8, 30), "2026-03-15T08:30:00Z"),  # noqa: DTZ001 - a moment without a zone is UTC
        (datetime(2026, 3, 15, 8, 30, tzinfo=timezone(timedelta(hours=2))), "2026-03-15T06:30:00Z"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        ("a literal \\u0000", "a literal \\u0000"),
    ],
)
def test_a_value_becomes_text(value: Any, text: str | None) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize("value", [b"secret", bytearray(b"secret"), memoryview(b"secret"), object()])
def test_a_value_without_text_is_a_fault_of_its_row_alone(value: Any) -> None:
    members = members_of(("id", "value"), ("a", value), ("b", 1))
    assert list(members.members) == ["b"]
    assert members.unusable == {"a"}
    assert members.faults[0].row == 1
    assert "'value'" in members.faults[0].message
    assert "secret" not in members.faults[0].message


@pytest.mark.parametrize(("text", "told"), [("x\0y", "NUL"), ("x\ud800", "surrogate")])
def test_text_that_no_store_keeps_is_a_fault(text: str, told: str) -> None:
    members = members_of(("id", "value"), ("a", text))
    assert told in members.faults[0].message
    assert members.unusable == {"a"}


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        ("semicolon_delimited", " a@x ; b,c ;;", '["a@x","b,c"]'),
        ("comma_delimited", "a, b;c ,", '["a","b;c"]'),
        ("semicolon_delimited", "", "[]"),
        ("semicolon_delimited", None, None),
        ("comma_delimited", ["a", "b"], '["a","b"]'),
        ("json_array", '[ "a", 1 , null]', '["a",1,null]'),
        ("json_array", " ", "[]"),
        ("json_array", ["a"], '["a"]'),
    ],
)
def test_a_multi_valued_column_becomes_a_json_array(form: Any, value: Any, text: str | None) -> None:
    members = members_of(("id", "many"), ("a", value), multi_valued=(MultiValued("many", form),))
    assert members.members["a"].values[1] == text


@pytest.mark.parametrize("value", ["[1", '{"a": 1}', "secret", '"a"', "[" * 100_000, '["\\ud800"]'])
def test_a_bad_json_array_is_a_fault_of_its_row(value: str) -> None:
    many = (MultiValued("many", "json_array"),)
    members = members_of(("id", "many"), ("a", value), ("b", "[]"), multi_valued=many)
    assert list(members.members) == ["b"]
    assert members.unusable == {"a"}
    assert "secret" not in members.faults[0].message


def test_the_key_is_stripped_and_of_any_type() -> None:
    members = members_of(("id",), (" a ",), (7,))
    assert list(members.members) == ["a", "7"]
    assert members.members["a"].values == (" a ",)


@pytest.mark.parametrize("key", [None, "", "  ", "k" * 257, "a\0", b"a"])
def test_a_row_without_a_usable_key_is_counted(key: Any) -> None:
    members = members_of(("id",), (key,), ("k" * 256,))
    assert list(members.members) == ["k" * 256]
    assert (members.fault_count, members.keyless_count, members.unusable) == (1, 1, frozenset())


def test_the_first_row_of_a_key_counts_and_the_key_is_marked() -> None:
    members = members_of(("id", "v"), ("a", "1"), ("a ", "2"), ("b", "3"))
    assert members.members["a"].values == ("a", "1")
    assert members.unusable == {"a"}
    assert [(fault.row, fault.key) for fault in members.faults] == [(2, "a")]


def test_a_good_row_after_a_faulty_one_of_the_same_key_is_not_taken() -> None:
    members = members_of(("id", "v"), ("a", b"1"), ("a", "2"))
    assert members.members == {}
    assert members.unusable == {"a"}
    assert members.fault_count == 2


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        (date(2026, 3, 15), MARCH),
        (datetime(2026, 3, 15), MARCH),  # noqa: DTZ001 - a moment without a zone is UTC
        (datetime(2026, 3, 15, 2, tzinfo=timezone(timedelta(hours=2))), MARCH),
        (datetime(2026, 3, 15, 0, 0, 0, 1400, tzinfo=UTC), "2026-03-15T00:00:00.001Z"),
        ("2026-03-15", MARCH),
        (" 2026-03-15T00:00:00 ", MARCH),
        ("2026-03-15 00:00:00", MARCH),
        ("2026-03-15T00:00:00Z", MARCH),
        ("2026-03-14T19:00:00-05:00", MARCH),
    ],
)
def test_a_batch_time_is_an_instant(value: Any, moment: str) -> None:
    members = members_of(("id", "at"), ("a", value), ("b", value), batch_time_column="at")
    assert [iso(member.batch_time or 0) for member in members.members.values()] == [moment, moment]


def test_a_moment_without_a_zone_is_utc_wherever_the_process_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-5")
    time.tzset()
    try:
        naive = datetime(2026, 3, 15)  # noqa: DTZ001 - that is what is under test
        members = members_of(("id", "at"), ("a", "2026-03-15"), ("b", naive), batch_time_column="at")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert {iso(member.batch_time or 0) for member in members.members.values()} == {MARCH}
    assert members.members["b"].values[1] == "2026-03-15T00:00:00Z"


POISON = ("0001-01-01", "9999-12-31", "0001-01-01T00:00:00+23:59", "1970-01-01T00:00:00+23:59")


@pytest.mark.parametrize("value", [None, "", "soon", "15.03.2026", 1_773_532_800, True, *POISON])
def test_a_bad_batch_time_is_a_fault_and_the_member_is_not_gone(value: Any) -> None:
    members = members_of(("id", "at"), ("a", value), ("b", "2026-03-15"), batch_time_column="at")
    assert list(members.members) == ["b"]
    assert members.unusable == {"a"}
    assert "'at'" in members.faults[0].message


def test_an_immediate_source_has_no_batch_time() -> None:
    assert members_of(("id",), ("a",)).members["a"].batch_time is None


def test_the_digest_tells_rows_apart() -> None:
    rows = [
        ("a", "b", None),
        ("a", "b", ""),
        ("ab", "", None),
        ("a", '","', None),
        ("a", None, "b"),
        ("a", "null", "b"),
    ]
    digests = {members_of(("id", "v", "w"), row).members[row[0]].digest for row in rows}
    assert len(digests) == len(rows)
    assert {len(digest) for digest in digests} == {16}
    again = members_of(("id", "v", "w"), rows[0], ("z", 1, 2)).members["a"].digest
    assert again == members_of(("id", "v", "w"), rows[0]).members["a"].digest


def test_a_hundred_faults_are_kept_and_all_are_counted() -> None:
    members = members_of(("id", "v"), *((str(number), b"") for number in range(150)))
    assert len(members.faults) == 100
    assert members.fault_count == 150
    assert len(members.unusable) == 150


@pytest.mark.parametrize("rows", [[], [("a",)]])
def test_a_column_that_is_not_there_is_an_error(rows: list[tuple[Any, ...]]) -> None:
    with pytest.raises(SourceError, match="no column 'at', which batch_time_column names; it has id"):
        members_of(("id",), *rows, batch_time_column="at")
    with pytest.raises(SourceError, match="multi_valued_columns"):
        members_of(("id",), *rows, multi_valued=(MultiValued("many", "json_array"),))


def test_a_column_that_differs_by_letter_case_is_pointed_out() -> None:
    with pytest.raises(SourceError, match="there is 'ID'"):
        members_of(("ID",), ("a",))


def test_no_rows_are_no_members() -> None:
    assert members_of(("id",)) == Members(columns=("id",), members={})
