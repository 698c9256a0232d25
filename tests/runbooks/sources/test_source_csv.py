from __future__ import annotations

import csv
import io
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucius.runbooks.core.definition.model import DataSource
from lucius.runbooks.sources.csv_text import read_csv, write_csv
from lucius.runbooks.sources.limits import SourceError, SourceLimits
from lucius.runbooks.sources.reading import preview, read_source, read_source_members

LIMITS = SourceLimits()
SOURCE = DataSource(type="csv", connection="MEMBERS_CSV", primary_key="id")


def faults_of(text: bytes | str, limits: SourceLimits = LIMITS) -> tuple[str, ...]:
    with pytest.raises(SourceError) as caught:
        read_csv(text, limits)
    return caught.value.faults or (str(caught.value),)


@pytest.mark.parametrize(
    "text", ["id,name\r\na,Zoë\r\n", "\ufeffid,name\na,Zoë", b"\xef\xbb\xbfid, name\n\na,Zo\xc3\xab\n\n"]
)
def test_csv_is_read_with_or_without_a_mark_at_its_start(text: bytes | str) -> None:
    found = read_csv(text, LIMITS)
    assert (found.columns, found.rows) == (("id", "name"), [("a", "Zoë")])


def test_a_quoted_cell_may_hold_lines_and_the_next_fault_has_its_own_line() -> None:
    assert read_csv('id,v\na,"1\n2"\n', LIMITS).rows == [("a", "1\n2")]
    assert faults_of('id,v\na,"1\n2"\n\nb\n') == ("line 5: 1 cell, but the header has 2",)


@pytest.mark.parametrize("text", ["", "\n\n", b"\xef\xbb\xbf"])
def test_a_csv_without_a_header_is_refused(text: bytes | str) -> None:
    assert "first line must name the columns" in faults_of(text)[0]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("id,", "column 2 has no name"),
        ("id,a,a", "duplicate column 'a'"),
        ("id,ID", "letter case"),
        ("id,_row", "begins with _"),
        ("id,=x", "formula"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused_with_its_line(header: str, told: str) -> None:
    (fault,) = faults_of(f"\n{header}\n")
    assert fault.startswith("line 2: ")
    assert told in fault


@pytest.mark.parametrize(
    "cell", ["=1+1", "+cmd", "-cmd|'/c calc'!A0", "@SUM(A1)", "\tx", "\rx", "=", "-", "+1+cmd", "＝1", "-2e5"]
)
def test_a_formula_is_refused_with_line_and_column(cell: str) -> None:
    (fault,) = faults_of(f'id,v\na,1\nb,"{cell}"\n')
    assert fault.startswith("line 3: column 'v' would be run as a formula")
    assert "cmd" not in fault


@pytest.mark.parametrize("cell", ["-1", "+1.5", "-1,000.00", "+49 (30) 123-45", "a=b", " =", "'x", "0"])
def test_numbers_and_telephone_numbers_are_no_formulas(cell: str) -> None:
    assert read_csv(f'id,v\na,"{cell}"\n', LIMITS).rows == [("a", cell)]


def test_every_fault_is_named_and_the_message_shows_the_first() -> None:
    with pytest.raises(SourceError) as caught:
        read_csv("id,v\n" + "a,=x\n" * 150, LIMITS)
    assert len(caught.value.faults) == 100
    assert "line 2: column 'v'" in str(caught.value)
    assert str(caught.value).endswith("; and 147 more")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"id\na\nsecret\xff\n", "line 3: not UTF-8"),
        ("id\nsecret\0\n", "line 2: there is a NUL character"),
        ('id\n"secret\n', "line 2: a quotation mark is opened and never closed"),
        ("id\nsecret" + "x" * 100, "line 2: column 'id' has more than 50 characters"),
        ("id\n" + "x" * 200_000, "line 2: not readable as CSV"),
        ("id\na\nb\nc\nd\n", "more than 3 rows"),
        ("a,b,c,d,e\n", "at most 4 are allowed"),
        (b"id\n" + b"a" * 300_000, "more than 250000 bytes"),
    ],
)
def test_what_is_beyond_a_limit_or_no_text_is_refused(text: bytes | str, told: str) -> None:
    limits = SourceLimits(rows_max=3, cell_chars_max=50, columns_max=4, file_bytes_max=250_000)
    fault = faults_of(text, limits)[0]
    assert told in fault
    assert "secret" not in fault


def test_formulas_are_written_with_an_apostrophe() -> None:
    text = write_csv(("id", "v"), [("=1", None), ("-1", True), ("'=1", "'x"), ("+49 30", "@x"), ("-1,000.5", " =1")])
    assert text.splitlines() == [
        '"id","v"', '"\'=1",""', '"-1","true"', '"\'\'=1","\'x"', '"\'+49 30","\'@x"', '"-1,000.5","\' =1"',
    ]  # fmt: skip


