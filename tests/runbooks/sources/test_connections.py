"""Connections from the environment and from a file that is read again when it changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lucius.runbooks.sources.connections import Connections
from lucius.runbooks.sources.limits import SourceError

A, B = "LUCIUS_SOURCE_A", "LUCIUS_SOURCE_B"


def replace(path: Path, text: str) -> None:
    """As an operator should: written beside it, then renamed."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    os.replace(beside, path)


def test_the_environment_comes_first_and_the_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "sources.env"
    file.write_text(f"# Connections\n\n{A}=/from/file.csv\n {B} = postgresql://u:p=q@h/db \n")
    environ = {A: "/from/environment.csv"}
    found = Connections(environ, file)
    assert (found[A], found[B]) == ("/from/environment.csv", "postgresql://u:p=q@h/db")
    assert found.get("LUCIUS_SOURCE_C") is None
    del environ[A]
    assert found[A] == "/from/file.csv"
    replace(file, f"{A}=/other.csv\nLUCIUS_SOURCE_C=/new.csv\n")
    assert (found[A], found["LUCIUS_SOURCE_C"], B in found) == ("/other.csv", "/new.csv", False)
    assert sorted(found) == [A, "LUCIUS_SOURCE_C"]
    assert len(found) == 2


def test_without_a_file_there_is_only_the_environment() -> None:
    assert dict(Connections({A: "x", "OTHER": "y"}, None)) == {A: "x", "OTHER": "y"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"{A}\n", "line 1: expected NAME=address"),
        (f"{A}=x\nPATH=/bin\n", "line 2: the name must be LUCIUS_SOURCE_ followed by A-Z 0-9 _"),
        (f"{A}=x\n{A}=y\n", "line 2: duplicate connection LUCIUS_SOURCE_A"),
        (f"{A}=\n", "line 1: LUCIUS_SOURCE_A has no address"),
        (f"{A}=/cut", "the last line has no line break at its end, so it may be cut off"),
        ("\udcff\n", "not UTF-8"),
        ("#" * 1_048_577, "more than 1048576 bytes"),
    ],
)
def test_a_faulty_file_says_where_and_shows_no_address(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "sources.env"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceError, match=r"the file that LUCIUS_SOURCES_FILE names") as caught:
        Connections({}, file).get(A)
    assert fault in str(caught.value)
    assert "/bin" not in str(caught.value)
    assert Connections({A: "x"}, file)[A] == "x", "a connection of the environment needs no file"


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read: No such file or directory"):
        Connections({}, tmp_path / "none").get(A)