RUNS = [
    "=1+1", "+1+1", "-1-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠A1", "﹦1", "﹢1", "﹣1",
    "﹫A1",
    "\u22121",
    " =1", "\u00a0=1", "\u3000+1", "\u200b=1", "\ufeff=1", "\x0b=1", " \t @x", "-2e5", "+49 (30) 123-45", "-", "=", "@",
    "cmd|'/c calc'!A0", "MSEXCEL|'\\..\\calc.exe'!''", "|calc", '"=1', "''=1", "' =1",
]  # fmt: skip


@pytest.mark.parametrize("cell", RUNS)
def test_whatever_a_spreadsheet_could_run_is_written_as_text(cell: str) -> None:
    ((_, written),) = list(csv.reader(io.StringIO(write_csv(("id", "v"), [("a", cell)]), newline="")))[1:]
    assert written == "'" + cell
    assert read_csv(write_csv(("id", "v"), [("a", cell)]), LIMITS).rows == [("a", cell)]


@pytest.mark.parametrize(
    "cell", ["-5", "+5", "-1.5", "-1,000.00", "0", "a=b", "a-b", "x|y", "ann@contoso.com", "'x", ""]
)
def test_numbers_and_plain_text_are_written_as_they_are(cell: str) -> None:
    assert write_csv(("id",), [(cell,)]) == f'"id"\r\n"{cell}"\r\n'


BLANK = "".join(map(chr, range(33))) + '\x7f\x85\xa0\u200b\u200e\u2060\u3000\ufeff"'
STARTS = [*"=+-@＝＋－＠﹦﹢﹣﹫\u2212|"]
NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)*")
_CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
_RISKY = st.builds(lambda start, end: start + end, st.text("'=+-@\t\r\n＝01 ,\"|!﹣\u3000\ufeff", max_size=4), _CELL)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_CELL | _RISKY, _RISKY), max_size=5))
def test_what_is_written_is_read_back(rows: list[tuple[str, str]]) -> None:
    text = write_csv(("id", "v"), rows)
    found = read_csv(text, LIMITS)
    assert (found.columns, found.rows) == (("id", "v"), rows)
    for cell in (cell for line in csv.reader(io.StringIO(text, newline="")) for cell in line):
        bare = cell.lstrip(BLANK)
        assert bare[:1] not in STARTS or NUMBER.fullmatch(cell), "a spreadsheet could run it"
        assert cell[:1] not in "\t\r\n" or not cell


async def test_a_csv_file_is_a_source(tmp_path: Path) -> None:
    path = tmp_path / "members.csv"
    path.write_text("id,v\na,1\nb,2\nc,3\n")
    environ = {"MEMBERS_CSV": str(path)}
    assert (await read_source(SOURCE, environ, LIMITS, [])).rows == [("a", "1"), ("b", "2"), ("c", "3")]
    assert (await preview(SOURCE, environ, LIMITS, [], limit=2)).rows == [("a", "1"), ("b", "2")]
    assert list((await read_source_members(SOURCE, environ, LIMITS, [])).members) == ["a", "b", "c"]


async def test_a_csv_source_must_be_a_regular_file_of_bounded_size(tmp_path: Path) -> None:
    async def message_of(path: Path) -> str:
        with pytest.raises(SourceError) as caught:
            await read_source(SOURCE, {"MEMBERS_CSV": str(path)}, SourceLimits(file_bytes_max=10), [])
        assert str(path) not in str(caught.value)
        return str(caught.value)

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text("id\n" + "a\n" * 10)
    assert "No such file" in await message_of(tmp_path / "missing")
    assert "not a regular file" in await message_of(tmp_path / "pipe")
    assert "not a regular file" in await message_of(tmp_path)
    assert "more than 10 bytes" in await message_of(tmp_path / "large")


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
async def test_the_own_database_is_no_csv_source(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"lucius.db{suffix}").write_text("id\na\n")
    (tmp_path / "link.csv").hardlink_to(tmp_path / f"lucius.db{suffix}")
    with pytest.raises(SourceError, match="LUCIUS's own database"):
        await read_source(SOURCE, {"MEMBERS_CSV": str(tmp_path / "link.csv")}, LIMITS, [tmp_path / "lucius.db"])


@pytest.mark.parametrize("environ", [{}, {"MEMBERS_CSV": " "}])
async def test_a_variable_that_is_not_set_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(SourceError, match="MEMBERS_CSV is not set: set it to the path"):
        await read_source(SOURCE, environ, LIMITS, [])
